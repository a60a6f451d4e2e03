"""Consumer groups of a topic, and clients that are kept while a broker restarts or a topic gains partitions."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.errors import Code, TopicError
from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import admin, create_topic, end_offsets
from streaming.observe.gateway import readers_of
from streaming.sink.kafka_writer import open_client

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


@pytest.mark.kafka
def test_a_client_that_is_kept_knows_the_ends_again_after_the_broker_restarted(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path / "data", log=tmp_path / "kafka.log") as broker:
        kafka = KafkaSettings(broker.bootstrap)
        create_topic(kafka, "kept", 2)
        client = admin(kafka)
        places = [("kept", 0), ("kept", 1)]
        assert set(end_offsets(kafka, places, client=client).values()) == {0}
        for _ in range(2):
            broker.kill()
            broker.start()
            assert set(end_offsets(kafka, places, client=client).values()) == {0}


def test_a_client_that_is_kept_hears_of_partitions_that_are_added(bootstrap: str) -> None:
    kafka, name = KafkaSettings(bootstrap), f"t{uuid.uuid4().hex[:8]}"
    client = admin(kafka)
    create_topic(kafka, name, 2)
    assert end_offsets(kafka, [(name, 0), (name, 1)], client=client)
    create_topic(kafka, name, 5, gains=True)
    places = [(name, number) for number in range(5)]
    assert end_offsets(kafka, places, client=client) == dict.fromkeys(places, 0)
    with pytest.raises(TopicError) as caught:
        end_offsets(kafka, [*places, (name, 5)], client=client)
    assert caught.value.code is Code.TOPIC_MISSING
    with open_client(kafka, f"tx-{name}", 60_000) as output, pytest.raises(TopicError) as caught:
        output.ends([*places, (name, 5)])
    assert caught.value.code is Code.OUTPUT_TOPIC_MISSING
    assert caught.value.found == "no partition 5, but 5 partitions"
