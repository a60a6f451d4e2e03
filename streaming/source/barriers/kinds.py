"""The registry of barrier sources, by the kind of barriers that is configured.

A new kind is a model in `schemas.kinds.configs` and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from schemas.kinds.configs import BarriersConfig, Embedded, Inject
from schemas.records import Barrier
from streaming.kafka.topics import stable_offsets_of
from streaming.source.barriers.in_data import Announcements, EmbeddedBarriers, InjectedBarriers
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import BarrierPace, DataTopicTarget, SeparateTopicTarget
from streaming.source.barriers.separate_topic import (
    FollowedTopic,
    InjectedSeparateBarriers,
    SeparateBarriers,
)
from streaming.source.barriers.source import BarrierSetup, BarrierSource


def _embedded(_: Embedded, setup: BarrierSetup) -> BarrierSource:
    if setup.topics.barriers is not None:
        return SeparateBarriers(_followed(setup), setup.partitions, begins=setup.begins)
    return EmbeddedBarriers(setup.topics.data, setup.partitions, setup.records, begins=setup.begins)


def _injected(_: Inject, setup: BarrierSetup) -> BarrierSource:
    topics, records = setup.topics, setup.records
    injector = partial(
        BarrierInjector, setup.kafka, interval_ms=setup.interval_ms, is_ours=setup.is_ours, owner=setup.owner
    )
    if topics.barriers is not None:
        pace = BarrierPace.of(setup.read_limit, setup.interval_ms, setup.begins)
        writes = injector(target=SeparateTopicTarget(topics, pace))
        return InjectedSeparateBarriers(_followed(setup), setup.partitions, writes, begins=setup.begins)

    def search(first: Sequence[int], end: Sequence[int]) -> Iterator[tuple[int, Barrier]]:
        for found in records.barriers_in(records.range(first, end)):
            if found.barrier is not None:
                yield found.partition, found.barrier

    announcements = Announcements()
    return InjectedBarriers(
        topics.data,
        setup.partitions,
        records,
        injector=injector(
            target=DataTopicTarget(topics, setup.left_out, search), on_barrier=announcements.put
        ),
        announcements=announcements,
        stable=stable_offsets_of(setup.kafka, topics.data, setup.partitions),
        begins=setup.begins,
    )


def _followed(setup: BarrierSetup) -> FollowedTopic:
    return FollowedTopic(
        setup.kafka, setup.topics, setup.partitions, setup.spark, setup.gaps, least=setup.least
    )


SOURCES: dict[type[BarriersConfig], Callable[[Any, BarrierSetup], BarrierSource]] = {
    Inject: _injected,
    Embedded: _embedded,
}
"""Factories by the model of a kind, an instance of which is the first argument."""


def barrier_source(config: BarriersConfig, setup: BarrierSetup) -> BarrierSource:
    """A new source of the configured kind, not started. Raises: EnvironmentProblem."""
    return SOURCES[type(config)](config, setup)
