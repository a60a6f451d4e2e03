"""Nothing dies, and yet no barrier comes out: the service says why, and goes on by itself once the cause is gone."""

from __future__ import annotations

import signal
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from schemas.errors import BackfillError, Code
from schemas.table import declare
from streaming.broker.embedded import EmbeddedBroker, free_port
from streaming.core.health import LEAST_LATE_S
from streaming.kafka.clients import KafkaSettings
from tests.bench.rig import TABLE
from tests.faults.conftest import KillScenarios
from tests.kit.kill_scenario import KillScenario
from tests.kit.process import Process
from tests.kit.real import Run, Stage, await_condition
from tests.kit.real_upstream import RealUpstream

pytestmark = pytest.mark.timeout(900)


def more_batches(process: Process, count: int = 1) -> None:
    seen = len(process.events("batch"))
    await_condition(
        lambda: len(process.events("batch")) >= seen + count or process.popen.poll() is not None,
        "another batch",
    )
    assert process.popen.poll() is None, process.lines[-5:]


def conditions(process: Process) -> list[str]:
    return [line["is_now"] for line in process.events("condition")]


def readiness(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode().strip()


@contextmanager
def open_transaction(tried: KillScenario) -> Iterator[None]:
    """A producer that has sent one record, and is aborted at the end of the block."""
    settings = tried.kafka.transactional(f"other-{uuid.uuid4().hex}", timeout_ms=900_000)
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(tried.upstream, b"never seen", b"by anybody", partition=2)
    assert producer.flush(30) == 0
    try:
        yield
    finally:
        producer.abort_transaction(30)


@pytest.mark.faults
def test_a_producer_leaves_a_transaction_open_upstream(kill_scenario: KillScenarios) -> None:
    port = free_port()
    tried = kill_scenario(rows=2_000, rate_limit=100, config={"http": {"listen": f"127.0.0.1:{port}"}})
    with tried.live():
        process = tried.start()
        more_batches(process, 3)
        assert readiness(port) == (200, "serving")
        with open_transaction(tried):
            began_s = time.monotonic()
            await_condition(lambda: "upstream stuck" in conditions(process), "that it is said")
            assert time.monotonic() - began_s < LEAST_LATE_S + 10
            assert readiness(port) == (503, "upstream stuck")
            (line,) = (line for line in process.events("condition") if line["is_now"] == "upstream stuck")
            assert line["code"] == "BARRIER_STALLED"
            assert line["where"].startswith(f"{tried.upstream}-2@")
        ended_s = time.monotonic()
        more_batches(process)
        tried.recoveries_s.append(time.monotonic() - ended_s)
        assert readiness(port)[0] == 200
        await_condition(lambda: process.says("condition_over"), "that it is over")
        assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
        tried.completes()
    tried.judge()


@pytest.mark.faults
def test_a_service_starts_beside_an_open_transaction(kill_scenario: KillScenarios) -> None:
    tried = kill_scenario(rows=2_000, rate_limit=100)
    with tried.live():
        with open_transaction(tried):
            process = tried.start()
            await_condition(lambda: process.says("interrupted"), "the first attempt's end")
            assert "upstream stuck" in conditions(process)
            assert process.popen.poll() is None
        more_batches(process)
        assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
        tried.completes()
    tried.judge()


@pytest.mark.faults
def test_a_lane_that_hangs_is_ended_and_its_batch_sent_again(kill_scenario: KillScenarios) -> None:
    tried = kill_scenario(config={"batch_timeout": "30s"})
    with tried.live():
        process = tried.start("lane-sent@3:sleep", until_complete=True)
        tried.await_reached(process, "lane-sent")
        assert process.end() == 0, process.lines[-5:]
        assert process.events("spark_job_ended")
    tried.judge()


@pytest.mark.faults
def test_a_broker_that_is_away_is_waited_for_though_the_last_batch_is_long_ago(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Barriers come once in a while, and the limit of trouble is short: trouble begins after it would be over."""
    trouble_limit_s = 45.0
    with EmbeddedBroker(log=tmp_path / "kafka.log") as broker:
        upstream = RealUpstream(declare(TABLE.to_dict()), KafkaSettings(broker.bootstrap), "up", 2)
        stage = Stage(spark, upstream, tmp_path, [{"name": "copy", "output": "copy", "output_partitions": 4}])
        service = stage.service()
        service.trouble_limit_s = trouble_limit_s
        troubles: list[BackfillError] = []
        service.on_trouble = troubles.append
        run = Run(service)
        run.reach(upstream.barrier())
        began_s = time.monotonic()
        broker.kill()
        await_condition(lambda: bool(troubles) or run.error is not None, "Spark's giving up")
        assert time.monotonic() - began_s > trouble_limit_s
        broker.start()
        run.reach(upstream.barrier())
        run.stop()
        upstream.close()
    assert {each.code for each in troubles} == {Code.BROKER_UNREACHABLE}
