"""Spans of batches to a collector, by OpenTelemetry's own variables; off, and without any cost, unless they are set.

A batch is one span and each of its steps is one below it, made of what the report measured once the batch is done: so
nothing is traced within a batch, and a collector that is away holds up none.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem
from streaming.protocol.report import BatchReport, StateAtBarrier
from streaming.service.service import Service

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

log = structlog.get_logger()

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN = "http/protobuf"
_LAST_SPANS_S, _GIVING_UP_S = 3.0, 1.0
"""Limits for sending the last spans, of the 30 s in which a service has to end."""


def is_wanted(environment: Mapping[str, str]) -> bool:
    """True if spans are to be sent: an endpoint is named, or `OTEL_TRACES_EXPORTER` is `otlp`.

    Raises: ConfigError(CONFIG_INVALID) for an unknown exporter or an unsupported protocol.
    """
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip()
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    if not exporter and not any(environment.get(name) for name in _ENDPOINTS):
        return False
    if exporter not in ("", "otlp"):
        raise _refusal("OTEL_TRACES_EXPORTER", "an exporter that there is not", "otlp or none")
    protocol, name = next(
        ((environment[name], name) for name in _PROTOCOLS if environment.get(name)), (_SPOKEN, "")
    )
    if protocol != _SPOKEN:
        raise _refusal(name, "a protocol that is not spoken", f"{_SPOKEN}, to port 4318 of most collectors")
    return True


def _refusal(variable: str, found: str, expected: str) -> ConfigError:
    return ConfigError(
        Code.CONFIG_INVALID,
        where=variable,
        found=found,
        expected=expected,
        next_step="correct the variable, or unset it",
    )


@contextmanager
def traced(service: Service) -> Iterator[None]:
    """Have a service's batches and troubles traced while the block runs, if the environment says so.

    The last spans are sent at the end, within 3 s.

    Raises: ConfigError as `is_wanted`; EnvironmentProblem(DEPENDENCY_MISMATCH) where the packages are missing.
    """
    if not is_wanted(os.environ):
        yield
        return
    provider, exporter = _exporting(service)
    service.observers += (Spans(provider.get_tracer("arrangement-backfill")),)
    log.info("traces")
    warnings = _WarnOnce()
    logging.getLogger("opentelemetry").addHandler(warnings)
    try:
        yield
    finally:
        _close(provider, exporter)
        logging.getLogger("opentelemetry").removeHandler(warnings)


def _close(provider: TracerProvider, exporter: SpanExporter) -> None:
    """Send the last spans, or give them up: what OpenTelemetry calls a timeout bounds neither its flush nor its end."""
    closing = threading.Thread(target=provider.shutdown, name="traces-end", daemon=True)
    closing.start()
    closing.join(_LAST_SPANS_S)
    if closing.is_alive():
        exporter.shutdown()
        closing.join(_GIVING_UP_S)


def _exporting(service: Service) -> tuple[TracerProvider, SpanExporter]:
    try:
        # The import takes half a second, which only a service with traces should pay.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise EnvironmentProblem(
            Code.DEPENDENCY_MISMATCH,
            where="traces",
            found=f"variables of OpenTelemetry, and no package {error.name}",
            expected="the extra `traces`",
            next_step="pip install 'arrangement-backfill[traces]', or set OTEL_TRACES_EXPORTER=none",
        ) from None
    own = {
        "service.name": "arrangement-backfill",
        "service.instance.id": service.owner,
        "backfill.upstream": service.config.upstream,
        "backfill.table": service.config.table.name,
    }
    resource = Resource.create(own).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider, exporter


class _WarnOnce(logging.Handler):
    """The exporter logs each failed attempt, with the answer's body; this logs one line of ours in place of all."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._said:
            self._said = True
            log.warning("traces_not_sent", next_step="check the endpoint in OpenTelemetry's variables")


class Spans:
    """Batches as spans of one tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def batch(self, report: BatchReport) -> None:
        """One span that ends now, and below it one a step, in order and without a gap.

        A step that was carried out in several goes is one span at the place of the first.
        """
        from opentelemetry.trace import set_span_in_context

        end_ns = time.time_ns()
        steps = [(step, round(took_ms * 1_000_000)) for step, took_ms in report.step_ms.items()]
        at_ns = end_ns - sum(took_ns for _, took_ns in steps)
        span = self._tracer.start_span("batch", start_time=at_ns, attributes=_attributes(report))
        within = set_span_in_context(span)
        for step, took_ns in steps:
            lanes = None
            if step == "lanes":
                lanes = {f"backfill.lane.{name}_ms": ms for name, ms in report.lane_ms.items()}
            part = self._tracer.start_span(step, within, start_time=at_ns, attributes=lanes)
            at_ns += took_ns
            part.end(at_ns)
        span.end(end_ns)

    def starts_from(self, state: StateAtBarrier) -> None:
        """A start is no span."""

    def trouble(self, problem: BackfillError) -> None:
        """A span without a length for what ended a batch before its time: its code, and nothing else of it."""
        from opentelemetry.trace import Status, StatusCode

        span = self._tracer.start_span("interrupted", attributes={"error.type": problem.code.value})
        span.set_status(Status(StatusCode.ERROR))
        span.end()


def _attributes(report: BatchReport) -> dict[str, int | list[str]]:
    found: dict[str, int | list[str]] = {
        "epoch": report.plan.epoch,
        "barriers": len(report.plan.barriers),
        "changes": report.changes,
        "snapshot_rows": sum(report.snapshot_rows.values()),
        "sent_snapshot": sum(report.sent_snapshot.values()),
        "sent_live": sum(report.sent_live.values()),
        "lanes": report.plan.lanes,
        "lanes_already_sent": report.already_sent,
        "jobs": [job.state.name for job in report.plan.jobs],
        "hindrances": [each.value for each in report.retry_reasons],
    }
    return {f"backfill.{name}": value for name, value in found.items()}
