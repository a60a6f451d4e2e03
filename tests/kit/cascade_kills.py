"""Kills of a service whose upstream is the output of another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.kit.kill_scenario import KillScenario


@dataclass
class CascadeKillScenario(KillScenario):
    """`first` writes the upstream and its barriers; `reads_as` is the section that reads what it writes.

    Changes come from `first.live()`.
    """

    first: KillScenario | None = None
    reads_as: dict[str, Any] = field(default_factory=dict)

    def _fill(self) -> None:
        assert self.first is not None
        self.upstream = self.first.output
        self.config = {
            "upstream": {"topic": self.upstream, **self.reads_as},
            "barriers": "embedded",
            "barrier_topic": self.first.barriers_of_output,
            "control_topic": f"{self.upstream}.control",
            **self.config,
        }

    @contextmanager
    def live(self) -> Iterator[None]:
        assert self.first is not None
        with self.first.live():
            yield
