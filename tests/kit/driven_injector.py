"""An injector that tests drive barrier by barrier, with requests for it, and the barriers that it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from schemas.avro.codec import decode_barrier
from schemas.records import Barrier, Mutation
from schemas.topics import UpstreamTopics
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, location
from streaming.source.barriers.injecting.control_requests import (
    ControlRequest,
    encode_request,
)
from streaming.source.barriers.injecting.injector import BarrierInjector, unix_ms
from streaming.source.barriers.injecting.target import DataTopicTarget

HOUR_MS = 3_600_000


@contextmanager
def injector(
    kafka: KafkaSettings, topic: str, clock: Callable[[], int] = unix_ms
) -> Iterator[BarrierInjector]:
    """An injector that is driven barrier by barrier."""
    driven = BarrierInjector(kafka, DataTopicTarget(topic), HOUR_MS, clock=clock)
    yield driven
    driven.stop()


def barriers_in(kafka: KafkaSettings, topic: str) -> list[list[Barrier]]:
    """The committed barriers of each partition."""
    with RangeReader(kafka) as reader:
        ranges = {p: (marks.earliest, marks.high) for p, marks in enumerate(reader.watermarks(topic))}
        found: list[list[Barrier]] = [[] for _ in ranges]
        for chunk in reader.read(topic, ranges):
            for message in chunk:
                header = header_of(message, "barrier")
                if header is not None:
                    found[message.partition() or 0].append(
                        decode_barrier(header, message.value(), where=location(message))
                    )
    return found


def write(kafka: KafkaSettings, topic: str, *values: bytes) -> None:
    producer = Producer(kafka.producer())
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush()


def request_for(kafka: KafkaSettings, topic: str, *mutations: Mutation) -> None:
    write(
        kafka,
        UpstreamTopics.of(topic).control,
        *(encode_request(ControlRequest(str(n), m)) for n, m in enumerate(mutations)),
    )
