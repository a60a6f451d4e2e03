"""State of each upstream partition: positions of databases' logs, and columns that frames of its records have had.

A plan holds it. The positions, where records may be redelivered, decide which records of a batch are new. Lanes see
their own keys alone: where none of them has met a position that falls, what they have seen is merged here. Where one
has, all records of the batch were judged in their order (`streaming.core.redelivery`), and that result counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from schemas.codec.logs import LONG_MAX, POSTGRESQL, LogId, Position, is_of_snapshot
from schemas.records import Op


@dataclass(frozen=True, slots=True)
class Mark:
    """Of one log in one partition: the highest position of its records, and the latest time of the database's clock.

    `highest` is None where no record has set it since a new snapshot. `at_highest` are digests of the records at this
    position: few, the rows of one page at most. `may_fall`: a new snapshot was read, and no record followed yet, so the
    next one may begin the log anew with a lower position. `last` is the last position in an interval that goes on.
    """

    highest: Position | None = None
    at_highest: frozenset[str] = frozenset()
    latest_ms: int | None = None
    may_fall: bool = False
    last: Position | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one upstream partition, up to some offset.

    `dropped` is the digest of the last record's key, if that was a redelivered delete, whose tombstone follows.
    `snapshots` are those with rows in an interval that goes on, by `LogId` without an origin. `former` comes from
    earlier versions of the service: a position, and digests of the records at it, without the name of a log.
    `columns` are those that some frame of a record has had.
    """

    marks: Mapping[LogId, Mark] = field(default_factory=dict)
    dropped: str | None = None
    snapshots: frozenset[LogId] = frozenset()
    former: tuple[Position, frozenset[str]] | None = None
    columns: frozenset[str] = frozenset()

    def mark(self, log: LogId) -> Mark:
        """The mark of a log. A position of an earlier version stands for any log of PostgreSQL."""
        known = self.marks.get(log)
        if known is None and self.former is not None and log.connector == POSTGRESQL:
            return Mark(*self.former, LONG_MAX)
        return known or Mark()

    def to_list(self) -> list[Any]:
        """JSON values, which `from_list` reads back; without the columns, which are mostly those of all partitions."""
        if self.former is not None and not self.marks:
            position, at_highest = self.former
            return [*position, self.dropped, *sorted(at_highest)]
        return [
            {"dropped": self.dropped, "snapshots": sorted(map(list, self.snapshots))},
            *(
                [log, mark.highest, sorted(mark.at_highest), mark.latest_ms, mark.may_fall, mark.last]
                for log, mark in self.marks.items()
            ),
        ]

    @classmethod
    def from_list(cls, raw: Sequence[Any]) -> Seen:
        """Read what `to_list` gave, also that of versions without a mark for each log."""
        if not isinstance(raw[0], dict):
            commit, lsn, dropped, *at_highest = raw
            return cls(dropped=dropped, former=((commit, lsn), frozenset(at_highest)))
        head, *marks = raw
        return cls(
            {LogId(*log): _mark_from_list(mark) for log, *mark in marks},
            head["dropped"],
            frozenset(LogId(*each) for each in head["snapshots"]),
        )


def _mark_from_list(raw: Sequence[Any]) -> Mark:
    highest, at_highest, latest_ms, may_fall, last = raw
    return Mark(
        None if highest is None else tuple(highest),
        frozenset(at_highest),
        latest_ms,
        may_fall,
        None if last is None else tuple(last),
    )


@dataclass(frozen=True, slots=True)
class LaneMark:
    """The records of one log that a lane has seen in a batch; `last` is the last one's position, then its location."""

    highest: Position
    at_highest: frozenset[str]
    latest_ms: int | None
    last: Position
    interval: int
    offset: int


@dataclass(frozen=True, slots=True)
class LaneSeen:
    """The records of a partition that one lane has seen in a batch, none of them redelivered.

    `snapshots`: by the `LogId` of their rows, the last interval of the batch that had any. `judged`, in place of both:
    the partition's state after the records of all lanes. `columns`: those that frames of its records have.
    """

    marks: Mapping[LogId, LaneMark] = field(default_factory=dict)
    snapshots: Mapping[LogId, int] = field(default_factory=dict)
    judged: Seen | None = None
    columns: frozenset[str] = frozenset()


def without_columns(before: Mapping[int, Seen], names: Iterable[str]) -> dict[int, Seen]:
    """The state as if no frame had had these columns."""
    return {
        partition: replace(seen, columns=seen.columns.difference(names)) for partition, seen in before.items()
    }


def digest(key: bytes, op: Op | None = None) -> str:
    """A digest of an encoded key, or of a key and an op. Plans hold it, and nothing of the key itself."""
    return blake2b(key, digest_size=12, salt=b"" if op is None else op.name.encode()).hexdigest()


def later(one: int | None, other: int | None) -> int | None:
    """The later of two times, each of which may be unknown."""
    return one if other is None or (one is not None and one >= other) else other


