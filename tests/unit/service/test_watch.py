"""Looks beside the batches: at the upstream, at the steps of a start, at what lasts, and offsets that show the lag."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from schemas.errors import Code, EnvironmentProblem, TopicError
from schemas.formats.row_names import FieldsSeen
from streaming.core.health import HealthCondition, HealthFacts, StuckPartition
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import Watermarks
from streaming.service.lag_group import LagGroup
from streaming.service.trouble import UpstreamWatch
from streaming.service.vitals import HeldRecordsLog, Vitals
from streaming.source.direct_read import NewestRows
from streaming.source.retention import Margin
from streaming.source.upstream_checks import UpstreamGuard
from tests.kit.clock import Clock
from tests.kit.real import await_condition

AWAY = EnvironmentProblem(Code.BROKER_UNREACHABLE, found="no answer", expected="one", next_step="start it")
GONE = TopicError(Code.TOPIC_MISSING, found="no such topic", expected="it", next_step="create it")
LATE_S = 0.3


@dataclass
class Guard:
    """Answers as the test says, and remembers what it was asked."""

    answer: Exception | tuple[Watermarks, ...] = ()
    asked: list[Sequence[int]] = field(default_factory=list)

    def look(self, next_offsets: Sequence[int]) -> tuple[Watermarks, ...]:
        self.asked.append(next_offsets)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def margins(self, marks: Sequence[Watermarks], next_offsets: Sequence[int]) -> tuple[Margin, ...]:
        return tuple(Margin(number, offset, 60.0) for number, offset in enumerate(next_offsets))


@contextmanager
def watching(guard: Guard) -> Iterator[tuple[UpstreamWatch, Vitals]]:
    vitals = Vitals("up", 1_000, late_s=LATE_S, injects=False)
    vitals.streams()
    with UpstreamWatch(cast("UpstreamGuard", guard), vitals).running() as watch:
        yield watch, vitals


def becomes(vitals: Vitals, condition: HealthCondition) -> None:
    await_condition(lambda: vitals.health().condition is condition, condition)


def test_until_the_service_has_recovered_nothing_is_missed_upstream() -> None:
    guard = Guard()
    with watching(guard) as (watch, vitals):
        await_condition(lambda: len(guard.asked) > 1, "looks")
        assert set(map(tuple, guard.asked)) == {()}
        watch.next_offsets = lambda: (7, 9)
        await_condition(lambda: guard.asked[-1] == (7, 9), "a look behind the last batch")
        await_condition(lambda: vitals.margins_s() == {0: 60.0, 1: 60.0}, "what it keeps")


class Fields:
    """Says of so many records that it has seen them, and whether it was closed."""

    closed = False

    def look(self, marks: Sequence[Watermarks]) -> FieldsSeen:
        return FieldsSeen(sum(mark.stable for mark in marks), lost=("a",))

    def close(self) -> None:
        self.closed = True


def test_the_newest_rows_are_looked_at_as_often() -> None:
    vitals, fields = Vitals("up", 1_000, late_s=LATE_S, injects=False), Fields()
    with UpstreamWatch(
        cast("UpstreamGuard", Guard((Watermarks(0, 3, 5),))), vitals, cast("NewestRows", fields)
    ).running():
        await_condition(lambda: vitals.fields == FieldsSeen(3, ("a",)), "its fields")
        assert not fields.closed
    assert fields.closed


@pytest.mark.parametrize(
    ("answer", "condition"),
    [(AWAY, HealthCondition.DEGRADED), ((Watermarks(0, 3, 5),), HealthCondition.UPSTREAM_STUCK)],
)
def test_what_is_seen_makes_the_condition_and_its_end_ends_it(
    answer: Exception | tuple[Watermarks, ...], condition: HealthCondition
) -> None:
    guard = Guard(answer)
    with watching(guard) as (watch, vitals):
        becomes(vitals, condition)
        watch.check()
        guard.answer = (Watermarks(0, 5, 5),)
        becomes(vitals, HealthCondition.WAITING)


@pytest.mark.parametrize("raised", [GONE, RuntimeError("nobody foresaw it")])
def test_what_ends_the_service_is_raised_where_it_is_asked_for(raised: Exception) -> None:
    def raises(check: Callable[[], None]) -> bool:
        try:
            check()
        except type(raised) as found:
            return found is raised
        return False

    with watching(Guard(raised)) as (watch, _):
        await_condition(lambda: raises(watch.check), "the failure")


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


def group() -> LagGroup:
    return LagGroup(KafkaSettings("localhost:1"), "orders", "backfill-orders", clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("code", "goes_on"),
    [
        (KafkaError.NOT_COORDINATOR, True),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, True),
        (KafkaError.REQUEST_TIMED_OUT, True),
        (KafkaError._TRANSPORT, True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, False),
    ],
)
def test_only_a_missing_right_ends_it_and_is_logged_once(
    code: int, goes_on: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    lag = group()
    for _ in range(3):
        lag._on_commit(KafkaError(code), [])
    assert capsys.readouterr().out.count("grant Read") == (0 if goes_on else 1)
    assert lag._is_refused is not goes_on


def test_a_broker_that_is_away_delays_nothing() -> None:
    lag, began_s = group(), time.monotonic()
    lag._commit((1, 2))
    lag.close()
    assert time.monotonic() - began_s < 10
