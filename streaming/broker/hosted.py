"""The broker of a configuration: the one that it names, or else an embedded one, as for demos and first steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.settings.config import ServiceConfig
from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic, partitions_of

UPSTREAM_PARTITIONS = 4


@contextmanager
def broker_of(config: ServiceConfig) -> Iterator[KafkaSettings]:
    """How to reach it. An embedded one has its data beside the state, and makes the upstream topic if it is not there.

    Raises: EnvironmentProblem when an embedded one does not come up.
    """
    if config.kafka.bootstrap is not None:
        yield KafkaSettings.of(config.kafka)
        return
    with EmbeddedBroker(data=Path(str(config.state)) / "kafka") as broker:
        kafka = KafkaSettings(broker.bootstrap)
        if partitions_of(kafka, config.upstream) is None:
            create_topic(kafka, config.upstream, UPSTREAM_PARTITIONS)
        yield kafka
