"""One run of the service: the order of `streaming.service.service`, on a simulated broker, state folder and Spark.

Simulated Spark runs each lane as a strand of its own. It may run a task twice, one after the other or both at once;
and it may give up on a job while tasks of it go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from schemas.errors import BackfillError, Code, CommitConflict, EnvironmentProblem, Fenced, OutcomeUnknown
from schemas.job import JobDefinition
from schemas.table import TableSchema
from state.journal import PATH as JOURNAL_PATH
from state.journal import Journal
from streaming.core.alignment import Aligner
from streaming.lane.run import run_lane
from streaming.lane.task import LaneResult, LaneTask
from streaming.service.bad_records import BadRecords
from streaming.service.barriers import FoundBarrier
from streaming.service.batches import Batches, transactional_id
from streaming.service.micro_batches import MicroBatches
from streaming.service.report import BatchReport
from tests.simulation.broker import Broker, Topics
from tests.simulation.changelog import Arrivals
from tests.simulation.fold import Upkeep
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.storage import Files, MemoryStorage


class Instance:
    """The service as one process. `start` lets it live. The types are for those who break one (`canaries`)."""

    broker_type: type[Broker] = Broker
    storage_type: type[MemoryStorage] = MemoryStorage
    journal_type: type[Journal] = Journal
    batches_type: type[Batches] = Batches

    def __init__(
        self,
        name: str,
        *,
        scheduler: Scheduler,
        topics: Topics,
        files: Files,
        arrivals: Arrivals,
        table: TableSchema,
        jobs: Sequence[JobDefinition],
        lanes: int,
        folds: bool,
    ) -> None:
        self.process = Process(name)
        self.scheduler = scheduler
        self.broker = self.broker_type(topics, scheduler)
        self.storage = self.storage_type(files, scheduler)
        self.arrivals, self.table, self.jobs, self.lane_count = arrivals, table, jobs, lanes
        self.folds = folds
        self._worked = False
        self.ended_as_owner = False
        """Whether it gave way to somebody although nobody had taken the state over."""

    def start(self) -> None:
        self.scheduler.spawn(self.process, "driver", self._live)

    def _live(self) -> None:
        try:
            while not self._run_once():
                pass
        except (Fenced, CommitConflict):
            self.ended_as_owner = self.storage.newest_row(JOURNAL_PATH)["owner"] == self.process.name
            raise

    def _run_once(self) -> bool:
        """False after trouble that passes: what has worked goes on in the same process, among what is left in it."""
        journal = self.journal_type(self.storage, self.table)
        try:
            self.run(journal)
        except (EnvironmentProblem, OutcomeUnknown) as problem:
            if not self._worked:
                raise
            self.scheduler.step("go on")
            if journal.is_superseded:
                raise journal.fenced() from problem
            return False
        return True

    def run(self, journal: Journal) -> None:
        batches = self.take_over(journal)
        upkeep = Upkeep(self, batches.replica)
        if batches.recover() is not None:
            self._worked = True
        source = Source()
        aligner = Aligner("up", self.arrivals.changelog.count, batches.position)
        micro_batches = MicroBatches(source, aligner, batches, upkeep, self.told)  # type: ignore[arg-type]  # narrower
        taken = [0] * self.arrivals.changelog.count
        while True:
            records = self.arrivals.since(taken)
            taken = list(self.arrivals.counts)
            micro_batches.take(source.barriers(records))
            micro_batches.drain()
            self.scheduler.step("wait for the upstream", partial(self._has_news, taken))

    def _has_news(self, taken: list[int]) -> bool:
        return self.arrivals.counts != taken

    def take_over(self, journal: Journal) -> Batches:
        open_lanes = journal.current.plan.lanes if journal.current and journal.current.plan else 0
        lanes = max(self.lane_count, open_lanes)
        former = journal.take_over(self.process.name, lanes, json.dumps(self.table.to_dict()))
        batches = self.batches_type(
            storage=self.storage,
            table=self.table,
            topic="up",
            open_output=self.broker.open_output,
            lanes=self.lanes(),
            lane_count=self.lane_count,
            journal=journal,
            first_offsets=[0] * self.arrivals.changelog.count,
            ensure_output=lambda job: self.broker.create_topic(job.output, job.output_partitions),
            read_letters=self.arrivals.changelog.letters,
            bad_records=BadRecords(
                "up",
                self.arrivals.changelog.faulty,
                lambda job: self.broker.create_letters(job.dead_letters),
            ),
            now_ms=lambda: self.scheduler.now_ms,
        )
        if former is not None:
            self.fence(transactional_id(batches.replica), max(former.lanes, lanes))
        batches.configure(self.jobs)
        return batches

    def fence(self, prefix: str, lanes: int) -> None:
        for lane in range(lanes):
            self.broker.producer(f"{prefix}-{lane}")

    def lanes(self) -> Lanes:
        return Lanes(self)

    def told(self, report: BatchReport) -> None:
        """A batch is done."""
        self._worked = True


class Source:
    """Finds barriers in what has arrived."""

    def barriers(self, records: Iterable[FoundBarrier]) -> Iterator[FoundBarrier]:
        yield from records

    def close(self) -> None:
        pass


class Lanes:
    """Runs the lanes of a batch as Spark would, and waits for all of them, or for Spark to give up."""

    def __init__(self, instance: Instance) -> None:
        self.instance, self._scheduler = instance, instance.scheduler
        self._jobs = 0

    slots = 1

    def carry_out(self, task: LaneTask) -> list[LaneResult]:
        # What goes to a lane is a copy.
        task = replace(task, progress={job: dict(vnodes) for job, vnodes in task.progress.items()})
        results: dict[int, LaneResult] = {}
        lost: list[int] = []
        self._jobs += 1
        for lane in range(task.plan.lanes):
            self._start(task, lane, results, lost)
        self._scheduler.step("wait for the lanes", lambda: bool(lost) or len(results) == task.plan.lanes)
        if lost:
            raise EnvironmentProblem(
                Code.SPARK_FAILED, found="a job that failed", expected="none", next_step="run it again"
            )
        return [results[lane] for lane in sorted(results)]

    def _start(self, task: LaneTask, lane: int, results: dict[int, LaneResult], lost: list[int]) -> None:
        def attempt() -> None:
            result = self.run_lane(task, lane)
            if fate == "again":  # the executor was lost with its result
                result = self.run_lane(task, lane)
            if fate == "job fails":
                lost.append(lane)
            results.setdefault(lane, result)

        fate = self._scheduler.outcome(f"task of lane {lane}", "done", "again", "twice at once", "job fails")
        for number in range(1 + (fate == "twice at once")):
            self._scheduler.spawn(self.instance.process, f"lane {lane} of {self._jobs}.{number}", attempt)

    def run_lane(self, task: LaneTask, lane: int) -> LaneResult:
        plan = task.plan
        rows = self.instance.arrivals.changelog.lane_rows(
            plan.first_offsets, plan.end_offsets, task.vnodes(lane)
        )
        try:
            return run_lane(task, lane, [rows], rows.schema)
        except BackfillError as error:
            return LaneResult(lane, error=error)
