"""A service that injects its own barriers, and what stands between them that it did not announce."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.avro.codec import barrier_header
from schemas.errors import Code, InputError
from schemas.records import Change, Op
from state.replica import Replica
from state.storage import Storage
from streaming.kafka.topics import watermarks
from streaming.kafka.transactions import TransactionalProducer
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import DataTopicTarget
from tests.kit.real import Run, SetUp, await_condition, expected

INJECTED: dict[str, Any] = {"barriers": "inject", "barrier_interval": "100ms"}


def epochs_taken(run: Run) -> set[int]:
    return {barrier.epoch for report in run.reports for barrier in report.plan.barriers}


def test_barriers_of_another_injector_count_like_its_own(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    upstream = stage.upstream
    # It fences the service's, which comes back an interval later.
    with stage.running(barriers="inject", barrier_interval="2s") as run:
        run.until(lambda: len(run.reports) > 1)
        state = Replica(Storage(str(stage.folder / "state")), upstream.table).id
        for number in range(3):
            upstream.put((number, "EU", None, None))
            upstream.flush()
            other = BarrierInjector(upstream.kafka, DataTopicTarget(upstream.name), 1_000, owner=state)
            barrier = other.inject_one()
            other.stop()
            run.reach(barrier)
            assert barrier.curr in epochs_taken(run)
            run.until(lambda behind=barrier.curr: run.epoch > behind)  # type: ignore[misc]  # bound
    assert stage.verify().clean


def test_barriers_behind_an_open_transaction_wait_for_its_end(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    upstream = stage.upstream
    change = upstream.changes.encode(Change(Op.INSERT, None, (1, "EU", None, None)))
    with stage.running(**INJECTED) as run, TransactionalProducer(upstream.kafka, upstream.name) as writer:
        run.until(lambda: run.is_complete("copy"))
        with writer.transaction() as producer:
            producer.produce(upstream.name, change, upstream.keys.encode((1,)), 0)
            assert producer.flush(30) == 0
            stable = watermarks(upstream.kafka, upstream.name)[0].stable
            later = stable + 8
            await_condition(lambda: watermarks(upstream.kafka, upstream.name)[0].high > later, "barriers")
            assert run.reports[-1].plan.end.ends[0] <= stable
        run.until(lambda: run.reports[-1].plan.end.ends[0] > later)
    assert sum(report.changes for report in run.reports) == 1
    assert stage.verify().clean


@pytest.mark.parametrize("is_a_change", [True, False])
def test_a_record_that_is_marked_as_a_barrier_and_is_none_ends_it_until_it_is_named(
    set_up: SetUp, is_a_change: bool
) -> None:
    stage = set_up({"name": "copy"})
    upstream = stage.upstream
    run = Run(stage.service(**INJECTED, on_bad_record="park"))
    run.until(lambda: len(run.reports) > 2)
    mark = barrier_header(run.reports[-1].plan.end.barrier)
    change = upstream.changes.encode(Change(Op.INSERT, None, (1, "EU", None, None)))
    key, value = (upstream.keys.encode((1,)), change) if is_a_change else (None, b"no barrier")
    offset = upstream.send(0, key, value, barrier=mark)
    expected(run.end(), InputError, Code.AMBIGUOUS_RECORD, f"{upstream.name}-0@{offset}")
    with stage.running(**INJECTED, skip=frozenset({(0, offset)})) as again:
        again.until(lambda: len(again.reports) > 2)
    assert stage.verify(left_out=frozenset({(0, offset)})).clean
