"""Plans that are replaced where they must not be, or not where they must: what can't be sent is given up wrongly."""

from __future__ import annotations

from collections.abc import Callable

from state.values.plan import BatchPlan
from streaming.lane.task import LaneTask
from streaming.protocol.batches import Batches
from streaming.protocol.lanes.attempts import LaneTasks
from streaming.protocol.lanes.overrun import Overruns, without_slices


class _GivesUpAnyway(Overruns):
    """The slices of a plan, although a lane may have sent its part."""

    def nothing_was_sent(self, task: LaneTask) -> bool:
        super().nothing_was_sent(task)
        return True


class _LooksBeforeTheJournal(Overruns):
    """The journal gets its new version when the lanes were looked at already."""

    def relieved(self, task: LaneTask, task_for: Callable[[BatchPlan], LaneTask]) -> LaneTask:
        if not self.nothing_was_sent(task):
            return task
        plan = without_slices(task.plan)
        self._journal.write_plan(plan)
        return task_for(plan)


class GivesUpSentPlans(Batches):
    overruns_type = _GivesUpAnyway


class _SeesNothingSent(Overruns):
    def _has_sent(self, task: LaneTask, lane: int) -> bool:
        super()._has_sent(task, lane)
        return False


class GivesUpSentSlices(Batches):
    """Gives up slices also of lanes that have sent their part."""

    overruns_type = _SeesNothingSent


class _KnowsNoLimits(LaneTasks):
    def limits_of(self, plan: BatchPlan, *, anew: bool = False) -> dict[str, int]:
        return {}


class MeasuresNothing(Batches):
    """The broker alone finds a record that is too long."""

    tasks_type = _KnowsNoLimits


class GivesUpUnlockedPlans(Batches):
    overruns_type = _LooksBeforeTheJournal
