"""The lanes of a simulated instance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.errors import BackfillError, Code, EnvironmentProblem
from state.columns import OFFSET, PARTITION
from state.values.plan import BatchPlan
from streaming.lane.run import run_lane
from streaming.lane.task import Failed, LaneOutcome, LaneTask, Undone
from streaming.protocol.lanes.runner import LaneRunner, Way
from streaming.source.decoded import TIME

if TYPE_CHECKING:
    from tests.simulation.instance import Instance


class Lanes(LaneRunner):
    """Runs the lanes of a batch as Spark would, and waits for all of them, or for Spark to give up."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self._scheduler = instance, instance.scheduler
        self._jobs = 0

    slots, is_cold = 1, False

    def is_empty(self, task: LaneTask) -> bool:
        return False

    def run(self, task: LaneTask, way: Way) -> list[LaneOutcome]:
        results: dict[int, LaneOutcome] = {}
        lost: list[int] = []
        self.instance.refuse_lost(task.plan)
        self._jobs += 1
        for lane in range(task.plan.lanes):
            self._start(task, lane, results, lost)
        self._scheduler.step("wait for the lanes", lambda: bool(lost) or len(results) == task.plan.lanes)
        if lost:
            raise EnvironmentProblem(
                Code.SPARK_FAILED, found="a job that failed", expected="none", next_step="run it again"
            )
        return [results[lane] for lane in sorted(results)]

    def _start(self, task: LaneTask, lane: int, results: dict[int, LaneOutcome], lost: list[int]) -> None:
        def attempt() -> None:
            if policy == "dies":  # its worker had not the memory for it
                lost.append(lane)
                return
            result = self.run_lane(task, lane)
            if policy == "again":  # the executor was lost with its result
                result = self.run_lane(task, lane)
            if policy == "job fails":
                lost.append(lane)
            results.setdefault(lane, result)

        policy = self._scheduler.outcome(
            f"task of lane {lane}", "done", "again", "twice at once", "job fails", "dies"
        )
        for number in range(1 + (policy == "twice at once")):
            self._scheduler.spawn(self.instance.process, f"lane {lane} of {self._jobs}.{number}", attempt)

    def run_lane(self, task: LaneTask, lane: int) -> LaneOutcome:
        plan, task = task.plan, replace(task, open_store=self.instance.open_store)
        rows = self.instance.lane_rows(task, lane)
        batches = list(_in_order(rows, plan, task.moves_from)) if task.in_parts else [rows]
        try:
            return run_lane(task, lane, batches, rows.schema)
        except BackfillError as error:
            return Undone(lane, Failed(error))


def _in_order(rows: pa.RecordBatch, plan: BatchPlan, moves_from: int | None) -> Iterator[pa.RecordBatch]:
    """One row at a time, by interval, partition and offset, as Spark sorts them; by their times where keys move."""

    def place(row: int) -> tuple[int, int, int, int]:
        partition, offset = partitions[row], offsets[row]
        interval = sum(aligned.ends[partition] <= offset for aligned in plan.barriers)
        is_timed = (
            moves_from is not None and interval >= moves_from and offset >= plan.first_offsets[partition]
        )
        return interval, times[row] if is_timed else 0, partition, offset

    partitions, offsets = rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist()
    times = rows[TIME].to_pylist() if TIME in rows.schema.names else []
    for row in sorted(range(rows.num_rows), key=place):
        yield rows.slice(row, 1)
