"""Redelivered records of one lane: a connector that is started again sends the end of its stream a second time.

Each record of a log has a higher position than the one before it, except where records are redelivered, or the log has
begun anew. What came before stood in the same lane, as its key is the same: so a lane that sees no position fall, and
none repeated, has nothing to leave out. As soon as one falls, what becomes of the records depends on those of other
lanes and of other partitions: the lane asks for all of them to be judged in their order
(`streaming.core.redelivery`), and goes by that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec.log_positions import LOG, PARTS, TS_MS, log_id
from schemas.codec.logs import LogId, Position
from schemas.records import Op
from state.values.seen import LaneMark, LaneSeen, Seen, digest, later
from streaming.core.redelivery import Judgement
from streaming.lane.task import Lack, UndoneError
from streaming.source.decoded import POSITION, Changes
from streaming.source.records import Bools

_Indices = npt.NDArray[np.int64]


class RedeliveryFilter:
    """Leaves out redelivered records of one lane and batch; call it with each part, in order."""

    def __init__(self, start: Mapping[int, Seen], judgement: Judgement | None = None) -> None:
        self._start, self._judgement = start, judgement
        self._marks: dict[tuple[int, LogId], LaneMark] = {}
        self._snapshots: dict[int, dict[LogId, int]] = {}
        self.count = 0
        """The number of records that were left out."""

    @property
    def seen(self) -> dict[int, LaneSeen]:
        """The records seen, by partition: those of the lane, or of all partitions if they were judged."""
        if self._judgement is not None:
            return {number: LaneSeen(judged=each) for number, each in self._judgement.seen.items()}
        seen = {number: LaneSeen({}, rows) for number, rows in self._snapshots.items()}
        marks: dict[int, dict[LogId, LaneMark]] = {}
        for (number, log), mark in self._marks.items():
            marks.setdefault(number, {})[log] = mark
        return {number: LaneSeen(marks.get(number, {}), each.snapshots) for number, each in seen.items()}

    def __call__(self, changes: Changes, keys: pa.Array) -> Changes:
        """The changes without redelivered ones; `keys` are their encoded keys. All must be valid.

        Raises: UndoneError(Lack.JUDGEMENT) where a position falls or is repeated, and there is no judgement.
        """
        if not len(changes):
            return changes
        if self._judgement is not None:
            return self._without_dropped(changes, self._judgement)
        partitions = changes.partitions
        for number in np.unique(partitions).tolist():
            rows = np.flatnonzero(partitions == number)
            self._snapshots.setdefault(number, {})
            self._check_tombstones(number, rows, changes, keys)
            for log, found in _by_log(changes, rows):
                self._take(number, log, found, keys, changes)
        return changes

    def _without_dropped(self, changes: Changes, judgement: Judgement) -> Changes:
        dropped = np.zeros(len(changes), np.bool_)
        partitions, offsets = changes.partitions, changes.offsets
        for number, ranges in judgement.dropped.items():
            firsts, lasts = (np.array(each, np.int64) for each in zip(*ranges, strict=True))
            mine = np.flatnonzero(partitions == number)
            place = np.searchsorted(firsts, offsets[mine], side="right") - 1
            dropped[mine] = (place >= 0) & (offsets[mine] <= lasts[place])
        self.count += int(dropped.sum())
        return changes.filtered(~dropped) if dropped.any() else changes

    def _check_tombstones(self, number: int, rows: _Indices, changes: Changes, keys: pa.Array) -> None:
        """The tombstone of a delete that was dropped at the end of the batch before has to be judged."""
        waiting = self._start.get(number, Seen()).dropped
        if waiting is None:
            return
        is_unplaced = ~np.asarray(pc.is_valid(changes.rows[POSITION]), dtype=np.bool_)
        for row in rows[is_unplaced[rows] & (changes.ops[rows] == Op.DELETE)].tolist():
            if digest(_key(keys, row)) == waiting:
                raise UndoneError(Lack.JUDGEMENT)

    def _take(self, number: int, log: LogId, found: _Found, keys: pa.Array, changes: Changes) -> None:
        if not found.is_streamed:
            rows = self._snapshots[number]
            rows[log] = max(int(changes.interval[found.rows[-1]]), rows.get(log, 0))
            return
        known, start = self._marks.get((number, log)), self._start.get(number, Seen()).mark(log)
        highest, at_highest = start.highest, start.at_highest
        if known is not None and (highest is None or known.highest >= highest):
            at_highest = known.at_highest | (at_highest if known.highest == highest else frozenset())
            highest = known.highest
        falls = _falls(log, found.numbers, highest)
        if falls or _repeats(found, highest, at_highest, keys, changes.ops):
            raise UndoneError(Lack.JUDGEMENT)
        self._marks[number, log] = self._mark(known, found, keys, changes)

    def _mark(self, known: LaneMark | None, found: _Found, keys: pa.Array, changes: Changes) -> LaneMark:
        end = int(found.rows[-1])
        highest = found.highest
        at_highest = frozenset[str]()
        if known is not None and known.highest >= highest:
            highest, at_highest = known.highest, known.at_highest
        at = found.rows[(found.numbers == np.array(highest)).all(axis=1)]
        at_highest |= {digest(_key(keys, row), Op(changes.ops[row])) for row in at.tolist()}
        return LaneMark(
            highest=highest,
            at_highest=at_highest,
            latest_ms=later(None if known is None else known.latest_ms, found.latest_ms),
            last=_position(found.numbers[-1]),
            interval=int(changes.interval[end]),
            offset=int(changes.offsets[end]),
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """Records of one log and partition, at `rows` of the changes. `numbers` are their positions, n by width."""

    rows: _Indices
    numbers: _Indices
    latest_ms: int | None
    is_streamed: bool

    @property
    def highest(self) -> Position:
        """The highest position of the records."""
        left = self.numbers
        for column in range(left.shape[1]):
            left = left[left[:, column] == left[:, column].max()]
        return _position(left[0])


def _by_log(changes: Changes, rows: _Indices) -> Iterator[tuple[LogId, _Found]]:
    """The positions of a partition's records, by log; records that are not compared are passed over."""
    found = changes.rows[POSITION].combine_chunks()
    if len(rows) < len(changes):
        found = found.take(pa.array(rows))
    logs = pc.if_else(found.is_valid(), found.field(LOG), None).dictionary_encode()
    codes = logs.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    is_streamed = np.asarray(found.field(PARTS[0]).is_valid(), dtype=np.bool_)
    numbers = [found.field(part).fill_null(0).to_numpy(zero_copy_only=False) for part in PARTS]
    for code, text in enumerate(logs.dictionary.to_pylist()):
        log = log_id(text)
        for streamed in (False, True):
            mine = np.flatnonzero((codes == code) & (is_streamed == streamed))
            if not len(mine):
                continue
            own = np.stack([each[mine] for each in numbers[: log.width]], axis=1)
            latest = pc.max(found.field(TS_MS).take(pa.array(mine))).as_py() if streamed else None
            yield log, _Found(rows[mine], own, latest, streamed)


