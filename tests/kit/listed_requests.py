"""A control topic in memory, as a suspended service reads it."""

from __future__ import annotations

from collections.abc import Iterable

from streaming.source.barriers.injecting.control_requests import SuspendedAction
from streaming.source.barriers.injecting.control_topic import KafkaRequests


class ListedRequests(KafkaRequests):
    """The requests of a list, which may grow."""

    def __init__(self, actions: list[SuspendedAction]) -> None:
        self.actions = actions

    def end(self) -> int:
        return len(self.actions)

    def since(self, offset: int) -> Iterable[tuple[int, SuspendedAction]]:
        return [(number + 1, each) for number, each in enumerate(self.actions) if number >= offset]

    def close(self) -> None:
        """Nothing is open."""
