"""Deletion of old barriers in separate topics, behind finished batches.

Only the owner of the state deletes, and only barriers that no recovery needs: those before the last finished batch that
are older than the configured time. A state restored from an older copy finds the intervals before the oldest barrier as
one. All topics of a service then begin with the same barrier, unless one refuses the deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import structlog

from schemas.errors import BackfillError, Code
from state.values.plan import BatchPlan
from streaming.compaction.turns import Maintenance, Turn
from streaming.kafka.barriers import BarrierCut
from streaming.sink.protocol import SinkOf
from streaming.source.barriers.source import BarrierSource

_ADVICE = "look up why the broker refuses it (the right to delete records); the topics grow meanwhile"

log = structlog.get_logger(__name__)


class BarrierKeeping:
    """Deletes the old barriers of one service. `keep_ms` None: barriers are kept for ever."""

    def __init__(
        self, keep_ms: int | None, sink_of: SinkOf, source: BarrierSource, is_ours: Callable[[], bool]
    ) -> None:
        self._keep_ms, self._sink_of, self._source, self._is_ours = keep_ms, sink_of, source, is_ours
        self._refused: dict[str, Code] = {}
        self._due: BatchPlan | None = None
        self._turn = Turn[None]("deletion of barriers", _ADVICE)

    def maintenance(self) -> tuple[Maintenance, ...]:
        """The state of the deletion. A topic that refused it counts as a failure for as long as this instance runs."""
        now = self._turn.maintenance()
        if self._refused:
            error = ", ".join(f"{code} of {topic}" for topic, code in sorted(self._refused.items()))
            now = replace(now, failures=max(1, now.failures), error=error)
        return (now,)

    def after_batch(self, plan: BatchPlan) -> None:
        """Call it after each finished batch: once a period barriers are deleted, by a thread of its own."""
        self._turn.take()
        if plan.has_full:
            # Kept while another deletion is under way, as the next full barrier is half an hour off.
            self._due = plan
        if self._due is not None and self._turn.is_free:
            self._turn.begin(partial(self.delete, self._due))
            self._due = None

    def close(self) -> None:
        """Begin no further deletion; one under way may still be done."""
        self._turn.close()

    def delete(self, plan: BatchPlan) -> None:
        """Delete old barriers once this plan is done: first those of outputs, so that the upstream begins no later.

        Raises: EnvironmentProblem(BROKER_UNREACHABLE).
        """
        cut = self.cut(plan)
        if cut is None or not self._is_ours():
            return
        for topic, delete in self._topics(plan, cut):
            if topic not in self._refused:
                self._delete_in(topic, delete)

    def cut(self, plan: BatchPlan) -> BarrierCut | None:
        """The newest barrier that topics may begin with: before this batch, which is the last finished one."""
        if self._keep_ms is None or plan.start is None:
            return None
        return BarrierCut(plan.start.epoch, plan.end.barrier.injected_at_ms - self._keep_ms)

    def _topics(self, plan: BatchPlan, cut: BarrierCut) -> Iterator[tuple[str, Callable[[], int]]]:
        for job in plan.jobs:
            definition = job.state.definition
            if definition.barrier_topic is not None:
                sink = self._sink_of(definition)
                yield definition.barrier_topic, partial(sink.delete_barriers, definition, cut)
        yield "the upstream's barriers", partial(self._source.delete_barriers, cut)

    def _delete_in(self, topic: str, delete: Callable[[], int]) -> None:
        try:
            count = delete()
        except BackfillError as error:
            if error.code is Code.BROKER_UNREACHABLE:
                raise
            self._refused[topic] = error.code
            log.warning(
                "barriers_not_deleted", topic=topic, code=error.code, found=error.found, next_step=_ADVICE
            )
        else:
            if count:
                log.info("barriers_deleted", topic=topic, offsets=count)
