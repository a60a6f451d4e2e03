"""Redelivered records of an upstream, found one by one in their order (docs/debezium.md#redelivered-records).

A connector that is started again sends the end of its stream a second time. Of each log a partition has the highest
position and the latest time seen. A record with a lower position is redelivered if its time is not later: then it is
dropped. If it is later, the log has begun anew: behind a new snapshot, at another server. Such a record is taken, and
the highest position begins anew with it. Without other evidence than the record, it needs the operator's consent.

`Redelivery` is fed all records of a batch, because lanes see their own keys alone: it decides which records lanes drop
once one of them has met a position that falls. It holds no record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from schemas.codec.logs import LONG_MAX, LogId, LogPosition, Position, is_of_snapshot, position_text
from schemas.records import Op
from state.values.seen import Mark, Seen, digest, later


class Logged(NamedTuple):
    """The fields of an upstream record that decide. `key` is encoded; `position` is that in its database's log."""

    partition: int
    offset: int
    key: bytes
    op: Op
    position: LogPosition | None


class Why(StrEnum):
    """Reasons for taking a record whose position is lower than that of an earlier one."""

    GTIDS = "the log has GTIDs"
    SNAPSHOT = "a new snapshot was read"
    ACCEPTED = "it was accepted"


@dataclass(frozen=True, slots=True)
class Fall:
    """A record with a lower position and a later time than seen before. `why` None: nothing allows it."""

    partition: int
    offset: int
    log: LogId
    highest: Position
    position: Position
    why: Why | None = None

    @property
    def found(self) -> str:
        """A description for people."""
        return (
            f"a change of {self.log} at position {position_text(self.position)}, later than all before it and "
            f"below the highest position seen, {position_text(self.highest)}"
        )


@dataclass(frozen=True, slots=True)
class DroppedRun:
    """Records of one log and partition that were dropped, with none of the log between them that was not."""

    partition: int
    log: LogId
    count: int
    first_offset: int
    last_offset: int
    first: Position
    last: Position


@dataclass(frozen=True)
class Judgement:
    """The result for the records of a batch. `dropped`: by partition, ranges of offsets, both ends included.

    `falls` were taken; `seen` is the state of the partitions behind the batch; `snapshots` are new ones of logs that
    were known before.
    """

    dropped: Mapping[int, Sequence[tuple[int, int]]]
    runs: Sequence[DroppedRun]
    falls: Sequence[Fall]
    snapshots: Sequence[LogId]
    seen: Mapping[int, Seen]


Accepts = Callable[[Fall], bool]
"""Returns True if the operator lets a log begin anew."""


@dataclass
class _JudgedLog:
    """A log in one partition; the fields of `Mark`, and digests at its last position."""

    highest: Position | None
    at_highest: set[str]
    latest_ms: int | None
    may_fall: bool
    last: Position | None
    at_last: frozenset[str] = frozenset()
    run: list[tuple[int, Position]] = field(default_factory=list)
    """First and last of the records that are being dropped, with their offsets."""
    run_count: int = 0
    was_known: bool = False
    """True if it had a highest position when the interval began."""

    @classmethod
    def of_mark(cls, mark: Mark) -> _JudgedLog:
        at_last = mark.at_highest if mark.last == mark.highest else frozenset[str]()
        own = cls(mark.highest, set(mark.at_highest), mark.latest_ms, mark.may_fall, mark.last, at_last)
        own.was_known = mark.highest is not None
        return own

    def mark(self) -> Mark:
        return Mark(
            self.highest, frozenset(self.at_highest), _known(self.latest_ms), self.may_fall, self.last
        )


@dataclass
class _Partition:
    before: Seen
    logs: dict[LogId, _JudgedLog] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    """Digests of keys whose last record is a delete that was dropped."""
    last_dropped: str | None = None
    dropped: list[tuple[int, int]] = field(default_factory=list)
    is_dropping: bool = False

    def log(self, log: LogId) -> _JudgedLog:
        known = self.logs.get(log)
        if known is None:
            known = self.logs[log] = _JudgedLog.of_mark(self.before.mark(log))
        return known