def merged(
    before: Mapping[int, Seen], lanes: Iterable[Mapping[int, LaneSeen]], closed: int | None = None
) -> dict[int, Seen]:
    """`before`, brought forward by what all lanes have seen in a batch.

    `closed` is the number of intervals that the batch closes, None for all of them: the records of a part of an
    interval belong to one that goes on.
    """
    found: dict[int, list[LaneSeen]] = {}
    for lane in lanes:
        for partition, each in lane.items():
            found.setdefault(partition, []).append(each)
    return {
        partition: replace(
            after,
            columns=before.get(partition, Seen()).columns.union(
                *(each.columns for each in found.get(partition, ()))
            ),
        )
        for partition, after in _brought_forward(before, found, closed).items()
    }


def _brought_forward(
    before: Mapping[int, Seen], found: Mapping[int, Sequence[LaneSeen]], closed: int | None
) -> dict[int, Seen]:
    judged = {p: one.judged for p, each in found.items() for one in each if one.judged is not None}
    if judged:
        return {**before, **judged}
    snapshots: dict[LogId, int] = {row: 0 for seen in before.values() for row in seen.snapshots}
    for each in (each for several in found.values() for each in several):
        for row, interval in each.snapshots.items():
            snapshots[row] = max(interval, snapshots.get(row, 0))
    merging = _Merging(snapshots, closed)
    partitions = before.keys() | found.keys()
    return {each: merging.seen(before.get(each, Seen()), found.get(each, [])) for each in sorted(partitions)}


@dataclass(frozen=True, slots=True)
class _Merging:
    """`snapshots`: the last interval with rows of each, in whatever partition."""

    snapshots: Mapping[LogId, int]
    closed: int | None

    def seen(self, before: Seen, lanes: Sequence[LaneSeen]) -> Seen:
        marks = dict[LogId, Mark]()
        for log in dict.fromkeys([*before.marks, *(log for lane in lanes for log in lane.marks)]):
            found = [lane.marks[log] for lane in lanes if log in lane.marks]
            marks[log] = self._mark(log, before, found)
        rows = {row for lane in lanes for row, interval in lane.snapshots.items() if self._goes_on(interval)}
        return Seen(
            marks,
            None if lanes else before.dropped,
            frozenset(rows | (before.snapshots if self.closed == 0 else set())),
            None if lanes else before.former,
        )

    def _goes_on(self, interval: int) -> bool:
        return self.closed is not None and interval >= self.closed

    def _mark(self, log: LogId, before: Seen, found: Sequence[LaneMark]) -> Mark:
        known = before.marks.get(log, Mark())
        at = [interval for row, interval in self.snapshots.items() if is_of_snapshot(row, log)]
        latest = known.latest_ms
        for each in found:
            latest = later(latest, each.latest_ms)
        last = max(found, key=lambda each: each.offset, default=None)
        own_last = known.last if self.closed == 0 else None
        if last is not None:
            own_last = last.last if self._goes_on(last.interval) else None
        if at and not self._goes_on(max(at)):
            return self._behind_snapshot(log, known, max(at), found, latest, own_last)
        start = before.mark(log)
        highest, at_highest = _highest(log, (start.highest, start.at_highest), found)
        return Mark(highest, at_highest, latest, known.may_fall and not found, own_last)

    def _behind_snapshot(
        self,
        log: LogId,
        known: Mark,
        interval: int,
        found: Sequence[LaneMark],
        latest: int | None,
        last: Position | None,
    ) -> Mark:
        """Counts records of the snapshot's interval and later ones alone: the log may have begun anew in it."""
        counted = [each for each in found if each.interval >= interval]
        last_before = known.last if interval == 0 else None
        start = last_before, known.at_highest if last_before == known.highest else frozenset[str]()
        highest, at_highest = _highest(log, start, counted)
        may_fall = not any(each.interval > interval for each in counted)
        return Mark(highest, at_highest, latest, may_fall, last)


def _highest(
    log: LogId, start: tuple[Position | None, frozenset[str]], found: Sequence[LaneMark]
) -> tuple[Position | None, frozenset[str]]:
    """The highest position, and the digests at it; the last one's, if that is lower: then the log has begun anew."""
    known = [(each.highest, each.at_highest) for each in found] + ([] if start[0] is None else [start])
    highest = max((position for position, _ in known if position is not None), default=None)
    last = max(found, key=lambda each: each.offset, default=None)
    if last is not None and highest is not None and log.is_lower(last.last, highest):
        highest = last.last
    at = (digests for position, digests in known if position == highest)
    return highest, frozenset[str]().union(*at)


Marks = Mapping[int, Seen]
"""By upstream partition; one of which nothing was seen is missing."""
_COLUMNS = "columns"


def marks_to_dict(marks: Marks) -> dict[str, Any]:
    """JSON values, which `marks_from_dict` reads back. Columns are there once for all partitions that have the same."""
    having: dict[tuple[str, ...], list[int]] = {}
    for number, seen in marks.items():
        if seen.columns:
            having.setdefault(tuple(sorted(seen.columns)), []).append(number)
    own = {str(number): seen.to_list() for number, seen in marks.items()}
    return {**own, _COLUMNS: list(having.items())} if having else own


def marks_from_dict(raw: Mapping[str, Any]) -> dict[int, Seen]:
    """Read what `marks_to_dict` gave."""
    marks = {int(number): Seen.from_list(each) for number, each in raw.items() if number != _COLUMNS}
    for names, numbers in raw.get(_COLUMNS, ()):
        marks |= {number: replace(marks[number], columns=frozenset(names)) for number in numbers}
    return marks
