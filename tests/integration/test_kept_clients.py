"""Clients that are kept while a broker restarts, or a topic gains partitions, behind what they remember."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from schemas.errors import Code, TopicError
from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import admin, create_topic, end_offsets
from streaming.sink.kafka_writer import open_client


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
