"""Traces: off unless asked for, one span a batch with its steps, and a collector that is away holds up nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem
from streaming.observe.traces import is_wanted, traced
from streaming.protocol.report import BatchReport, Observer
from streaming.service.service import Service
from tests.kit.collector import Sent, collector
from tests.kit.reports import report

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@dataclass
class Listener:
    """Calls that a service makes, and spans that are read of them; the service itself takes Spark."""

    observers: tuple[Observer, ...] = ()

    def __post_init__(self) -> None:
        self.owner = "instance-1"
        self.config = SimpleNamespace(upstream="orders", table=SimpleNamespace(name="orders-table"))

    def on_batch(self, report: BatchReport) -> None:
        for observer in self.observers:
            observer.batch(report)

    def on_trouble(self, problem: BackfillError) -> None:
        for observer in self.observers:
            observer.trouble(problem)

    @property
    def service(self) -> Service:
        return cast("Service", self)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({ENDPOINT: "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({ENDPOINT: ""}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://c:4318"}, False),
        ({"OTEL_SDK_DISABLED": "True", ENDPOINT: "http://c:4318"}, False),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, False),
        ({ENDPOINT: "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
    ],
)
def test_traces_are_sent_only_when_asked_for(variables: dict[str, str], wanted: bool) -> None:
    assert is_wanted(variables) is wanted


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_TRACES_EXPORTER": "jaeger"},
        {ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
    ],
)
def test_what_is_not_spoken_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        is_wanted(variables)
    assert caught.value.where in variables


def test_off_costs_nothing() -> None:
    """Not a package is loaded, and nothing observes the service."""
    listener = Listener()
    with traced(listener.service):
        assert listener.observers == ()
    code = "import sys, streaming.cli.run, streaming.observe.traces as t\nwith t.traced(None): pass\n"
    code += "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def below(spans: list[Sent], parent: Sent) -> list[Sent]:
    return sorted((each for each in spans if each.parent == parent.span_id), key=lambda each: each.start_ns)


def test_a_batch_is_a_span_and_so_is_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    batch = replace(report(rows={"copy": 7}), lane_ms={"commit": 12.5}, retry_reasons=(Code.FENCED,))
    problem = EnvironmentProblem(Code.BROKER_UNREACHABLE, where="kafka", found="a secret place")
    with collector() as running:
        monkeypatch.setenv(ENDPOINT, running.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20mine")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        with traced(listener.service):
            begun_ns = time.time_ns()
            listener.on_batch(batch)
            ended_ns = time.time_ns()
            listener.on_trouble(problem)
    (whole,) = [each for each in running.spans if each.name == "batch"]
    steps = below(running.spans, whole)
    assert [each.name for each in steps] == ["plan", "lanes"]
    assert begun_ns <= whole.end_ns <= ended_ns
    assert whole.end_ns - whole.start_ns == 220_000_000
    assert (steps[0].start_ns, steps[1].end_ns) == (whole.start_ns, whole.end_ns)
    assert steps[0].end_ns == steps[1].start_ns == whole.start_ns + 20_000_000
    assert steps[1].attributes == {"backfill.lane.commit_ms": 12.5}
    said = {name.removeprefix("backfill."): value for name, value in whole.attributes.items()}
    assert (said["epoch"], said["changes"], said["snapshot_rows"]) == (batch.plan.epoch, 10, 7)
    assert said["hindrances"] == ["FENCED"]
    (trouble,) = [each for each in running.spans if each.name == "interrupted"]
    assert trouble.attributes == {"error.type": "BROKER_UNREACHABLE"}
    assert running.resource["service.name"] == "arrangement-backfill"
    assert running.resource["backfill.upstream"] == "orders"
    assert running.resource["deployment.environment"] == "test"
    assert running.headers[0]["authorization"] == "Bearer mine"


def test_the_name_of_the_service_may_be_another(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    with collector() as running:
        monkeypatch.setenv(ENDPOINT, running.url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "orders-backfill")
        with traced(listener.service):
            listener.on_batch(report())
    assert running.resource["service.name"] == "orders-backfill"


@pytest.mark.slow
@pytest.mark.parametrize("status", [None, 503, 401])
def test_a_collector_that_does_not_take_them_is_reported_once_and_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    listener = Listener()
    with collector() as running:
        running.status = status or 200
        monkeypatch.setenv(ENDPOINT, running.url if status else "http://127.0.0.1:1")
        with capture_logs() as logs:
            with traced(listener.service):
                begun = time.monotonic()
                for _ in range(1_000):
                    listener.on_batch(report())
                took_s = time.monotonic() - begun
                ending = time.monotonic()
            ended_s = time.monotonic() - ending
    assert took_s < 30
    assert ended_s < 8
    assert [each["event"] for each in logs] == ["traces", "traces_not_sent"]
    assert not running.spans


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setitem(
        sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", cast("Any", None)
    )
    with pytest.raises(EnvironmentProblem) as caught, traced(Listener().service):
        pass
    assert caught.value.code is Code.DEPENDENCY_MISMATCH
    assert "arrangement-backfill[traces]" in str(caught.value)
