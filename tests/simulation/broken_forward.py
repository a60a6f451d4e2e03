"""Services that get one thing wrong when a state is brought forward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from schemas.job import JobDefinition
from state.progress_table import ProgressRow
from state.values.plan import BatchPlan, JobPlan, JobState, Slice
from state.values.progress import Progress
from streaming.protocol.batches import Batches
from streaming.protocol.effects import Effect, RunLanes, Settle
from streaming.protocol.recovery.forward import Forward
from streaming.protocol.recovery.steps import Step


class TakesPositionsEarly(Forward):
    """Takes the positions of the barrier before."""

    def rows(self, jobs: Iterable[JobState], upto: int) -> list[ProgressRow]:
        return super().rows(jobs, upto - 1)


class ReadsNoSlices(Forward):
    """Of what was sent by some lanes."""

    def _slices(self, job: JobState, progress: Mapping[int, Progress]) -> Iterator[Slice]:
        return iter(())


class GroupsLanesAsEver(Forward):
    def lanes_of(self, step: Step, jobs: Sequence[JobPlan], lanes: int) -> int:
        return lanes


class SendsAllSilently(Forward):
    """The last batch is taken for sent by all lanes."""

    def step(
        self,
        jobs: Sequence[JobState],
        configured: Iterable[JobDefinition],
        position: int,
        tables: Iterable[int],
    ) -> Step | None:
        step = super().step(jobs, configured, position, tables)
        return None if step is None else replace(step, silent=True)


class StartsJobsAtOnce(Forward):
    """A job that is added starts with the barrier of its mutation, whatever its output begins with."""

    def _adopted(self, job: JobState, position: int) -> JobState:
        return job


class ForgetsLostMutations(Batches):
    def effects_of(self, plan: BatchPlan) -> tuple[Effect, ...]:
        if not plan.silent:
            return super().effects_of(plan)
        silenced = (replace(each, barrier=replace(each.barrier, mutation=None)) for each in plan.barriers)
        without = replace(plan, barriers=tuple(silenced))
        return tuple(
            Settle(without) if isinstance(effect, Settle) else effect for effect in super().effects_of(plan)
        )


class SendsWhileReplicating(Batches):
    def effects_of(self, plan: BatchPlan) -> tuple[Effect, ...]:
        return tuple(
            RunLanes(replace(plan, silent=False)) if isinstance(effect, RunLanes) else effect
            for effect in super().effects_of(plan)
        )


class GoesOnRegardless(Forward):
    """Nobody looks whether the outputs are ahead."""

    def read_outputs(
        self,
        jobs: Sequence[JobState],
        position: int,
        progress: Mapping[str, Mapping[int, Progress]],
        *,
        open_plan: BatchPlan | None = None,
    ) -> bool:
        self.close()
        return False
