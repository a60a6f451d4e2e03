"""The order of changes: those that are redelivered, and those of a key that come from several partitions.

Two rules written a second time: docs/debezium.md#redelivered-records, which shares nothing with what the service goes
by (`streaming.core.redelivery`, `streaming.lane.redelivered`), and keeps no digests; and
docs/contract.md#partitions-that-are-added, for a topic that has gained some (`streaming.lane.changes`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from schemas.records import Op
from streaming.reading.entries import TopicEntry
from streaming.reading.records.logs import LogName, LogOffset, PlaceInLog


@dataclass(frozen=True, slots=True)
class WentBack:
    """A record that was taken though one before it has a higher position in its log."""

    log: LogName
    highest: LogOffset
    position: LogOffset

    def __str__(self) -> str:
        position, highest = ("/".join(map(str, each)) for each in (self.position, self.highest))
        return f"{self.log} went back from position {highest} to {position}"


@dataclass
class _LogState:
    highest: LogOffset | None = None
    at_highest: set[tuple[Hashable, Op]] = field(default_factory=set)
    latest_ms: int | None = None
    last: LogOffset | None = None
    at_last: set[tuple[Hashable, Op]] = field(default_factory=set)


class RedeliveryRule:
    """Call `drops` for each change of the partition in order, and `end_interval` at each barrier."""

    def __init__(self) -> None:
        self._logs: dict[LogName, _LogState] = {}
        self._deleted: set[Hashable] = set()
        self.snapshots: set[LogName] = set()
        """Rows of snapshots in the interval, by their logs without an origin."""
        self.went_back: WentBack | None = None
        """The fall of positions in spite of which the last record was taken; None without one."""

    def drops(self, key: Hashable, op: Op, where: PlaceInLog | None) -> bool:
        """True where the change of this key is redelivered, or is the tombstone of such a delete."""
        self.went_back = None
        if where is not None and where.position is None:
            self.snapshots.add(where.log)
        is_again = where is not None and where.position is not None and self._is_again(key, op, where)
        is_tombstone = where is None and op is Op.DELETE and key in self._deleted
        self._deleted.discard(key)
        if is_again and op is Op.DELETE:
            self._deleted.add(key)
        return is_again or is_tombstone

    def end_interval(self, snapshots: Collection[LogName] = ()) -> None:
        """At a barrier. `snapshots`: rows of snapshots that stand in the interval in other partitions."""
        rows = self.snapshots | set(snapshots)
        for log, known in self._logs.items():
            if any(log.is_named_by(row) for row in rows):
                known.highest, known.at_highest = known.last, known.at_last
            known.last, known.at_last = None, set()
        self.snapshots = set()

    def _is_again(self, key: Hashable, op: Op, where: PlaceInLog) -> bool:
        log, position, ts_ms = where.log, where.position, where.ts_ms
        assert position is not None
        known = self._logs.setdefault(log, _LogState())
        is_later = ts_ms is not None and (known.latest_ms is None or ts_ms > known.latest_ms)
        if known.highest is not None and log.is_lower(position, known.highest):
            if not is_later:
                return True
            self.went_back = WentBack(log, known.highest, position)
            known.highest, known.at_highest = position, set()
        elif known.highest is None or position > known.highest:
            known.highest, known.at_highest = position, set()
        elif (
            position == known.highest and not log.has_gtids and not is_later and (key, op) in known.at_highest
        ):
            return True
        if position == known.highest:
            known.at_highest.add((key, op))
        if position != known.last:
            known.last, known.at_last = position, set()
        known.at_last.add((key, op))
        if is_later:
            known.latest_ms = ts_ms
        return False


class _InTopic(Protocol):
    partition: int


Of = TypeVar("Of", bound=_InTopic)


def moved_in_order(held: Sequence[tuple[Of, TopicEntry]]) -> list[tuple[Of, TopicEntry]]:
    """The changes of an interval, each with its partition, given partition by partition.

    Changes of such a key take the places of all of them, in their order; all others stay where they are.
    """
    places: dict[bytes | None, list[int]] = {}
    for place, (_, entry) in enumerate(held):
        places.setdefault(entry.row_key, []).append(place)
    found = list(held)
    for key, own in places.items():
        queues: dict[int, list[tuple[Of, TopicEntry]]] = {}
        for place in own:
            queues.setdefault(held[place][0].partition, []).append(held[place])
        if key is None or len(queues) == 1:
            continue
        for place in own:
            waiting = [queue for queue in queues.values() if queue]
            first = waiting[0]
            for other in waiting[1:]:
                if _is_before(other[0][1], first[0][1]):
                    first = other
            found[place] = first.pop(0)
    return found


def _is_before(one: TopicEntry, other: TopicEntry) -> bool:
    """True if a record of a higher partition comes first."""
    here, there = one.place, other.place
    if here and there and here.log == there.log and here.position and there.position:
        if here.log.is_lower(here.position, there.position):
            return True
        if here.log.is_lower(there.position, here.position):
            return False
    return one.time_ms < other.time_ms
