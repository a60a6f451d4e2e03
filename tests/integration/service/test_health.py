"""Ready means that barriers come out: what keeps them back is named, with its place, while it lasts and no longer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from schemas.errors import BackfillError, Code
from schemas.records import Change, Op
from schemas.table import declare
from streaming.broker.embedded import EmbeddedBroker
from streaming.core.health import LEAST_LATE_S, Health, HealthCondition
from streaming.kafka.clients import KafkaSettings
from tests.integration.service.conftest import ORDERS
from tests.kit.real import Run, SetUp, Stage, await_condition
from tests.kit.real_upstream import RealUpstream, row

LATE_S = 5.0
Logs = list[Any]


def started(stage: Stage, *, late_s: float = LATE_S, **over: Any) -> Run:
    service = stage.service(**over)
    service.late_s = late_s
    return Run(service)


def becomes(run: Run, condition: HealthCondition) -> Health:
    def is_so() -> bool:
        assert run.error is None, run.error
        return run.service.vitals.health().condition is condition

    await_condition(is_so, condition)
    return run.service.vitals.health()


def conditions(logs: Logs) -> list[tuple[Any, ...]]:
    """Conditions that began and that were over, by the log."""
    return [
        (line["is_now"], line.get("code")) if line["event"] == "condition" else ("over", line["was"])
        for line in logs
        if line["event"] in ("condition", "condition_over")
    ]


@pytest.fixture
def open_transaction(bootstrap: str) -> Iterator[Callable[[str], Producer]]:
    """`open_transaction(topic)`: a producer that has sent one record and left it at that."""
    made: list[Producer] = []

    def build(topic: str) -> Producer:
        settings = KafkaSettings(bootstrap).transactional(f"other-{uuid.uuid4().hex}", timeout_ms=900_000)
        producer = Producer(settings)
        made.append(producer)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"never seen", b"by anybody", partition=1)
        assert producer.flush(30) == 0
        return producer

    yield build
    for producer in made:
        with suppress(KafkaException):  # the test has ended it
            producer.abort_transaction(30)


@pytest.mark.parametrize("barriers", ["inject", "embedded"])
def test_an_open_transaction_upstream_is_named_and_the_service_goes_on_after_it(
    set_up: SetUp, open_transaction: Callable[[str], Producer], barriers: str
) -> None:
    stage = set_up({"name": "copy"})
    upstream = stage.upstream
    for number in range(20):
        upstream.put(row(number))
    with capture_logs() as logs:
        run = started(stage, barriers=barriers, barrier_interval="200ms")
        if barriers == "embedded":
            run.reach(upstream.barrier())
        run.until(lambda: run.is_complete("copy") or barriers == "embedded")
        upstream.flush()
        producer = open_transaction(upstream.name)
        if barriers == "embedded":
            upstream.barrier()
        stuck = becomes(run, HealthCondition.UPSTREAM_STUCK)
        assert not stuck.ready
        assert stuck.reason is not None
        assert stuck.reason.code is Code.BARRIER_STALLED
        held = stuck.reason.where
        assert held is not None
        assert held.startswith(f"{upstream.name}-1@")
        (mark,) = [marks for number, marks in enumerate(run.service.vitals.marks) if number == 1]
        assert held.endswith(f"@{mark.stable}")
        # A look may find the injector within its own transaction, which is over by the next one.
        await_condition(
            lambda: run.service.vitals.held_s().keys() == {1}, "only the open transaction is left"
        )
        named = (HealthCondition.UPSTREAM_STUCK, Code.BARRIER_STALLED)
        await_condition(lambda: named in conditions(logs), "its line in the log")
        batches = len(run.reports)
        producer.abort_transaction(30)
        run.until(lambda: len(run.reports) > batches)
        assert run.service.vitals.health().ready
        run.stop()
    said = conditions(logs)
    assert said.count(named) == said.count(("over", HealthCondition.UPSTREAM_STUCK))
    assert stage.verify(complete=barriers == "inject").clean


def test_records_that_an_open_transaction_holds_are_logged_where_barriers_beside_the_data_go_on(
    set_up: SetUp, open_transaction: Callable[[str], Producer]
) -> None:
    stage = set_up({"name": "copy"}, beside=True)
    upstream = stage.upstream
    for number in range(20):
        upstream.put(row(number))

    def lines(event: str) -> list[Any]:
        return [each for each in logs if each["event"] == event]

    with capture_logs() as logs:
        run = started(stage, barriers="inject", barrier_interval="200ms")
        run.until(lambda: run.is_complete("copy"))
        upstream.flush()
        producer = open_transaction(upstream.name)
        upstream.change(Change(Op.INSERT, None, row(100)), partition=1)
        upstream.flush()
        await_condition(lambda: bool(lines("records_held")), "the line of what is held")
        (line,) = lines("records_held")
        place = f"{upstream.name}-1@{run.service.vitals.marks[1].stable}"
        assert (line["where"], line["log_level"], line["records"]) == (place, "warning", 2)
        assert line["late_s"] >= 1
        assert datetime.fromisoformat(line["since"]) <= datetime.now(UTC)
        batches = len(run.reports)
        run.until(lambda: len(run.reports) > batches + 3)
        health = run.service.vitals.health()
        assert (health.condition, health.ready, health.reason) == (HealthCondition.SERVING, True, None)
        assert run.service.vitals.held_s().keys() == {1}
        producer.abort_transaction(30)
        await_condition(lambda: bool(lines("records_held_over")), "the line that it is over")
        assert [line["where"] for line in lines("records_held_over")] == [place]
        run.until(lambda: run.reports[-1].plan.end_offsets[1] >= run.service.vitals.marks[1].stable)
        run.stop()
    assert len(lines("records_held")) == 1
    assert stage.verify().clean


def test_barriers_that_stop_and_one_that_is_missing_in_a_partition_are_named_apart(set_up: SetUp) -> None:
    stage = set_up({"name": "copy"})
    upstream = stage.upstream
    for number in range(20):
        upstream.put(row(number))
    with capture_logs() as logs:
        run = started(stage)
        run.reach(upstream.barrier())
        assert run.service.vitals.health().ready
        missing = becomes(run, HealthCondition.WAITING)
        assert not missing.ready
        assert missing.reason is not None
        assert (missing.reason.code, missing.reason.where) == (Code.NO_BARRIERS, upstream.name)
        silent = (HealthCondition.WAITING, Code.NO_BARRIERS)
        await_condition(lambda: silent in conditions(logs), "its line in the log")
        late = upstream.next()
        upstream.deliver(late, 0)

        def lacks() -> BackfillError | None:
            reason = run.service.vitals.health().reason
            return reason if reason is not None and reason.code is Code.BARRIER_STALLED else None

        await_condition(lambda: lacks() is not None, "a barrier that is missing in a partition")
        reason = lacks()
        assert reason is not None
        assert reason.where is not None
        assert reason.where.startswith(f"{upstream.name}-1@")
        stalled = (HealthCondition.WAITING, Code.BARRIER_STALLED)
        await_condition(lambda: stalled in conditions(logs), "its line in the log")
        upstream.deliver(late, 1)
        run.reach(late)
        assert run.service.vitals.health().ready
        run.service.stop()
        assert run.service.vitals.health().condition is HealthCondition.STOPPING
        run.stop()
    first, second, *others = conditions(logs)
    assert (first, second) == (silent, ("over", HealthCondition.WAITING))
    assert stalled in others
    assert stage.verify(complete=False).clean


@pytest.mark.parametrize("barriers", ["inject", pytest.param("embedded", marks=pytest.mark.faults)])
def test_a_broker_that_dies_is_named_with_its_address_within_half_a_minute(
    spark: SparkSession, tmp_path: Path, barriers: str
) -> None:
    with EmbeddedBroker(log=tmp_path / "kafka.log") as broker:
        kafka = KafkaSettings(broker.bootstrap)
        upstream = RealUpstream(declare(ORDERS), kafka, "up", 2)
        job = {"name": "copy", "output": "copy", "output_partitions": 4}
        stage = Stage(spark, upstream, tmp_path, [job])
        for number in range(20):
            upstream.put(row(number))
        run = started(stage, late_s=LEAST_LATE_S, barriers=barriers)
        if barriers == "embedded":
            run.reach(upstream.barrier())
        run.until(lambda: bool(run.reports))
        broker.kill()
        died_s = time.monotonic()
        degraded = becomes(run, HealthCondition.DEGRADED)
        assert time.monotonic() - died_s < LEAST_LATE_S
        assert not degraded.ready
        assert degraded.reason is not None
        assert degraded.reason.code is Code.BROKER_UNREACHABLE
        assert broker.bootstrap in degraded.reason.found
        broker.start()
        batches = len(run.reports)
        if barriers == "embedded":
            upstream.barrier()
        run.until(lambda: len(run.reports) > batches)
        assert run.service.vitals.health().ready
        run.stop()
        upstream.close()
