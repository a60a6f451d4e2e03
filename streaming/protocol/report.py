"""Report of a batch: the sums over its lanes, for logs, status, metrics and progress bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from schemas.errors import BackfillError, Code
from state.replica import ReplicaFiles
from state.values.plan import BatchPlan, JobState
from state.values.progress import Progress
from streaming.core.jobs import JobsOutcome
from streaming.lane.task import LaneResult
from streaming.protocol.lanes.runner import Way

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class StateAtBarrier:
    """Jobs, their progress and the replica between two batches. `ends` are the offsets that are handled.

    `lanes_set`: `backfill lanes` has set their number. `moved_at`: the last barrier that reported added partitions.
    """

    jobs: Sequence[JobState]
    progress: Mapping[str, Mapping[int, Progress]]
    files: ReplicaFiles
    vnode_count: int
    epoch: int
    lanes: int
    ends: Sequence[int]
    lanes_set: bool = False
    moved_at: int = 0


@dataclass(frozen=True)
class BatchReport:
    """One batch. Times in milliseconds; `lane_ms` adds up the lanes, which ran side by side."""

    plan: BatchPlan
    changes: int
    snapshot_rows: Mapping[str, int]
    sent_snapshot: Mapping[str, int]
    sent_live: Mapping[str, int]
    step_ms: Mapping[str, float]
    lane_ms: Mapping[str, float]
    already_sent: int
    retry_reasons: tuple[Code, ...]
    """Codes of the attempts at its lanes that were aborted, fenced, or whose end is unknown."""
    outcome: JobsOutcome
    progress: Mapping[str, Mapping[int, Progress]]
    vnode_count: int
    files: ReplicaFiles
    """The replica that the plan pinned."""
    released_rows: int = 0
    """Rows of chunks of the table that are in the log from now on."""
    redelivered: int = 0
    """Redelivered records, which were left out."""
    ignored: int = 0
    """Records that are no changes of the table."""
    way: Way | None = None
    """The way in which its lanes were run; None where they had nothing to do."""

    @property
    def state_after(self) -> StateAtBarrier:
        """The state at the batch's last barrier."""
        plan, jobs = self.plan, self.outcome.jobs
        return StateAtBarrier(
            jobs,
            self.progress,
            self.files,
            self.vnode_count,
            plan.epoch,
            self.outcome.lanes or plan.lanes,
            plan.end_offsets,
            self.outcome.lanes is not None,
            plan.moved_after,
        )


@dataclass(frozen=True)
class Sums:
    """The results of a batch's lanes, added up."""

    results: Sequence[LaneResult]

    @property
    def changes(self) -> int:
        """Upstream changes, hidden ones too."""
        return sum(result.changes for result in self.results)

    @property
    def held_bytes(self) -> int:
        """Memory that the changes took."""
        return sum(result.held_bytes for result in self.results)

    @property
    def released_rows(self) -> int:
        """Rows of chunks that are in the log from now on."""
        return sum(result.released_rows for result in self.results)

    @property
    def already_sent(self) -> int:
        """Lanes whose part was in the output already."""
        return sum(result.already_sent for result in self.results)

    @property
    def redelivered(self) -> int:
        return sum(result.redelivered for result in self.results)

    @property
    def ignored(self) -> int:
        return sum(result.ignored for result in self.results)

    @cached_property
    def lane_ms(self) -> dict[str, float]:

        return _added([result.step_ms for result in self.results])

    @cached_property
    def history_rows(self) -> dict[str, int]:
        """By job: rows of slices that came with the changes."""
        return _added([result.sent.history for result in self.results])

    @property
    def sent_snapshot(self) -> dict[str, int]:
        """Rows by job, after the filter."""
        return _added([result.sent.snapshot for result in self.results])

    @property
    def sent_live(self) -> dict[str, int]:

        return _added([result.sent.live for result in self.results])

    @cached_property
    def rows_read(self) -> dict[str, dict[int, int]]:
        """Snapshot rows by job and vnode, filtered ones included."""
        merged: dict[str, dict[int, int]] = {}
        for result in self.results:
            for name, rows in result.sent.rows_read.items():
                merged.setdefault(name, {}).update(rows)
        return merged

    @cached_property
    def snapshot_rows(self) -> dict[str, int]:

        return {name: sum(by_vnode.values()) for name, by_vnode in self.rows_read.items()}


def _added(parts: Sequence[Mapping[str, _Number]]) -> dict[str, _Number]:
    total: dict[str, _Number] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total


class Observer(Protocol):
    """Gets what a service does, from the thread of its stream. It must be quick, and raise nothing."""

    def starts_from(self, state: StateAtBarrier) -> None:
        """Take the state into account that a start has found."""

    def batch(self, report: BatchReport) -> None:
        """Take a batch that is done into account."""

    def trouble(self, problem: BackfillError) -> None:
        """Take into account what interrupted the service, if that may pass."""


@dataclass(frozen=True, slots=True)
class Observers:
    """Several observers as one."""

    each: Sequence[Observer]

    def starts_from(self, state: StateAtBarrier) -> None:
        """Pass the state on that a start has found."""
        for observer in self.each:
            observer.starts_from(state)

    def batch(self, report: BatchReport) -> None:
        """Pass a batch on."""
        for observer in self.each:
            observer.batch(report)

    def trouble(self, problem: BackfillError) -> None:
        """Pass on what interrupted the service."""
        for observer in self.each:
            observer.trouble(problem)
