"""How far the logs of databases have come in each upstream partition, where records may be redelivered.

What a plan holds of it decides which records of a batch are new. Lanes see their own keys alone: where none of them has
met a position that falls, what they have seen is put together here. Where one has, all records of the batch were judged
in their order (`streaming.core.cdc.redelivery`), and that is what counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from schemas.codec.logs import LONG_MAX, POSTGRESQL, LogId, Position, is_of_snapshot
from schemas.records import Op


@dataclass(frozen=True, slots=True)
class Mark:
    """Of one log in one partition: the highest position of its records, and the latest time of the database's clock.

    `highest` is None where no record has set it since a new snapshot. `at_highest` are digests of the records at this
    position: few, the rows of one page at most. `may_fall`: a new snapshot was read, and no record has
    come since, so the next one may begin the log anew. `last` is the last position in an interval that goes on.
    """

    highest: Position | None = None
    at_highest: frozenset[str] = frozenset()
    latest_ms: int | None = None
    may_fall: bool = False
    last: Position | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one upstream partition, up to some offset.

    `dropped` is the digest of a key: that of the last record, if this is a redelivered delete. Its tombstone is still
    to come. `snapshots` are those whose rows came in an interval that goes on, by `LogId` without an origin. `former`
    is what earlier versions knew: a position, and digests of the records at it, of no log by name.
    """

    marks: Mapping[LogId, Mark] = field(default_factory=dict)
    dropped: str | None = None
    snapshots: frozenset[LogId] = frozenset()
    former: tuple[Position, frozenset[str]] | None = None

    def mark(self, log: LogId) -> Mark:
        """What is known of a log. A position of an earlier version stands for any log of PostgreSQL."""
        known = self.marks.get(log)
        if known is None and self.former is not None and log.connector == POSTGRESQL:
            return Mark(*self.former, LONG_MAX)
        return known or Mark()

    def to_list(self) -> list[Any]:
        """As JSON has it."""
        if self.former is not None and not self.marks:
            position, at_highest = self.former
            return [*position, self.dropped, *sorted(at_highest)]
        return [
            {"dropped": self.dropped, "snapshots": sorted(map(list, self.snapshots))},
            *([log, *_mark_to_list(mark)] for log, mark in self.marks.items()),
        ]

    @classmethod
    def from_list(cls, raw: Sequence[Any]) -> Seen:
        """From what `to_list` gave, or what it gave before each log had marks of its own."""
        if not isinstance(raw[0], dict):
            commit, lsn, dropped, *at_highest = raw
            return cls(dropped=dropped, former=((commit, lsn), frozenset(at_highest)))
        head, *marks = raw
        return cls(
            {LogId(*log): _mark_from_list(mark) for log, *mark in marks},
            head["dropped"],
            frozenset(LogId(*each) for each in head["snapshots"]),
        )


def _mark_to_list(mark: Mark) -> list[Any]:
    return [mark.highest, sorted(mark.at_highest), mark.latest_ms, mark.may_fall, mark.last]


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
    """Of one log, what a lane has seen in a batch; `last` is its last record, in which interval, at what offset."""

    highest: Position
    at_highest: frozenset[str]
    latest_ms: int | None
    last: Position
    interval: int
    offset: int


@dataclass(frozen=True, slots=True)
class LaneSeen:
    """What one lane has seen of a partition in a batch, none of it redelivered.

    `snapshots`: by the `LogId` of their rows, the last interval of the batch that had any. `judged` instead of all
    that: what the partition's records came to, those of all lanes.
    """

    marks: Mapping[LogId, LaneMark] = field(default_factory=dict)
    snapshots: Mapping[LogId, int] = field(default_factory=dict)
    judged: Seen | None = None


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

    `closed` is how many intervals the batch closes: the records of a part of an interval belong to one that goes on.
    None: all of them.
    """
    found: dict[int, list[LaneSeen]] = {}
    for lane in lanes:
        for partition, each in lane.items():
            found.setdefault(partition, []).append(each)
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
        """Counts what came in the snapshot's interval and later: the log may have been begun anew in it."""
        counted = [each for each in found if each.interval >= interval]
        last_before = known.last if interval == 0 else None
        start = last_before, known.at_highest if last_before == known.highest else frozenset[str]()
        highest, at_highest = _highest(log, start, counted)
        may_fall = not any(each.interval > interval for each in counted)
        return Mark(highest, at_highest, latest, may_fall, last)


def _highest(
    log: LogId, start: tuple[Position | None, frozenset[str]], found: Sequence[LaneMark]
) -> tuple[Position | None, frozenset[str]]:
    """The highest position and what stands there: but where the last record lies below it, the log has begun anew."""
    known = [(each.highest, each.at_highest) for each in found] + ([] if start[0] is None else [start])
    highest = max((position for position, _ in known if position is not None), default=None)
    last = max(found, key=lambda each: each.offset, default=None)
    if last is not None and highest is not None and log.is_lower(last.last, highest):
        highest = last.last
    at = (digests for position, digests in known if position == highest)
    return highest, frozenset[str]().union(*at)
