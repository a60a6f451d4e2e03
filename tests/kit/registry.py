"""The schema registry in this process with troubles: taken away, slow to learn, or refusing."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

from tests.kit.memory_registry import Answer, MemoryRegistry, problem


@dataclass
class FakeRegistry(MemoryRegistry):
    """`status`: answered to everything while it is set; `authorization`: the header that it demands."""

    status: int | None = None
    body: bytes | None = None
    authorization: str | None = None
    incompatible: set[str] = field(default_factory=set)
    """Subjects that take no further schema."""
    unknown_for: dict[int, int] = field(default_factory=dict)
    """Ids that are not known for so many questions more, as to a node that has not heard of them yet."""
    asked: list[str] = field(default_factory=list)

    def takes(self, subject: str, body: Any) -> bool:
        return subject not in self.incompatible or self.found(subject, body) is not None

    def response(self, method: str, path: str, body: Any, authorization: str | None) -> tuple[int, bytes]:
        self.asked.append(f"{method} {path}")
        if self.authorization not in (None, authorization):
            status, said = problem(401, 40101, "Unauthorized")
        elif self.status is not None:
            status, said = problem(self.status, self.status, "secret details")
        else:
            status, said = self.answer(method, path, body)
        return status, json.dumps(said).encode() if self.body is None else self.body

    def by_id(self, number: int) -> Answer:
        left = self.unknown_for.get(number, 0)
        self.unknown_for[number] = max(0, left - 1)
        return problem(404, 40403, f"Schema {number} not found") if left else super().by_id(number)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def basic(username: str, password: str) -> str:
    """The header of a login."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
