"""The registry of barrier sources: what carries out each kind of barriers that can be configured.

A new kind is a model in `schemas.kinds.barriers` and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.kinds.barriers import BarriersConfig, Embedded, Inject
from streaming.source.barriers import followed, in_data
from streaming.source.barriers.source import BarrierSetup, BarrierSource


def _injected(_: Inject, setup: BarrierSetup) -> BarrierSource:
    return in_data.injected(setup) if setup.topics.barriers is None else followed.injected(setup)


def _embedded(_: Embedded, setup: BarrierSetup) -> BarrierSource:
    return in_data.embedded(setup) if setup.topics.barriers is None else followed.embedded(setup)


SOURCES: dict[type[BarriersConfig], Callable[[Any, BarrierSetup], BarrierSource]] = {
    Inject: _injected,
    Embedded: _embedded,
}
"""By its model, an instance of which is the first argument."""


def barrier_source(config: BarriersConfig, setup: BarrierSetup) -> BarrierSource:
    """A new source of the configured kind, not started. Raises: EnvironmentProblem."""
    return SOURCES[type(config)](config, setup)
