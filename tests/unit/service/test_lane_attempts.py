"""A batch runs again, by the same plan, with what its lanes lacked: schemas that records name, or smaller parts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema
from schemas.errors import Code, EnvironmentProblem
from schemas.formats.protocol import Format
from schemas.formats.upsert import UpsertFormat
from schemas.job import JobDefinition
from schemas.kinds.projection import plain
from schemas.records import Barrier, BarrierKind
from state.storage import Storage
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan, JobPlan, JobState, Slice
from streaming.lane.task import Awaits, Lack, LaneOutcome, LaneResult, LaneTask, Undone
from streaming.protocol.lanes.attempts import ATTEMPTS, LaneAttempts, LaneTasks
from streaming.protocol.lanes.overrun import is_overrun
from streaming.protocol.lanes.runner import Way
from tests.kit.lane_tasks import lane_task
from tests.kit.tables import table

BARRIER = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (9,), in_data=False)
PLAN = BatchPlan(None, (BARRIER,), (0,), ReplicaVersion(0, 0, 0), 2)


@dataclass
class Book:
    """Knows nothing at first, and of `missing` never anything; `away` so many times."""

    missing: frozenset[int] = frozenset()
    away: int = 0
    known: set[int] = field(default_factory=set)

    def learn(self, ids: frozenset[int]) -> KnownSchemas:
        if self.away:
            self.away -= 1
            raise EnvironmentProblem(Code.REGISTRY_UNREACHABLE, found="nobody")
        self.known |= ids - self.missing
        schemas = tuple(WriterSchema(number, '"long"') for number in sorted(self.known))
        return KnownSchemas(schemas, ids & self.missing)


@dataclass
class Runner:
    """Lanes that wait for these ids until they are known, one after another, and are too long once."""

    ids: list[int]
    too_long: bool = False
    tasks: list[LaneTask] = field(default_factory=list)
    slots: int = 2
    is_cold: bool = False

    def run(self, task: LaneTask, way: Way) -> list[LaneOutcome]:
        self.tasks.append(task)
        open_ids = task.upstream_format.known.unanswered(self.ids)
        waits = Undone(0, Awaits(frozenset(sorted(open_ids)[:1]))) if open_ids else LaneResult(0)
        is_too_long = self.too_long and not task.in_parts
        return [waits, Undone(1, Lack.PARTS) if is_too_long else LaneResult(1)]


@dataclass
class Tasks:
    """Tasks like `LaneTasks`, of a plan that needs nothing else."""

    setup: Any
    upstream_format: Format = field(default_factory=lambda: UpsertFormat(encoding="avro-registry"))
    batch_sizer: Any = None
    known_ends: Any = None

    def learn(self, ids: frozenset[int], refused: frozenset[int]) -> Format:
        return LaneTasks.learn(cast("LaneTasks", self), ids, refused)

    def way(self, task: LaneTask) -> Way:
        return Way.SHUFFLED

    def task(self, plan: BatchPlan, progress: Any) -> LaneTask:
        return lane_task(Storage("/nowhere"), table(), plan, upstream_format=self.upstream_format)


def attempts(runner: Runner, book: Book) -> tuple[LaneAttempts, Tasks]:
    journal, overruns = SimpleNamespace(is_superseded=False), cast("Any", None)
    bad_records = SimpleNamespace(topic="orders")
    setup: Any = SimpleNamespace(
        lanes=runner,
        journal=journal,
        schemas=book,
        now_ms=lambda: 0,
        bad_records=bad_records,
        logged=None,
        log_resets=None,
    )
    tasks = Tasks(setup)
    return LaneAttempts(setup, cast("LaneTasks", tasks), overruns), tasks


def test_it_runs_again_until_every_id_is_answered_and_what_is_known_stays_known() -> None:
    runner, book = Runner([6, 7, 8, 9], too_long=True), Book(missing=frozenset({6, 8}))
    tried, tasks = attempts(runner, book)
    run = tried.run_lanes(PLAN, {})
    assert run.plan == PLAN
    assert len(run.results) == 2
    assert [task.in_parts for task in runner.tasks] == [False] * 5 + [True]
    assert runner.tasks[-1].upstream_format.known.refused == {6, 8}
    assert [schema.id for schema in tasks.upstream_format.known.schemas] == [7, 9]
    assert tasks.upstream_format.known.refused == frozenset()


@pytest.mark.parametrize("away", [1, ATTEMPTS])
def test_a_registry_that_is_away_is_tried_as_often_as_lanes_are(away: int) -> None:
    tried, _ = attempts(Runner([7]), Book(away=away))
    if away < ATTEMPTS:
        tried.run_lanes(PLAN, {})
        assert tried.take_retry_reasons() == (Code.REGISTRY_UNREACHABLE,)
    else:
        with pytest.raises(EnvironmentProblem) as caught:
            tried.run_lanes(PLAN, {})
        assert caught.value.code is Code.REGISTRY_UNREACHABLE


@pytest.mark.parametrize(("silent", "expected"), [(False, True), (True, False)])
def test_what_sends_nothing_is_no_overrun_whatever_its_plan_has_read(silent: bool, expected: bool) -> None:
    job = JobDefinition("copy", "copy", plain(["id"]), None, 2, None, None, 16)
    plan = replace(PLAN, jobs=(JobPlan(JobState(job, 0), (Slice(0, None, None),)),), silent=silent)
    task = replace(Tasks(None).task(plan, {}), plan=plan)
    died = EnvironmentProblem(Code.SPARK_FAILED, found="a worker that died")
    assert is_overrun(task, died, 0, attempt=2) is expected
