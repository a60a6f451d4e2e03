"""Records that come again: a connector that is started again sends the end of its stream a second time.

A change of PostgreSQL stands at a position that only rises in a partition (`schemas.records.UpstreamRecord`), so a
record below the highest position seen has come before, and so has one at that position that repeats its key and its op.
Others may share it: both halves of a change of key, the rows of one COPY. What came before stood in the same lane, as
its key is the same; so a lane goes by its own records, and by what all lanes had seen when the batch began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.records import Op
from state.values.seen import LaneSeen, Position, Seen, digest
from streaming.lane.before.normal import KeyOrder
from streaming.lane.changes import Bools, Changes
from streaming.source.decoded import POSITION

_Indices = npt.NDArray[np.int64]


@dataclass
class _Partition:
    """What a lane knows of an upstream partition. `at_top` are digests of the records at the highest position."""

    top: Position
    at_top: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    """Digests of keys whose last record is a delete that came again."""
    last: LaneSeen | None = None


class RedeliveryFilter:
    """Leaves out redelivered records of one lane and batch; call it with each part, in order."""

    def __init__(self, start: Mapping[int, Seen]) -> None:
        self._start, self._partitions = start, dict[int, _Partition]()
        self.count = 0
        """How many records were left out."""

    @property
    def seen(self) -> dict[int, LaneSeen]:
        """By partition, where the lane had records."""
        return {number: each.last for number, each in self._partitions.items() if each.last is not None}

    def __call__(self, changes: Changes, keys: pa.Array) -> Changes:
        """The changes without those that came again; `keys` are their encoded keys. All must be sound."""
        if not len(changes):
            return changes
        order = KeyOrder.of(keys)
        dropped = np.zeros(len(changes), np.bool_)
        partitions = changes.partitions
        for number in np.unique(partitions).tolist():
            self._look(number, np.flatnonzero(partitions == number), changes, order, dropped)
        self.count += int(dropped.sum())
        return changes.filtered(~dropped) if dropped.any() else changes

    def _look(self, number: int, rows: _Indices, changes: Changes, order: KeyOrder, dropped: Bools) -> None:
        """Mark in `dropped` the redelivered records of one partition, and update what is known of it."""
        known = self._partitions.get(number)
        if known is None:
            start = self._start.get(number, Seen((-1, -1)))
            dropped_before = {start.dropped} if start.dropped else set()
            known = _Partition(start.position, set(start.at_top), dropped_before)
            self._partitions[number] = known
        places = _positions(changes, rows)
        dropped[rows] = _again(places, known, order.number[rows], changes.ops[rows], order)
        _drop_tombstones(rows[~places.is_set], changes, order, known, dropped)
        self._keep(known, rows, places, changes, order, dropped)

    def _keep(
        self,
        known: _Partition,
        rows: _Indices,
        places: _Positions,
        changes: Changes,
        order: KeyOrder,
        dropped: Bools,
    ) -> None:
        top = places.highest(known.top)
        if top != known.top:
            known.top, known.at_top = top, set()
        at_top = rows[places.is_set & (places.commit == top[0]) & (places.lsn == top[1])]
        known.at_top |= {digest(order.key(row), Op(changes.ops[row])) for row in at_top.tolist()}
        if known.dropped:
            known.dropped -= {digest(order.key(row)) for row in rows[order.previous[rows] < 0].tolist()}
        lasts = rows[order.last[order.number[rows]] == rows]
        is_open = dropped[lasts] & (changes.ops[lasts] == Op.DELETE) & np.isin(lasts, rows[places.is_set])
        known.dropped |= {digest(order.key(row)) for row in lasts[is_open].tolist()}
        end = int(rows[-1])
        its_own = digest(order.key(end)) if end in lasts[is_open] else None
        seen = Seen(top, its_own, frozenset(known.at_top))
        known.last = LaneSeen(seen, int(changes.offsets[end])) if top != (-1, -1) else None


@dataclass(frozen=True, slots=True)
class _Positions:
    """The positions of n records of a partition. Where `is_set` is False the numbers are arbitrary."""

    is_set: Bools
    commit: _Indices
    lsn: _Indices

    def highest(self, other: Position) -> Position:
        """The highest of these positions and another one."""
        if not self.is_set.any():
            return other
        commit, lsn = self.commit[self.is_set], self.lsn[self.is_set]
        top = int(commit.max())
        return max(other, (top, int(lsn[commit == top].max())))

    def ranks(self, other: Position) -> tuple[_Indices, int]:
        """Numbers in the order of the positions, and that of another one."""
        commit, lsn = np.append(self.commit, other[0]), np.append(self.lsn, other[1])
        by_place = np.lexsort((lsn, commit))
        rises = np.ones(len(by_place), np.int64)
        rises[0] = 0
        rises[1:] = (np.diff(commit[by_place]) != 0) | (np.diff(lsn[by_place]) != 0)
        ranks = np.empty(len(by_place), np.int64)
        ranks[by_place] = np.cumsum(rises)
        return ranks[:-1], int(ranks[-1])


def _positions(changes: Changes, rows: _Indices) -> _Positions:
    found = changes.rows[POSITION].combine_chunks().take(pa.array(rows))
    commit, lsn = (pc.fill_null(pc.struct_field(found, name), -1).to_numpy() for name in ("commit", "lsn"))
    return _Positions(np.asarray(pc.is_valid(found), dtype=np.bool_), commit, lsn)


def _again(
    places: _Positions, known: _Partition, keys: _Indices, ops: npt.NDArray[np.int8], order: KeyOrder
) -> Bools:
    ranks, start = places.ranks(known.top)
    counted = np.where(places.is_set, ranks, -1)
    before = np.maximum(np.concatenate(([-1], np.maximum.accumulate(counted)[:-1])), start)
    below = places.is_set & (ranks < before)
    # A repetition stands at the place of what it repeats; one further down is below by then.
    code = (ranks * (len(order.distinct) + 1) + keys) * 4 + ops
    firsts = np.zeros(len(code), np.bool_)
    set_rows = np.flatnonzero(places.is_set)
    firsts[set_rows[np.unique(code[set_rows], return_index=True)[1]]] = True
    repeated = places.is_set & ~firsts
    for row in np.flatnonzero(places.is_set & (ranks == start)).tolist() if known.at_top else ():
        key = bytes(order.distinct[int(keys[row])].as_py())
        repeated[row] |= digest(key, Op(ops[row])) in known.at_top
    return np.asarray(below | repeated, dtype=np.bool_)


def _drop_tombstones(
    rows: _Indices, changes: Changes, order: KeyOrder, known: _Partition, dropped: Bools
) -> None:
    """The first record without a value behind a delete that is dropped belongs to it."""
    deletes = rows[changes.ops[rows] == Op.DELETE]
    previous = order.previous[deletes]
    behind = (previous >= 0) & dropped[previous] & (changes.ops[previous] == Op.DELETE)
    has_position = np.asarray(pc.is_valid(changes.rows[POSITION]), dtype=np.bool_)
    behind &= has_position[previous]
    if known.dropped:
        for place in np.flatnonzero(previous < 0).tolist():
            behind[place] = digest(order.key(int(deletes[place]))) in known.dropped
    dropped[deletes[behind]] = True