class Redelivery:
    """Judges the records behind `seen`: call `is_new` for each, in the order of its partition, then `end_interval`.

    Intervals come one after another, in each any partition first. Only records that change a row are given.
    """

    def __init__(self, seen: Mapping[int, Seen], accepts: Accepts) -> None:
        self._seen, self._accepts = seen, accepts
        self._partitions = dict[int, _Partition]()
        for number, each in seen.items():
            self._partition(number, each)
        self._snapshots = {row for each in seen.values() for row in each.snapshots}
        self._of_partition: dict[int, set[LogId]] = {n: set(each.snapshots) for n, each in seen.items()}
        self._reported, self._runs = list[LogId](), list[DroppedRun]()
        self._falls, self._unexplained = list[Fall](), list[Fall]()

    @property
    def needs_consent(self) -> bool:
        """True if a record of the interval was taken that only a row of a snapshot, or the operator, allows."""
        return bool(self._unexplained)

    def is_new(self, record: Logged) -> bool:
        """Take a record; False if it is redelivered, or the tombstone of a redelivered delete."""
        known = self._partition(record.partition)
        where = record.position
        if where is not None and where.position is None:
            self._report_snapshot(known, where.log)
            self.snapshot(record.partition, where.log)
        is_dropped = (
            where is not None and where.position is not None and self._is_redelivered(known, record, where)
        )
        key = digest(record.key) if known.deleted or is_dropped else ""
        if where is None and record.op is Op.DELETE and key in known.deleted:
            is_dropped = True
        elif is_dropped and record.op is Op.DELETE:
            known.deleted.add(key)
            known.last_dropped = key
            self._drop(known, record)
            return False
        known.deleted.discard(key)
        known.last_dropped = None
        if is_dropped:
            self._drop(known, record)
        else:
            known.is_dropping = False
        return not is_dropped

    def snapshot(self, partition: int, row: LogId) -> None:
        """Note a row of a snapshot in the interval."""
        self._snapshots.add(row)
        self._of_partition.setdefault(partition, set()).add(row)

    def end_interval(self) -> Fall | None:
        """Close the interval. Returns the first record in it that nothing allows: then nothing else is decided."""
        fall = self._settle()
        if fall is not None:
            return fall
        for known in self._partitions.values():
            for log, each in known.logs.items():
                row = next((row for row in self._snapshots if is_of_snapshot(row, log)), None)
                if row is not None:
                    each.highest, each.at_highest = each.last, set(each.at_last if each.last else ())
                    each.may_fall = True
                each.last, each.at_last, each.was_known = None, frozenset(), each.highest is not None
        self._snapshots.clear()
        self._of_partition.clear()
        return None

    def end_part(self) -> Fall | None:
        """End a part of an interval that goes on behind the last record; returns as `end_interval`."""
        return self._settle()

    def judgement(self) -> Judgement:
        """The result. Call it after the last record."""
        for number, known in self._partitions.items():
            for log, each in known.logs.items():
                self._end_run(number, log, each)
        return Judgement(
            dropped={number: known.dropped for number, known in self._partitions.items() if known.dropped},
            runs=self._runs,
            falls=self._falls,
            snapshots=self._reported,
            seen={number: self._seen_after(number, known) for number, known in self._partitions.items()},
        )

    def _partition(self, number: int, before: Seen | None = None) -> _Partition:
        known = self._partitions.get(number)
        if known is None:
            known = self._partitions[number] = _Partition(before or Seen())
            known.last_dropped = known.before.dropped
            known.deleted |= {known.before.dropped} if known.before.dropped else set()
            for log in known.before.marks:
                known.log(log)
        return known

    def _seen_after(self, number: int, known: _Partition) -> Seen:
        snapshots = frozenset(self._of_partition.get(number, ()))
        marks = {log: each.mark() for log, each in known.logs.items()}
        return Seen(marks, known.last_dropped, snapshots, known.before.former if not marks else None)

    def _report_snapshot(self, known: _Partition, row: LogId) -> None:
        if row in self._reported:
            return
        own = (each.highest is not None for log, each in known.logs.items() if is_of_snapshot(row, log))
        others = (
            each.was_known
            for partition in self._partitions.values()
            for log, each in partition.logs.items()
            if is_of_snapshot(row, log)
        )
        if any(own) or any(others):
            self._reported.append(row)

    def _is_redelivered(self, known: _Partition, record: Logged, where: LogPosition) -> bool:
        log, position = where.log, where.position
        assert position is not None
        each = known.log(log)
        is_later = where.ts_ms is not None and (each.latest_ms is None or where.ts_ms > each.latest_ms)
        if each.highest is not None and log.is_lower(position, each.highest):
            if not is_later:
                self._count_dropped(each, record.offset, position)
                return True
            self._fall(Fall(record.partition, record.offset, log, each.highest, position), each)
            each.highest, each.at_highest = position, set()
        elif position == each.highest and not log.has_gtids:
            if not is_later and digest(record.key, record.op) in each.at_highest:
                self._count_dropped(each, record.offset, position)
                return True
        elif each.highest is None or position > each.highest:
            each.highest, each.at_highest = position, set()
        self._end_run(record.partition, log, each)
        each.latest_ms = later(_known(each.latest_ms), where.ts_ms)
        self._keep(each, record, position)
        return False

    def _keep(self, each: _JudgedLog, record: Logged, position: Position) -> None:
        each.may_fall = False
        own = digest(record.key, record.op)
        if position == each.highest:
            each.at_highest.add(own)
        each.at_last = each.at_last | {own} if position == each.last else frozenset((own,))
        each.last = position

    def _fall(self, fall: Fall, each: _JudgedLog) -> None:
        if fall.log.has_gtids:
            self._falls.append(_allowed(fall, Why.GTIDS))
        elif each.may_fall:
            self._falls.append(_allowed(fall, Why.SNAPSHOT))
        else:
            self._unexplained.append(fall)

    def _settle(self) -> Fall | None:
        for fall in self._unexplained:
            if any(is_of_snapshot(row, fall.log) for row in self._snapshots):
                self._falls.append(_allowed(fall, Why.SNAPSHOT))
            elif self._accepts(fall):
                self._falls.append(_allowed(fall, Why.ACCEPTED))
            else:
                return fall
        self._unexplained.clear()
        return None

    def _drop(self, known: _Partition, record: Logged) -> None:
        if known.is_dropping:
            known.dropped[-1] = known.dropped[-1][0], record.offset
        else:
            known.dropped.append((record.offset, record.offset))
        known.is_dropping = True

    def _count_dropped(self, each: _JudgedLog, offset: int, position: Position) -> None:
        if each.run:
            each.run[1:] = [(offset, position)]
        else:
            each.run = [(offset, position)]
        each.run_count += 1

    def _end_run(self, partition: int, log: LogId, each: _JudgedLog) -> None:
        if each.run:
            first, last = each.run[0], each.run[-1]
            self._runs.append(
                DroppedRun(partition, log, each.run_count, first[0], last[0], first[1], last[1])
            )
            each.run, each.run_count = [], 0


def _known(latest_ms: int | None) -> int | None:
    """None for `LONG_MAX`, which stands for any time, see `Seen.mark`."""
    return None if latest_ms == LONG_MAX else latest_ms


def _allowed(fall: Fall, why: Why) -> Fall:
    return Fall(fall.partition, fall.offset, fall.log, fall.highest, fall.position, why)
