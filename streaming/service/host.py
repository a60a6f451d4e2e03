"""What a service needs around it, in the right order: a broker (embedded if none is named), then Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from schemas.config import ServiceConfig
from streaming.runtime.broker import EmbeddedBroker
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.session import SparkSettings, spark_session
from streaming.runtime.topics import admin, create_topic, partitions_of
from streaming.service.service import OnBatch, Service

EMBEDDED_UPSTREAM_PARTITIONS = 4


@contextmanager
def hosted_service(
    config: ServiceConfig,
    *,
    on_batch: OnBatch = lambda report: None,
    on_serving: Callable[[], None] = lambda: None,
    exit_when_complete: bool = False,
    skip_records: frozenset[tuple[int, int]] = frozenset(),
) -> Iterator[Service]:
    """A service ready to `run`. Afterwards Spark and an embedded broker are gone.

    Raises: BackfillError when the broker or Spark does not come up, or the configuration contradicts itself.
    """
    with ExitStack() as stack:
        if config.kafka.bootstrap is None:
            kafka = KafkaSettings(stack.enter_context(_embedded(config)))
        else:
            kafka = KafkaSettings.of(config.kafka)
        admin(kafka)  # a broker that won't have us is told before a JVM is started
        spark = stack.enter_context(spark_session(_spark_settings(config)))
        yield Service(
            config,
            kafka,
            spark,
            on_batch=on_batch,
            on_serving=on_serving,
            exit_when_complete=exit_when_complete,
            skip_records=skip_records,
        )


@contextmanager
def _embedded(config: ServiceConfig) -> Iterator[str]:
    """A broker of our own, its data beside the state, with the upstream topic made if it is not there."""
    with EmbeddedBroker(data=Path(str(config.state)) / "kafka") as broker:
        kafka = KafkaSettings(broker.bootstrap)
        if partitions_of(kafka, config.upstream) is None:
            create_topic(kafka, config.upstream, EMBEDDED_UPSTREAM_PARTITIONS)
        yield broker.bootstrap


def _spark_settings(config: ServiceConfig) -> SparkSettings:
    return SparkSettings(
        master=config.spark.master,
        memory=config.spark.driver_memory,
        encrypt_spills=config.kafka.security != "plaintext",
    )
