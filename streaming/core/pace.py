"""How much a batch takes on, learned from those before it: records of the upstream, and each job's snapshot rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.epoch import unix_ms_from_epoch
from state.plan import AlignedBarrier, JobPlan, JobState
from state.progress import Progress, is_complete
from streaming.core.budget import Company, Lateness, Rest, SnapshotBudget
from streaming.core.planning import CutFunction, choose_slices

MAX_BATCH_RECORDS = 500_000
"""Upstream records that one batch takes at most, when it has a choice; lanes hold a batch's changes in memory."""
_LIKELY_CHANGE_BYTES = 500.0
"""Decoded, until a batch has told."""


class Pace:
    """Of one service. `held_bytes`: what the changes of a batch may take in memory, in all lanes together."""

    def __init__(self, vnode_count: int, held_bytes: int) -> None:
        self._vnode_count, self._held_bytes = vnode_count, held_bytes
        self._change_bytes = _LIKELY_CHANGE_BYTES
        self._budgets: dict[str, SnapshotBudget] = {}
        self._rest, self._lateness = Rest(), Lateness()

    def most_records(self) -> int:
        """What a batch of several intervals takes, so that lanes can hold it: half of their limit, as changes go."""
        return min(MAX_BATCH_RECORDS, int(self._held_bytes / 2 / self._change_bytes))

    def plan_jobs(
        self,
        jobs: Sequence[JobState],
        progress: Mapping[str, Mapping[int, Progress]],
        end: AlignedBarrier,
        cut: CutFunction,
        now_ms: int,
    ) -> tuple[JobPlan, ...]:
        """The slices of each job, for a batch that begins now and goes to `end`. To be called once a batch.

        `progress[job]` lists the vnodes that were started.
        """
        readers = sum(
            job.may_read and not is_complete(progress.get(job.name, {}), self._vnode_count) for job in jobs
        )
        late_ms = self._lateness.of(unix_ms_from_epoch(end.epoch), now_ms)
        company = Company(max(readers, 1), self._rest.ms, late_ms)
        return tuple(self._plan_job(job, progress.get(job.name, {}), cut, now_ms, company) for job in jobs)

    def _plan_job(
        self, job: JobState, progress: Mapping[int, Progress], cut: CutFunction, now_ms: int, company: Company
    ) -> JobPlan:
        budget = self._budgets.setdefault(job.name, SnapshotBudget(job.definition.latency_budget_ms))
        rows = budget.rows(now_ms, paused=job.paused, rate_limit=job.rate_limit, company=company)
        return JobPlan(job, choose_slices(job.definition, self._vnode_count, progress, rows, cut).slices)

    def took(
        self, *, changes: int, held_bytes: int, rows: Mapping[str, int], read_ms: float, took_ms: float
    ) -> None:
        """Tell of a batch: its changes and their size, snapshot rows by job, how long these took, and the batch."""
        if changes:
            self._change_bytes = max(1.0, held_bytes / changes)
        self._rest.took(max(took_ms - read_ms, 0.0))
        for name, count in rows.items():
            if name in self._budgets and count:
                self._budgets[name].spent(count, read_ms * count / sum(rows.values()))

    def forget(self, job: str) -> None:
        """A job that was dropped; another one may come by its name."""
        self._budgets.pop(job, None)
