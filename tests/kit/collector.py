"""A collector of traces in this process: OTLP over HTTP, its spans kept as they came."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.kit.local_http import serving

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """A span as it came; times in nanoseconds."""

    name: str
    parent: bytes
    span_id: bytes
    start_ns: int
    end_ns: int
    attributes: Attributes


@dataclass
class Collector:
    """`status` is answered while it is set."""

    url: str
    status: int = 200
    spans: list[Sent] = field(default_factory=list)
    resource: Attributes = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        assert path == "/v1/traces"
        self.headers.append(headers)
        if self.status != 200:
            return self.status
        said = gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body
        for part in ExportTraceServiceRequest.FromString(said).resource_spans:
            self.resource = _attributes(part.resource.attributes)
            for scope in part.scope_spans:
                self.spans += [
                    Sent(
                        span.name,
                        span.parent_span_id,
                        span.span_id,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        _attributes(span.attributes),
                    )
                    for span in scope.spans
                ]
        return 200


def _attributes(pairs: Any) -> Attributes:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(each) for each in found.values] if kind == "array_value" else found


@contextmanager
def collector() -> Iterator[Collector]:
    """It takes spans while the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(running.take(self.path, dict(self.headers), body))
            said = ExportTraceServiceResponse().SerializeToString()
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name that it has there)
            pass

    with serving(Handler) as address:
        running = Collector(address)
        yield running
