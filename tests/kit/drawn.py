"""Many random values at once, for tests whose cost is that of a batch and not of a value."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

T = TypeVar("T")


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """At most `count` examples, of which none is made smaller. Not for use inside of another draw."""
    found: list[T] = []

    @settings(
        max_examples=count, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found