def _key(keys: pa.Array, row: int) -> bytes:
    return bytes(keys[row].as_py())


def _position(numbers: npt.NDArray[np.int64]) -> Position:
    return tuple(numbers.tolist())


def _falls(log: LogId, numbers: _Indices, highest: Position | None) -> bool:
    """True if a position lies below the highest one before it (`LogId.is_lower`).

    With GTIDs also one with the highest number and a lower offset: it lies below those of other lanes, perhaps.
    """
    before = numbers[:1] if highest is None else np.array([highest], np.int64)
    every = np.concatenate((before, numbers))
    if not log.has_gtids:
        return bool(_is_less(every[1:], every[:-1]).any())
    number = every[:, 0]
    top = np.maximum.accumulate(number)
    if (number == top).all() and not (_is_less(every[1:], every[:-1])).any():
        return False
    ranks = _ranks(every[:, 1:])
    is_top = number == top
    begins = np.cumsum(np.concatenate(([True], top[1:] != top[:-1])))
    # The highest offset of the records with the highest number: it begins anew with each number.
    scaled = begins * (len(every) + 1) + np.where(is_top, ranks + 1, 0)
    places = np.maximum.accumulate(scaled) - begins * (len(every) + 1) - 1
    return bool((ranks < places).any())


def _is_less(left: _Indices, right: _Indices) -> Bools:
    less, equal = np.zeros(len(left), np.bool_), np.ones(len(left), np.bool_)
    for column in range(left.shape[1]):
        less |= equal & (left[:, column] < right[:, column])
        equal &= left[:, column] == right[:, column]
    return less


def _ranks(numbers: _Indices) -> _Indices:
    """The rank of each row in the order of all rows; equal rows have the same."""
    order = np.lexsort(numbers.T[::-1])
    rises = np.concatenate(([0], (numbers[order][1:] != numbers[order][:-1]).any(axis=1).astype(np.int64)))
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.cumsum(rises)
    return ranks


def _repeats(
    found: _Found,
    highest: Position | None,
    at_highest: frozenset[str],
    keys: pa.Array,
    ops: npt.NDArray[np.int8],
) -> bool:
    """True if records at one position repeat a key and its op. The positions must never fall."""
    numbers = found.numbers
    for row in found.rows[(numbers == np.array(highest)).all(axis=1)].tolist() if at_highest else ():
        if digest(_key(keys, row), Op(ops[row])) in at_highest:
            return True
    is_equal = np.concatenate(([False], (numbers[1:] == numbers[:-1]).all(axis=1)))
    if not is_equal.any():
        return False
    shares = is_equal | np.concatenate((is_equal[1:], [False]))
    rows, runs = found.rows[shares], np.cumsum(~is_equal)[shares]
    own = keys.take(pa.array(rows)).dictionary_encode()
    numbers_of_keys = own.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    codes = (runs * len(own.dictionary) + numbers_of_keys) * 4 + ops[rows]
    return len(np.unique(codes)) < len(codes)
