"""Lanes of a batch without records, run by the driver itself: they send a barrier, and no Spark job is needed for that.

It is the same function on the same task, so the same transactions by the same ids, and a driver that dies in the
middle of it leaves what a lane leaves. Spark's fixed cost of a job is most of what a batch takes that brings nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa

from state.values.plan import BatchPlan
from streaming.core.offset_ranges import history_ranges
from streaming.lane.task import LaneOutcome, LaneTask
from streaming.runtime import failpoints
from streaming.source.decoded import decoded_schema_of

_MOST_AT_ONCE = 8

RunLane = Callable[[LaneTask, int, Iterable[pa.RecordBatch], pa.Schema], LaneOutcome]


class QuietLanes:
    """`is_quiet` says whether a batch's interval holds no record; it is asked last, for it reads the topic.

    `same_machine`: the driver finds the rows that lanes keep from batch to batch where Spark's workers leave them.
    """

    def __init__(
        self, is_quiet: Callable[[BatchPlan], bool], run: RunLane, *, same_machine: Callable[[], bool]
    ) -> None:
        self._is_quiet, self._run, self._same_machine = is_quiet, run, same_machine

    def may_take(self, task: LaneTask) -> bool:
        """Whether there is nothing in the task for which Spark is needed."""
        plan = task.plan
        needs_spark = (
            task.in_parts
            or task.failpoint is not None
            or failpoints.names_a_lane()
            or plan.until is not None
            or plan.parked
            or any(job.slices for job in plan.sent_jobs)
            or history_ranges(plan)
            or (plan.reading is not None and plan.reading.due)
            or (task.replica is not None and not self._same_machine())
        )
        return not needs_spark and self._is_quiet(plan)

    def carry_out(self, task: LaneTask) -> list[LaneOutcome]:
        """The outcome of every lane, as `LaneRunner.carry_out`, of a task that it may take."""
        lanes, schema = range(task.plan.lanes), decoded_schema_of(task.upstream_format, task.table)
        with ThreadPoolExecutor(min(len(lanes), _MOST_AT_ONCE), "quiet-lane") as threads:
            return list(threads.map(partial(self._one, task, schema), lanes))

    def _one(self, task: LaneTask, schema: pa.Schema, lane: int) -> LaneOutcome:
        return self._run(task, lane, [], schema)
