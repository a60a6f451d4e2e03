"""A fault of the table suspends it: the process stays, says why, and goes on by a request, exactly once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.errors import BackfillError, Code, Fenced, InputError
from schemas.records import Add, Drop, Mutation
from state.journal import Journal
from state.storage import Storage
from state.values.last_end import EndKind, LastEnd
from streaming.control.client import send_suspended
from streaming.core.health import HealthCondition
from streaming.protocol.report import BatchReport, StateAtBarrier
from streaming.source.barriers.injecting.control_requests import (
    DropAndTryAgain,
    EndProcess,
    SuspendedAction,
    TryAgain,
)
from tests.kit.folded import folded
from tests.kit.real import Run, SetUp, Stage, await_condition


def row(number: int) -> tuple[Any, ...]:
    return (number, "EU", None, f"n{number}")


class Found:
    """Observer that keeps the last state that a start has found."""

    def __init__(self) -> None:
        self.state: StateAtBarrier | None = None

    def starts_from(self, state: StateAtBarrier) -> None:
        self.state = state

    def batch(self, report: BatchReport) -> None:
        """Nothing."""

    def trouble(self, problem: BackfillError) -> None:
        """Nothing."""


def ask(stage: Stage, action: SuspendedAction) -> None:
    send_suspended(stage.upstream.kafka, stage.upstream.topics.control, action)


def last_end(stage: Stage) -> LastEnd:
    end = Journal(Storage(str(stage.config().state)), stage.upstream.table).last_end
    assert end is not None
    return end


def await_suspended(
    stage: Stage, run: Run, code: Code = Code.UNKNOWN_OP, *, where: str | None = None, times: int = 1
) -> LastEnd:
    """Wait for it; the end that the state has, which names this fault."""

    def is_there() -> bool:
        assert run.error is None, run.error
        end = run.service.vitals.last_end
        fault = None if end is None else end.fault
        return end is not None and fault is not None and where in (None, fault.where) and end.times == times

    await_condition(is_there, "the suspension")
    health = run.service.vitals.health()
    assert health.condition is HealthCondition.SUSPENDED
    assert not health.ready
    end = last_end(stage)
    assert health.reason is not None
    assert end.fault is not None
    assert (health.reason.where, end.fault.code) == (end.fault.where, code)
    return end


def check(stage: Stage, left_out: frozenset[tuple[int, int]]) -> None:
    stage.assert_lawful(0, left_out=left_out)
    assert folded(stage, number=0) == stage.upstream.rows


def test_a_bad_record_suspends_the_table_until_it_is_left_out(set_up: SetUp) -> None:
    stage = set_up({"name": "rows", "format": "upsert"}, {"name": "more"})
    upstream = stage.upstream
    for number in range(20):
        upstream.put(row(number))
    run = Run(stage.service(on_table_fault="suspend"))
    run.reach(upstream.barrier())
    bad = [upstream.send(0, upstream.keys.encode((1,)), b"no change")]
    upstream.put(row(21))
    upstream.barrier()
    # 1. The first fault, and a try that changes nothing: counted, with its beginning.
    first = await_suspended(stage, run, where=f"{upstream.name}-0@{bad[0]}")
    assert first.kind is EndKind.SUSPENDED
    ask(stage, TryAgain())
    again = await_suspended(stage, run, times=2)
    assert again.since_ms == first.since_ms
    assert again.at_ms >= first.at_ms
    # 2. Stopped and started again: the same fault, with the old beginning.
    run.stop()
    assert last_end(stage).kind is EndKind.SUSPENDED
    service, found = stage.service(on_table_fault="suspend"), Found()
    service.observers = (found,)
    run = Run(service)
    third = await_suspended(stage, run, times=3)
    assert third.since_ms == first.since_ms
    assert found.state is not None
    assert [job.name for job in found.state.jobs] == ["rows", "more"]
    assert found.state.epoch > 0
    # 3. It goes on without the record, and meets the next fault.
    bad.append(upstream.send(0, upstream.keys.encode((2,)), b""))
    upstream.barrier()
    ask(stage, TryAgain(frozenset({(0, bad[0])})))
    await_suspended(stage, run, Code.EMPTY_RECORD, where=f"{upstream.name}-0@{bad[1]}")
    ask(stage, TryAgain(frozenset({(0, bad[1])})))
    run.reach(upstream.barrier())
    assert run.service.vitals.last_end is None
    run.stop()
    assert last_end(stage).kind is EndKind.STOPPED
    check(stage, frozenset((0, offset) for offset in bad))


def test_a_suspended_service_ends_by_a_request_that_is_not_found_again(set_up: SetUp) -> None:
    stage = set_up({"name": "rows", "format": "upsert"})
    upstream = stage.upstream
    upstream.put(row(1))
    run = Run(stage.service(on_table_fault="suspend"))
    run.reach(upstream.barrier())
    bad = upstream.send(0, upstream.keys.encode((1,)), b"no change")
    upstream.barrier()
    await_suspended(stage, run)
    ask(stage, EndProcess())
    assert run.end() is None
    run = Run(stage.service(on_table_fault="suspend"))
    await_suspended(stage, run, times=2)
    ask(stage, TryAgain(frozenset({(0, bad)})))
    run.reach(upstream.barrier())
    run.stop()
    check(stage, frozenset({(0, bad)}))


def test_another_instance_of_its_name_takes_over_and_is_led_on(set_up: SetUp) -> None:
    """The first leaves a note that it was taken over from, which is not about the second."""
    stage = set_up({"name": "rows", "format": "upsert"})
    upstream = stage.upstream
    upstream.put(row(1))
    first = Run(stage.service(on_table_fault="suspend"))
    first.reach(upstream.barrier())
    bad = upstream.send(0, upstream.keys.encode((1,)), b"no change")
    upstream.barrier()
    begun = await_suspended(stage, first)
    service = stage.service(on_table_fault="suspend")
    service.owner = "the second"
    second = Run(service)
    assert isinstance(first.end(), Fenced)
    end = await_suspended(stage, second, times=2)
    assert (end.owner, end.since_ms) == ("the second", begun.since_ms)
    ask(stage, TryAgain(frozenset({(0, bad)})))
    second.reach(upstream.barrier())
    second.stop()
    check(stage, frozenset({(0, bad)}))


def test_a_job_is_dropped_while_its_table_is_suspended(set_up: SetUp) -> None:
    stage = set_up({"name": "rows", "format": "upsert"}, {"name": "more"})
    upstream = stage.upstream
    for number in range(20):
        upstream.put(row(number))
    run = Run(stage.service(on_table_fault="suspend"))
    run.reach(upstream.barrier())
    run.reach(upstream.barrier())
    assert {job.name for job in run.reports[-1].outcome.jobs} == {"rows", "more"}
    bad = upstream.send(0, upstream.keys.encode((1,)), b"no change")
    upstream.put(row(22))
    upstream.barrier()
    await_suspended(stage, run)
    ask(stage, DropAndTryAgain("more"))
    await_suspended(stage, run, times=2)
    ask(stage, TryAgain(frozenset({(0, bad)})))
    report = run.reach(upstream.barrier())
    assert [job.name for job in report.outcome.jobs] == ["rows"]
    run.stop()
    check(stage, frozenset({(0, bad)}))


def test_jobs_stay_as_they_are_when_a_table_goes_on_whatever_the_configuration_has(set_up: SetUp) -> None:
    """Of three in the file one is dropped by a barrier, one while it is suspended; that one is created anew then."""
    stage = set_up({"name": "rows", "format": "upsert"}, {"name": "more"}, {"name": "less"})
    upstream = stage.upstream
    upstream.put(row(1))
    run = Run(stage.service(on_table_fault="suspend"))

    def jobs_behind(mutation: Mutation | None = None) -> set[str]:
        """The jobs behind a barrier, once they are open."""
        run.reach(upstream.barrier(mutation))
        return {job.name for job in run.reach(upstream.barrier()).outcome.jobs}

    def suspends() -> tuple[int, int]:
        bad = 0, upstream.send(0, upstream.keys.encode((1,)), b"no change")
        upstream.barrier()
        await_suspended(stage, run, where=f"{upstream.name}-0@{bad[1]}")
        return bad

    assert jobs_behind() == {"rows", "more", "less"}
    assert jobs_behind(Drop("less")) == {"rows", "more"}
    bad = [suspends()]
    ask(stage, DropAndTryAgain("more"))
    await_suspended(stage, run, times=2)
    ask(stage, TryAgain(frozenset(bad)))
    assert jobs_behind() == {"rows"}
    again = {"name": "more", "output": f"{upstream.name}-more-again", "output_partitions": 2}
    assert jobs_behind(Add(json.dumps(again))) == {"rows", "more"}
    bad.append(suspends())
    ask(stage, TryAgain(frozenset(bad[1:])))
    assert jobs_behind() == {"rows", "more"}
    run.stop()
    check(stage, frozenset(bad))


@pytest.mark.parametrize("exits", [{"on_table_fault": "stop"}, {"until_complete": True}])
def test_a_service_that_is_to_exit_does(set_up: SetUp, exits: dict[str, Any]) -> None:
    stage = set_up({"name": "rows", "format": "upsert"})
    stage.upstream.put(row(1))
    stage.upstream.send(0, stage.upstream.keys.encode((1,)), b"no change")
    stage.upstream.barrier()
    stage.fails(InputError, Code.UNKNOWN_OP, **{"on_table_fault": "suspend", **exits})
    end = last_end(stage)
    assert end.kind is EndKind.FAILED
    assert end.fault is not None
    assert end.fault.code is Code.UNKNOWN_OP
