"""A schema registry over real HTTP, in this process: the few calls of Confluent's API that a reader or producer makes.

It answers as the real one does, error codes included, and can be taken away, made slow to learn, or closed.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
_TYPE = "application/vnd.schemaregistry.v1+json"


def _error(status: int, code: int, message: str) -> Answer:
    return status, {"error_code": code, "message": message}


@dataclass
class FakeRegistry:
    """What it holds. `status`: answered to everything while it is set; `authorization`: the header that it demands."""

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    url: str = ""
    status: int | None = None
    body: bytes | None = None
    authorization: str | None = None
    incompatible: set[str] = field(default_factory=set)
    """Subjects that take no further schema."""
    unknown_for: dict[int, int] = field(default_factory=dict)
    """Ids that are not known for so many questions more, as to a node that has not heard of them yet."""
    asked: list[str] = field(default_factory=list)

    def register(
        self,
        subject: str,
        schema: Any,
        *,
        schema_id: int | None = None,
        kind: str = "AVRO",
        references: Any = (),
    ) -> int:
        """The id of a schema; the same for the same text."""
        entry = {"schema": json.dumps(schema), "schemaType": kind, "references": list(references)}
        known = next((number for number, each in self.schemas.items() if each == entry), None)
        number = schema_id or known or max(self.schemas, default=0) + 1
        self.schemas[number] = entry
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Of one request."""
        path = path.partition("?")[0]
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self._by_id(int(found[1]))
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", path):
            return self._version(found[1], found[2])
        if (found := re.fullmatch(r"/subjects/([^/]+)/versions", path)) and method == "POST":
            schema = json.loads(body["schema"])
            kind, references = body.get("schemaType", "AVRO"), body.get("references", ())
            if found[1] in self.incompatible and self._found(found[1], body) is None:
                return _error(409, 409, "secret details")
            return 200, {"id": self.register(found[1], schema, kind=kind, references=references)}
        if found := re.fullmatch(r"/compatibility/subjects/([^/]+)/versions/latest", path):
            if found[1] not in self.subjects:
                return _error(404, 40401, f"Subject '{found[1]}' not found.")
            is_known = self._found(found[1], body) is not None
            return 200, {"is_compatible": is_known or found[1] not in self.incompatible}
        if (found := re.fullmatch(r"/subjects/([^/]+)", path)) and method == "POST":
            return self._looked_up(found[1], body)
        return _error(404, 404, "HTTP 404 Not Found")

    def _found(self, subject: str, body: Any) -> int | None:
        """The id of a schema, if it is one of the subject's."""
        text = json.dumps(json.loads(body["schema"]))
        numbers = self.subjects.get(subject, ())
        return next((number for number in numbers if self.schemas[number]["schema"] == text), None)

    def _looked_up(self, subject: str, body: Any) -> Answer:
        if subject not in self.subjects:
            return _error(404, 40401, f"Subject '{subject}' not found.")
        number = self._found(subject, body)
        if number is None:
            return _error(404, 40403, "Schema not found")
        version = self.subjects[subject].index(number) + 1
        return 200, {"subject": subject, "version": version, "id": number, **self.schemas[number]}

    def _by_id(self, number: int) -> Answer:
        left = self.unknown_for.get(number, 0)
        self.unknown_for[number] = max(0, left - 1)
        if left or number not in self.schemas:
            return _error(404, 40403, f"Schema {number} not found")
        return 200, self.schemas[number]

    def _version(self, subject: str, version: str) -> Answer:
        numbers = self.subjects.get(subject)
        if numbers is None:
            return _error(404, 40401, f"Subject '{subject}' not found.")
        index = len(numbers) if version == "latest" else int(version)
        if not 1 <= index <= len(numbers):
            return _error(404, 40402, f"Version {version} not found.")
        number = numbers[index - 1]
        return 200, {"subject": subject, "version": index, "id": number, **self.schemas[number]}

    @contextmanager
    def serving(self, port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
        """Answers at `url`; afterwards nobody listens there."""
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def basic(username: str, password: str) -> str:
    """The header of a login."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _handler(registry: FakeRegistry) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET", None)

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer("POST", json.loads(data))

        def _answer(self, method: str, body: Any) -> None:
            registry.asked.append(f"{method} {self.path}")
            if registry.authorization not in (None, self.headers["Authorization"]):
                status, said = _error(401, 40101, "Unauthorized")
            elif registry.status is not None:
                status, said = _error(registry.status, registry.status, "secret details")
            else:
                status, said = registry.answer(method, self.path, body)
            data = json.dumps(said).encode() if registry.body is None else registry.body
            self.send_response(status)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Nothing."""

    return Handler
