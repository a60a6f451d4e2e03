"""An interval without records takes no Spark job, and its barrier comes out all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from schemas.records import Change, Op
from state.values.aligned import AlignedBarrier
from state.values.plan import BatchPlan
from streaming.kafka.clients import KafkaSettings
from streaming.protocol.lanes import runner
from streaming.runtime import session
from streaming.source.direct_read import QuietIntervals
from tests.kit.kafka_topics import remove_beginning
from tests.kit.real import SetUp, Stage
from tests.kit.real_upstream import RealUpstream, UpsertUpstream, version_of


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each Spark job of lanes."""
    began: list[int] = []

    def counted(run: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*work: Any) -> Any:
            began.append(len(began))
            return run(*work)

        return counting

    monkeypatch.setattr(runner, "run_each", counted(session.run_each))
    monkeypatch.setattr(runner, "run_numbers", counted(session.run_numbers))
    return began


@pytest.mark.parametrize(
    ("upstream", "beside"), [(RealUpstream, False), (RealUpstream, True), (UpsertUpstream, True)]
)
def test_barriers_of_an_idle_table_come_out_without_spark(
    set_up: SetUp, jobs: list[int], beside: bool, upstream: type[RealUpstream]
) -> None:
    stage = set_up({"name": "copy", "filter": "note <> 'n7'"}, beside=beside, upstream_type=upstream)
    for number in range(200):
        stage.upstream.put(version_of(number))
    with stage.running() as run:
        stage.finish(run, "copy")
        run.reach(stage.upstream.barrier())
        before = len(jobs)
        for _ in range(5):
            run.reach(stage.upstream.barrier())
        assert len(jobs) == before
        stage.upstream.put(version_of(3, 7))
        run.reach(stage.upstream.barrier())
        assert len(jobs) == before + 1
        run.reach(stage.upstream.barrier())
        stage.upstream.delete(4)
        run.reach(stage.upstream.barrier())
        assert len(jobs) == before + 2
    assert stage.verify().clean
    assert run.reports[-1].sent_live == {"copy": 1}


def plan_of(stage: Stage, first: tuple[int, ...], ends: tuple[int, ...]) -> BatchPlan:
    barrier = stage.upstream.last
    assert barrier is not None
    return BatchPlan(
        start=None,
        barriers=(AlignedBarrier(barrier, ends),),
        first_offsets=first,
        replica=None,  # type: ignore[arg-type]  # what is asked of the plan does not go by it
        lanes=1,
    )


def test_only_what_is_surely_nothing_is_quiet(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"}, partitions=2)
    upstream = stage.upstream
    intervals = QuietIntervals(upstream.kafka, upstream.name)
    upstream.barrier()
    # In each partition: a barrier, the marker of its transaction, and a barrier again.
    upstream.barrier()
    quiet = plan_of(stage, (1, 1), (3, 3))
    assert intervals.is_quiet(quiet)
    assert intervals.is_quiet(plan_of(stage, (2, 2), (2, 2)))
    assert not intervals.is_quiet(plan_of(stage, (0, 0), (3, 3))), "the first barrier is none of the plan's"
    assert intervals.is_quiet(replace(plan_of(stage, (0, 0), (3, 3)), skipped=((0, 0), (1, 0))))
    offset = upstream.change(Change(Op.INSERT, None, version_of(1)), partition=1)
    assert not intervals.is_quiet(plan_of(stage, (1, 1), (3, offset + 1)))
    assert intervals.is_quiet(quiet), "the consumer reads on wherever it is asked to"
    remove_beginning(upstream.kafka.bootstrap, upstream.name, 2)
    assert not intervals.is_quiet(quiet), "what is lost is not nothing"


def test_a_broker_that_does_not_answer_says_nothing_of_an_interval(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"}, partitions=2)
    stage.upstream.barrier()
    nobody = KafkaSettings("127.0.0.1:1", wait_s=0.5)
    assert not QuietIntervals(nobody, stage.upstream.name).is_quiet(plan_of(stage, (0, 0), (1, 1)))
