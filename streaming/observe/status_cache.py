"""The status of a running service, kept in memory for the page, the API and the metrics.

`note` is called by the stream's thread after each batch and costs microseconds; `status`, `vnodes` and `history` are
called by any thread and see one batch's end, never half of one. Nothing here can disturb the service.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TypeVar

from schemas.epoch import unix_ms_from_epoch
from schemas.records import Barrier
from schemas.table import Column
from state.replica import ReplicaFiles
from state.small_files import SentCount
from streaming.control.state_view import JobView
from streaming.control.suspended import meaning_of, new_field, skippable, ways_on
from streaming.core.clocks import Age
from streaming.core.forecast import Forecast, JobsProgress, Rate
from streaming.observe.hour import Behind, History, JobRecords, Span, job_status, vnode_status
from streaming.observe.models import (
    ApiModel,
    CopyingStatus,
    DiskStatus,
    EndStatus,
    EventStatus,
    FieldsStatus,
    JobStatus,
    LatencyStatus,
    MaintenanceStatus,
    PartitionStatus,
    Point,
    ReadingStatus,
    Reason,
    SourceStatus,
    Status,
    VnodeStatus,
)
from streaming.protocol.report import BatchReport, StateAtBarrier
from streaming.service.events import EventKind, ServiceEvent
from streaming.service.vitals import Vitals

_VERSION = version("arrangement-backfill")
_LATENCY_WINDOW_S = 60.0
_Part = TypeVar("_Part", bound=ApiModel)


@dataclass
class StatusCache:
    """Of one service. `newest` gives the newest barrier of each upstream partition and how many wait there.

    `vnode_count` is 0 where nothing is kept of rows; where vnodes are partitions (`by_partition`), the first batch
    sets it.

    `clock` gives Unix seconds, for what is shown; `steady` is a clock that is never set, for durations.
    """

    upstream: str
    table: str
    owner: str
    vnode_count: int
    vitals: Vitals
    source: SourceStatus
    can_steer: bool = False
    by_partition: bool = False
    columns: Callable[[], Sequence[Column]] = tuple
    clock: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    newest: Callable[[], Sequence[tuple[Barrier | None, int]]] = list
    disk: Callable[[ReplicaFiles | None], DiskStatus | None] = lambda _: None
    kept_counts: Callable[[], Mapping[str, SentCount]] = dict
    started: float = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _state: StateAtBarrier | None = None
    _jobs: Mapping[str, JobView] = field(default_factory=dict)
    _progress: JobsProgress = field(default_factory=JobsProgress)
    _changes: int = 0
    _change_rate: Rate = field(default_factory=Rate)
    _parked: int = 0
    _noted_s: float = 0.0
    _done: Age = field(default_factory=Age)
    _ages: dict[int, Age] = field(default_factory=dict)
    _latencies: deque[tuple[float, float]] = field(default_factory=deque)
    _records: JobRecords = field(default_factory=JobRecords)
    _has_batch: bool = False
    _history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        self.started, self._noted_s = self.clock(), self.steady()

    def note(self, report: BatchReport) -> list[float]:
        """Take a batch into account. For each of its barriers the seconds from its injection until now."""
        wall_s, now_s = self.clock(), self.steady()
        with self._lock:
            self._has_batch = True
            behind_s = self._done.at(now_s) if self._state is not None and self._state.epoch else None
            self._take(report.state_after, now_s)
            self._parked += len(report.plan.parked)
            self._changes += report.changes
            self._change_rate.note(round(now_s * 1_000), self._changes)
            latencies = [
                self._done.seen(aligned.epoch, aligned.barrier.injected_at_ms / 1_000, wall_s, now_s)
                for aligned in report.plan.barriers
            ]
            self._latencies.extend((now_s, latency_s) for latency_s in latencies)
            self._add_to_history(report, wall_s, now_s, max(latencies, default=None), behind_s)
            for each in report.outcome.reports:
                event = ServiceEvent(wall_s, EventKind.REQUEST, each.text, code=each.refused)
                self.vitals.events.note(event)
        return latencies

    def restore(self, state: StateAtBarrier) -> None:
        """Take the state into account that a start has found: its jobs are shown before its first batch."""
        kept = self.kept_counts()
        with self._lock:
            if not self._has_batch:
                self._records.go_on_from(kept)
                self._take(state, self.steady(), at_start=True)
                self._progress.forget_rates()  # a start is no batch
                self._done.seen(
                    state.epoch, unix_ms_from_epoch(state.epoch) / 1_000, self.clock(), self.steady()
                )

    def _take(self, state: StateAtBarrier, now_s: float, *, at_start: bool = False) -> None:
        stored = state.files.rows_by_vnode(max(state.vnode_count, 1))
        views = [JobView.of(job, state.progress.get(job.name, {}), stored, state.ends) for job in state.jobs]
        self.vnode_count = state.vnode_count if self.by_partition else self.vnode_count
        self._state = state
        self._jobs = {view.name: view for view in views}
        self._progress.note(round(now_s * 1_000), [(view.state, view.extent) for view in views])
        for event in self._records.note(views, self.clock(), at_start=at_start):
            self.vitals.events.note(event)

    def _add_to_history(
        self,
        report: BatchReport,
        wall_s: float,
        now_s: float,
        latency_s: float | None,
        behind_s: float | None,
    ) -> None:
        sent = Counter(report.sent_snapshot) + Counter(report.sent_live)
        self._records.count(sent, round(now_s * 1_000))
        elapsed_s, self._noted_s = max(now_s - self._noted_s, 1e-3), now_s
        self._history.note(
            Span(
                at=wall_s,
                elapsed_s=elapsed_s,
                latency_s=latency_s,
                behind_s=behind_s,
                batch_s=sum(report.step_ms.values()) / 1_000,
                changes=report.changes,
                rows={name: rows for name, rows in report.snapshot_rows.items() if rows},
                sent=sent,
            )
        )

    def counts(self) -> dict[str, SentCount]:
        """The records sent, by job, for the next process to go on from."""
        with self._lock:
            return self._records.counts()

    def interrupted(self) -> None:
        """Take an interruption of the service into account: rates begin anew behind it."""
        with self._lock:
            self._progress.forget_rates()
            self._change_rate.forget()
            self._records.forget_rates()

    def _of_source(self, state: StateAtBarrier | None) -> dict[str, object]:
        moved_at = state.moved_at if state else 0
        return {
            "start": self.vitals.start or self.source.start,
            "moved_at": unix_ms_from_epoch(moved_at) / 1_000 if moved_at else None,
        }

    def status(self) -> Status:
        """The status as of now."""
        health, now_ms = self.vitals.health(), round(self.steady() * 1_000)
        with self._lock:
            state, files = self._state, self._state.files if self._state else None
            epoch = state.epoch if state else 0
            barrier_age_s = self._done.at(self.steady()) if epoch else None
            forecasts = self._progress.at(now_ms)
            return Status(
                version=_VERSION,
                now=self.clock(),
                condition=health.condition,
                ready=health.ready,
                step=self.vitals.step,
                reason=_shown(Reason, health.reason),
                jobs_known=self._has_batch or bool(self._jobs),
                last_end=self._last_end(),
                batch_age_s=self.vitals.idle_s(),
                look_age_s=self.vitals.look_age_s(),
                late_s=self.vitals.late_s,
                upstream=self.upstream,
                source=self.source.model_copy(update=self._of_source(state)),
                table=self.table,
                columns=[column.name for column in self.columns()],
                incomplete=[column.name for column in self.columns() if column.read_as],
                fields=FieldsStatus.model_validate(self.vitals.fields),
                owner=self.owner,
                started=self.started,
                barrier=epoch,
                barrier_at=unix_ms_from_epoch(epoch) / 1_000 if epoch else None,
                barrier_age_s=barrier_age_s,
                lanes=state.lanes if state else 0,
                lanes_set=bool(state and state.lanes_set),
                vnode_count=self.vnode_count,
                replica_rows=files.base_rows if files else 0,
                initial=_shown(CopyingStatus, self.vitals.copy),
                reading=_shown(ReadingStatus, self.vitals.reading()),
                log_rows=files.log_rows if files else 0,
                compaction_age_s=_compaction_age_s(epoch, files, barrier_age_s),
                maintenance=[MaintenanceStatus.model_validate(each) for each in self.vitals.maintenance()],
                disk=self.disk(files),
                parked=self._parked,
                changes_per_s=self._change_rate.at(now_ms) if health.ready else None,
                latency=self._latency(),
                jobs=[
                    self._job(view, forecasts[view.name], is_known=health.ready)
                    for view in self._jobs.values()
                ],
                partitions=self._partitions(),
                can_steer=self.can_steer,
            )

    def _last_end(self) -> EndStatus | None:
        end = self.vitals.last_end
        if end is None:
            return None
        fault, margins_s = end.fault, self.vitals.margins_s()
        waits_for = fault if end.is_suspended else None
        commands = [] if waits_for is None else list(ways_on(waits_for, self.table))
        return EndStatus(
            words=end.words,
            kind=end.kind,
            owner=end.owner,
            at=end.at_ms / 1_000,
            since=end.since_ms / 1_000,
            times=end.times,
            fault=_shown(Reason, fault),
            joined=list(end.joined),
            commands=commands,
            meanings=[meaning_of(command) for command in commands],
            skippable=None if waits_for is None else skippable(waits_for),
            new_field=None if waits_for is None else new_field(waits_for),
            deletes_at=self.clock() + min(margins_s.values()) if margins_s else None,
        )

    def _partitions(self) -> list[PartitionStatus]:
        held_s, marks, margins_s = self.vitals.held_s(), self.vitals.marks, self.vitals.margins_s()
        ends = self._state.ends if self._state else ()
        return [
            PartitionStatus(
                partition=number,
                barrier=barrier.curr if barrier else None,
                barrier_at=barrier.injected_at_ms / 1_000 if barrier else None,
                barriers_waiting=waiting,
                age_s=self._age_s(number, barrier) if barrier else None,
                unstable=marks[number].high - marks[number].stable if number < len(marks) else None,
                held_s=held_s.get(number),
                held_offset=marks[number].stable if number in held_s else None,
                margin_s=margins_s.get(number),
                lag=max(0, marks[number].stable - ends[number])
                if number < min(len(marks), len(ends))
                else None,
            )
            for number, (barrier, waiting) in enumerate(self.newest())
        ]

    def _age_s(self, partition: int, newest: Barrier) -> float:
        age = self._ages.setdefault(partition, Age())
        return age.seen(newest.curr, newest.injected_at_ms / 1_000, self.clock(), self.steady())

    def _job(self, view: JobView, forecast: Forecast, *, is_known: bool) -> JobStatus:
        record, wall_s = self._records.of(view), self.clock()
        behind = None
        if view.phase == "live" and self._state is not None and self._state.epoch:
            now = (self._done.at(self.steady()), wall_s)
            worst = self._history.most_behind(record.phase_since or 0.0, wall_s)
            behind = Behind(now[0], *max(now, worst or now))
        sent_per_s = record.sent_rate.at(round(self.steady() * 1_000)) if is_known else None
        return job_status(view, forecast, record, behind, wall_s, sent_per_s=sent_per_s, is_known=is_known)

    def _latency(self) -> LatencyStatus:
        while self._latencies and self._latencies[0][0] < self.steady() - _LATENCY_WINDOW_S:
            self._latencies.popleft()
        seen = sorted(latency for _, latency in self._latencies)
        if not seen:
            return LatencyStatus(p50_s=None, p99_s=None)
        return LatencyStatus(
            p50_s=seen[len(seen) // 2], p99_s=seen[min(len(seen) - 1, len(seen) * 99 // 100)]
        )

    def partitions(self) -> int:
        """Of the upstream; 0 before the first batch."""
        with self._lock:
            return len(self._state.ends) if self._state else 0

    def jobs(self) -> tuple[int, int, tuple[JobView, ...]]:
        """Epoch of the last batch, its lanes, and the jobs after it."""
        with self._lock:
            now, jobs = self._state, tuple(self._jobs.values())
            return (now.epoch, now.lanes, jobs) if now else (0, 1, ())

    def vnodes(self, job: str) -> list[VnodeStatus] | None:
        """Every vnode of a job; None if there is no such job."""
        with self._lock:
            if self._state is None or job not in self._jobs:
                return None
            view, lanes = self._jobs[job], self._state.lanes
        count = view.state.definition.part_count
        return [
            vnode_status(vnode, vnode * lanes // count, view.progress.get(vnode), view.stored.get(vnode, 0))
            for vnode in range(count)
        ]

    def events(self) -> list[EventStatus]:
        """Events of the last hour, oldest first."""
        return [EventStatus.model_validate(each) for each in self.vitals.events.since_an_hour(self.clock())]

    def history(self) -> list[Point]:
        """The last hour, oldest first."""
        with self._lock:
            return self._history.points()


def _compaction_age_s(epoch: int, files: ReplicaFiles | None, barrier_age_s: float | None) -> float | None:
    """The time that the base is behind the last barrier, and that behind now."""
    if files is None or barrier_age_s is None or not files.compacted_epoch:
        return None
    return (unix_ms_from_epoch(epoch) - unix_ms_from_epoch(files.compacted_epoch)) / 1_000 + barrier_age_s


def _shown(model: type[_Part], value: object) -> _Part | None:
    return None if value is None else model.model_validate(value)
