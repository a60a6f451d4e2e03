"""Changes of lanes that get one thing wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from schemas.kinds.lanes import share_of
from state.values.plan import BatchPlan
from state.values.progress import Progress
from streaming.lane.task import LaneTask
from streaming.protocol.batches import Batches
from streaming.protocol.effects import Effect
from streaming.protocol.lanes.attempts import LaneTasks
from streaming.protocol.recovery.recover import Recovery


@dataclass(frozen=True)
class _Keeping(LaneTask):
    former: int = 0
    """The lanes of the batch before; 0 without one."""

    def _share(self, count: int, lane: int) -> range:
        own = super()._share(count, lane)
        if not self.former or lane >= self.former:
            return own
        before = share_of(lane, self.former, count)
        return range(min(own.start, before.start), max(own.stop, before.stop))


class _KeepingTasks(LaneTasks):
    former = 0
    last: BatchPlan | None = None

    def task(self, plan: BatchPlan, progress: Mapping[str, Mapping[int, Progress]]) -> LaneTask:
        if self.last is not None and self.last.epoch != plan.epoch:
            self.former = self.last.lanes
        self.last = plan
        usual = super().task(plan, progress)
        return _Keeping(
            **{each.name: getattr(usual, each.name) for each in fields(LaneTask)}, former=self.former
        )


class KeepsVnodes(Batches):
    """A lane goes on for a batch with vnodes that it gave away."""

    tasks_type = _KeepingTasks


class _FinishesAnew(Recovery):
    def finish(self, plan: BatchPlan) -> tuple[Effect, ...]:
        declared = self.executor.setup.declared_lanes
        return super().finish(replace(plan, lanes=declared))


class FinishesByOthers(Batches):
    """A half done batch is finished by as many lanes as the file says, not by as many as began it."""

    recovery_type = _FinishesAnew


class _Forgets(Recovery):
    def go_on_behind(self, plan: BatchPlan) -> None:
        super().go_on_behind(plan)
        self.executor.state.lanes_set = None


class ForgetsLanes(Batches):
    """A restart takes the lanes of the file."""

    recovery_type = _Forgets
