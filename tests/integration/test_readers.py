"""Consumer groups of a topic, against a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.errors import Code, TopicError
from streaming.kafka.clients import KafkaSettings
from streaming.observe.gateway import readers_of

Topic = Callable[..., str]


def send(kafka: KafkaSettings, topic: str, count: int, partition: int) -> None:
    producer = Producer(kafka.producer())
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    producer.flush()


def commit(kafka: KafkaSettings, group: str, *places: TopicPartition) -> None:
    consumer = Consumer(kafka.consumer(**{"group.id": group}))
    consumer.commit(offsets=list(places), asynchronous=False)
    consumer.close()


def test_readers_are_the_groups_with_offsets_those_furthest_behind_first(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name, other = topic(partitions=2), topic()
    send(kafka, name, 10, 0)
    send(kafka, name, 5, 1)
    own = uuid.uuid4().hex
    commit(kafka, f"{own}-ends", TopicPartition(name, 0, 10), TopicPartition(name, 1, 5))
    commit(kafka, f"{own}-half", TopicPartition(name, 0, 4))
    commit(kafka, f"{own}-beyond", TopicPartition(name, 0, 99), TopicPartition(name, 1, 3))
    commit(kafka, f"{own}-elsewhere", TopicPartition(other, 0, 0))
    found = readers_of(kafka, name)
    assert (found.offsets, found.unasked) == (15, 0)
    assert [(each.group, each.state, each.behind) for each in found.readers] == [
        (f"{own}-half", "EMPTY", 11),
        (f"{own}-beyond", "EMPTY", 2),
        (f"{own}-ends", "EMPTY", 0),
    ]


def test_a_topic_without_readers(kafka: KafkaSettings, topic: Topic) -> None:
    found = readers_of(kafka, topic())
    assert (found.offsets, found.readers) == (0, [])


def test_a_topic_that_is_not_there(kafka: KafkaSettings) -> None:
    with pytest.raises(TopicError) as caught:
        readers_of(kafka, f"nothing-{uuid.uuid4().hex}")
    assert caught.value.code is Code.TOPIC_MISSING
