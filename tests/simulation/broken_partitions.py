"""Partitions that are added, with one thing about them wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schemas.records import RecordId
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from streaming.protocol.batches import Batches
from streaming.protocol.effects import Effect
from streaming.protocol.lanes.attempts import LaneTasks
from streaming.protocol.planner import Planner
from streaming.protocol.recovery.recover import Recovery


class _Late(Planner):
    def _plan(
        self,
        barriers: Sequence[AlignedBarrier],
        version: ReplicaVersion,
        skipped: Sequence[RecordId],
        *,
        releases: bool = True,
    ) -> BatchPlan:
        plan = super()._plan(barriers, version, skipped, releases=releases)
        if not plan.rises:
            return plan
        known = (plan.start or plan.barriers[0]).barrier.partitions
        first = (*plan.first_offsets[:known], *plan.barriers[plan.rises[0]].ends[known:])
        return replace(plan, first_offsets=first)


class LeavesOutFirst(Batches):
    """A partition that was added is read from its first barrier on."""

    planner_type = _Late


class _AsEver(LaneTasks):
    def moves_from(self, plan: BatchPlan) -> int | None:
        return None


class TakesByPartition(Batches):
    """The records of a key in two partitions are taken in the order of these."""

    tasks_type = _AsEver


class _Forgets(Recovery):
    def left_to_do(self) -> tuple[Effect, ...]:
        effects = super().left_to_do()
        self.executor.state.moved_at = 0
        return effects


class ForgetsMoves(Batches):
    """A restart takes the records of a key to be in one partition again."""

    recovery_type = _Forgets
