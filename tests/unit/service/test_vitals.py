"""Reports of a service's start, of an outage and of held records, by a clock that is set by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from schemas.errors import Code, EnvironmentProblem
from streaming.core.health import HealthCondition, HealthFacts, StuckPartition
from streaming.service.vitals import HeldRecordsLog, Vitals
from tests.kit.clock import Clock

AWAY = EnvironmentProblem(Code.BROKER_UNREACHABLE, found="no answer", expected="one", next_step="start it")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def vitals(clock: Clock) -> Vitals:
    return Vitals("up", 1_000, late_s=30.0, injects=True, clock=clock)


def test_each_step_of_a_start_is_logged_and_none_is_left_once_a_batch_has_ended(vitals: Vitals) -> None:
    under_way: list[str | None] = []
    with capture_logs() as lines:
        vitals.begins("reading the state")
        under_way.append(vitals.step)
        vitals.streams()
        under_way.append(vitals.step)
        vitals.batch_done()
        under_way.append(vitals.step)
        vitals.begins("checking the topics")  # again, after trouble
        vitals.streams()
        under_way.append(vitals.step)
    assert under_way == ["reading the state", "waiting for a barrier", None, None]
    steps = [line["step"] for line in lines if line["event"] == "starting"]
    assert steps == ["reading the state", "waiting for a barrier", "checking the topics"]


def test_a_stream_that_has_just_begun_is_a_sign_of_work_though_spark_s_last_one_is_older(
    vitals: Vitals, clock: Clock
) -> None:
    vitals.batch_done()  # of barriers that were there at the start
    clock.now_s = 50.0
    vitals.streams()
    vitals.spark_works(busy_since_s=49.0, progress_s=1.0)
    clock.now_s = 79.0
    assert vitals.health().condition == HealthCondition.CATCHING_UP
    clock.now_s = 81.0
    assert vitals.health().condition == HealthCondition.STUCK


def test_after_an_outage_the_only_alarm_is_the_outage(vitals: Vitals, clock: Clock) -> None:
    vitals.streams()
    vitals.batch_done()
    with capture_logs() as lines:
        for second in range(150):
            clock.now_s = float(second)
            if second == 5:
                vitals.broker_away(AWAY)
            if second == 125:
                vitals.broker_answers([])
            if second == 145:
                vitals.batch_done()
            vitals.log_changes()
    alarms = [(line["is_now"], line["code"]) for line in lines if line["event"] == "condition"]
    assert alarms == [("degraded", Code.BROKER_UNREACHABLE)]
    (over,) = [line for line in lines if line["event"] == "condition_over"]
    assert over["is_now"] == HealthCondition.SERVING


FACTS = HealthFacts("orders", 1_000, late_s=30.0, started_s=0.0)


def logged(*moments: tuple[float, tuple[StuckPartition, ...]]) -> list[dict[str, Any]]:
    held_log = HeldRecordsLog()
    with capture_logs() as lines:
        for now_s, held in moments:
            held_log.update(replace(FACTS, held=held), now_s)
    return [dict(line) for line in lines]


def test_a_usual_transaction_is_not_logged() -> None:
    assert (
        logged((100, (StuckPartition(0, 7, 9, 100),)), (109, (StuckPartition(0, 7, 9, 100),)), (110, ()))
        == []
    )


def test_what_lasts_is_logged_once_and_once_where_it_is_over() -> None:
    held = StuckPartition(3, 7, 19, 100)
    begin, over = logged((105, (held,)), (110, (held,)), (111, (held,)), (500, (held,)), (501, ()), (502, ()))
    assert (begin["event"], begin["where"], begin["late_s"], begin["records"]) == (
        "records_held",
        "orders-3@7",
        10,
        12,
    )
    assert begin["next_step"].startswith("end its producer")
    assert (over["event"], over["where"], over["lasted_s"]) == ("records_held_over", "orders-3@7", 401)


def test_each_partition_and_each_transaction_is_logged_apart() -> None:
    first, second, third = (
        StuckPartition(0, 7, 9, 100),
        StuckPartition(1, 5, 6, 100),
        StuckPartition(0, 9, 12, 115),
    )
    lines = logged((112, (first, second)), (116, (second, third)), (130, (second, third)))
    assert [(line["event"], line["where"]) for line in lines] == [
        ("records_held", "orders-0@7"),
        ("records_held", "orders-1@5"),
        ("records_held_over", "orders-0@7"),
        ("records_held", "orders-0@9"),
    ]
