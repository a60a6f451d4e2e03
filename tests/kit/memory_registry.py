"""A schema registry in this process, over HTTP: the calls of Confluent's API that the service and its producers make.

It holds Avro schemas in memory, finds every one compatible, and has the error codes of the real one. For benches and
tests: https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from tests.kit.local_http import serving

Answer = tuple[int, Any]
_TYPE = "application/vnd.schemaregistry.v1+json"
_SUBJECT = r"([^/]+)"


def problem(status: int, code: int, message: str) -> Answer:
    """An answer that is none."""
    return status, {"error_code": code, "message": message}


@dataclass
class MemoryRegistry:
    """Contents: schemas by id, and the ids of each subject in the order of their versions."""

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    url: str = ""

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

    def takes(self, subject: str, body: Any) -> bool:
        """True if a schema may become a version of the subject."""
        return True

    def response(self, method: str, path: str, body: Any, authorization: str | None) -> tuple[int, bytes]:
        """Status and body for a request, whatever it is."""
        status, said = self.answer(method, path, body)
        return status, json.dumps(said).encode()

    def answer(self, method: str, path: str, body: Any) -> Answer:
        """Of one request."""
        path = path.partition("?")[0]
        if found := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self.by_id(int(found[1]))
        if found := re.fullmatch(r"/schemas/ids/(\d+)/subjects", path):
            return 200, [name for name, ids in self.subjects.items() if int(found[1]) in ids]
        if (found := re.fullmatch(rf"/subjects/{_SUBJECT}/versions", path)) and method == "GET":
            numbers = self.subjects.get(found[1], [])
            return 200, list(range(1, len(numbers) + 1))
        if found := re.fullmatch(rf"/subjects/{_SUBJECT}/versions/(latest|\d+)", path):
            return self._version(found[1], found[2])
        if (found := re.fullmatch(rf"/subjects/{_SUBJECT}/versions", path)) and method == "POST":
            return self._registered(found[1], body)
        if found := re.fullmatch(rf"/compatibility/subjects/{_SUBJECT}/versions/latest", path):
            if found[1] not in self.subjects:
                return problem(404, 40401, f"Subject '{found[1]}' not found.")
            return 200, {"is_compatible": self.takes(found[1], body)}
        if (found := re.fullmatch(rf"/subjects/{_SUBJECT}", path)) and method == "POST":
            return self._looked_up(found[1], body)
        return problem(404, 404, "HTTP 404 Not Found")

    def by_id(self, number: int) -> Answer:
        """A schema."""
        if number not in self.schemas:
            return problem(404, 40403, f"Schema {number} not found")
        return 200, self.schemas[number]

    def found(self, subject: str, body: Any) -> int | None:
        """The id of a schema, if it is one of the subject's."""
        text = json.dumps(json.loads(body["schema"]))
        numbers = self.subjects.get(subject, ())
        return next((number for number in numbers if self.schemas[number]["schema"] == text), None)

    def _registered(self, subject: str, body: Any) -> Answer:
        if not self.takes(subject, body):
            return problem(409, 409, "Schema being registered is incompatible with an earlier schema")
        kind, references = body.get("schemaType", "AVRO"), body.get("references", ())
        number = self.register(subject, json.loads(body["schema"]), kind=kind, references=references)
        return 200, {"id": number}

    def _looked_up(self, subject: str, body: Any) -> Answer:
        if subject not in self.subjects:
            return problem(404, 40401, f"Subject '{subject}' not found.")
        number = self.found(subject, body)
        if number is None:
            return problem(404, 40403, "Schema not found")
        return 200, self._entry(subject, self.subjects[subject].index(number) + 1)

    def _version(self, subject: str, version: str) -> Answer:
        numbers = self.subjects.get(subject)
        if numbers is None:
            return problem(404, 40401, f"Subject '{subject}' not found.")
        index = len(numbers) if version == "latest" else int(version)
        if not 1 <= index <= len(numbers):
            return problem(404, 40402, f"Version {version} not found.")
        return 200, self._entry(subject, index)

    def _entry(self, subject: str, version: int) -> dict[str, Any]:
        number = self.subjects[subject][version - 1]
        return {"subject": subject, "version": version, "id": number, **self.schemas[number]}

    @contextmanager
    def serving(self, port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Self]:
        """Serve at `url` while the block runs."""
        with serving(_handler(self), port=port, tls=tls) as self.url:
            yield self


def _handler(registry: MemoryRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET", None)

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer("POST", json.loads(data))

        def _answer(self, method: str, body: Any) -> None:
            status, data = registry.response(method, self.path, body, self.headers["Authorization"])
            self.send_response(status)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Nothing."""

    return Handler
