"""The size of a batch, learned from those before it: records of the upstream, and each job's snapshot rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from schemas.job import JobDefinition
from state.values.cut import Amount
from state.values.plan import AlignedBarrier, JobPlan, JobState
from state.values.progress import Progress, is_complete
from streaming.core.budget import BatchLoad, OverheadMs, SnapshotBudget, StartDelay
from streaming.core.planning import NOTHING, CutFunction, choose_slices

MAX_BATCH_RECORDS = 500_000
"""Upstream records that one batch takes at most, when it has a choice; lanes hold a batch's changes in memory."""
_LIKELY_CHANGE_BYTES = 500.0
"""Decoded; used until a batch has been measured."""


class BatchSizer:
    """Of one service. `held_bytes`: what the changes of a batch may take in memory, in all lanes together."""

    def __init__(self, held_bytes: int) -> None:
        self._held_bytes = held_bytes
        self._change_bytes = _LIKELY_CHANGE_BYTES
        self._budgets: dict[str, SnapshotBudget] = {}
        self._planned: dict[str, Amount] = {}
        self._rest, self._start_delay = OverheadMs(), StartDelay()

    def most_records(self) -> int:
        """Upstream records in a batch of several intervals: half of what lanes hold, by the size of changes so far."""
        return min(MAX_BATCH_RECORDS, int(self._held_bytes / 2 / self._change_bytes))

    def likely_bytes(self, records: int) -> int:
        """Bytes that this many changes take in memory, by the size that changes had so far."""
        return int(records * self._change_bytes)

    @property
    def rest_ms(self) -> float:
        """How long a batch takes without its snapshot reads."""
        return self._rest.ms

    def plan_jobs(
        self,
        jobs: Sequence[JobState],
        progress: Mapping[str, Mapping[int, Progress]],
        end: AlignedBarrier,
        cut_of: Callable[[JobDefinition], CutFunction],
        now_ms: int,
    ) -> tuple[JobPlan, ...]:
        """The slices of each job, for a batch that begins now and goes to `end`. To be called once a batch.

        `progress[job]` lists the parts that were started; `cut_of` gives what cuts the slices of a job.
        """
        readers = sum(
            job.may_read and not is_complete(progress.get(job.name, {}), job.definition.part_count)
            for job in jobs
        )
        late_ms = self._start_delay.of(end.barrier.injected_at_ms, now_ms)
        load = BatchLoad(max(readers, 1), self._rest.ms, late_ms)
        self._planned = {}
        return tuple(
            self._plan_job(job, progress.get(job.name, {}), cut_of(job.definition), now_ms, load)
            for job in jobs
        )

    def _plan_job(
        self, job: JobState, progress: Mapping[int, Progress], cut: CutFunction, now_ms: int, load: BatchLoad
    ) -> JobPlan:
        budget = self._budgets.setdefault(job.name, SnapshotBudget(job.definition.latency_budget_ms))
        most = budget.amount(now_ms, paused=job.paused, rate_limit=job.rate_limit, load=load)
        chosen = choose_slices(job.definition, progress, most, cut)
        self._planned[job.name] = chosen.amount
        return JobPlan(job, chosen.slices)

    def took(
        self, *, changes: int, held_bytes: int, rows: Mapping[str, int], read_ms: float, took_ms: float
    ) -> None:
        """Learn from a batch: its changes and their bytes, snapshot rows by job, and the durations."""
        self.learn_change_bytes(changes, held_bytes)
        self._rest.took(max(took_ms - read_ms, 0.0))
        for name, count in rows.items():
            if name in self._budgets and count:
                read = Amount(count, self._planned.get(name, NOTHING.amount).size)
                self._budgets[name].spent(read, read_ms * count / sum(rows.values()))

    def learn_change_bytes(self, count: int, held_bytes: int) -> None:
        """Learn how large changes are from `count` of them; 0 teaches nothing."""
        if count:
            self._change_bytes = max(1.0, held_bytes / count)

    def overran(self, took_ms: float) -> None:
        """The slices of the last plan were given up after so long: the next ones have to be smaller."""
        read = {name: planned for name, planned in self._planned.items() if planned.rows}
        for name, planned in read.items():
            if name in self._budgets:
                self._budgets[name].overran(planned, took_ms / len(read))

    def forget(self, job: str) -> None:
        """Forget a job that was dropped; another one may get its name."""
        self._budgets.pop(job, None)
