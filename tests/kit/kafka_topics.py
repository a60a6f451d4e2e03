"""Histories written to real topics, as a service and its injector write them: a transaction a barrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from schemas.records import BARRIER_HEADER
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, Wanted, any_record
from streaming.kafka.topics import admin
from streaming.verify.history import TopicEntry


class Writer:
    """A transactional producer for one topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self._producer = Producer(KafkaSettings(bootstrap).transactional(f"{topic}.writer"))
        self._producer.init_transactions(30)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, partition: int, entries: Sequence[TopicEntry]) -> None:
        for entry in entries:
            headers: dict[str, str | bytes | None] = {}
            if entry.barrier is not None:
                headers[BARRIER_HEADER] = entry.barrier
            self._producer.produce(self.topic, entry.value, entry.key, partition, headers=headers)

    def commit(self) -> None:
        self._producer.commit_transaction(30)

    def abort(self) -> None:
        self._producer.flush(30)
        self._producer.abort_transaction(30)

    def flush(self) -> None:
        self._producer.flush(30)

    def write(self, partitions: Sequence[Sequence[TopicEntry]]) -> None:
        """Everything: a transaction for each barrier over all partitions, one for what follows the last."""
        pieces = [intervals(entries) for entries in partitions]
        for number in range(max(map(len, pieces))):
            self.begin()
            for partition, own in enumerate(pieces):
                self.send(partition, own[number] if number < len(own) else [])
            self.commit()


def intervals(entries: Sequence[TopicEntry]) -> list[list[TopicEntry]]:
    """The entries cut behind each barrier."""
    pieces: list[list[TopicEntry]] = [[]]
    for entry in entries:
        pieces[-1].append(entry)
        if entry.barrier is not None:
            pieces.append([])
    return pieces if pieces[-1] else pieces[:-1]


def remove_beginning(bootstrap: str, topic: str, before: int, *, partition: int = 0) -> None:
    """Delete the records of a partition below an offset, as retention does."""
    admin = AdminClient(KafkaSettings(bootstrap).client())
    for answer in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        answer.result(30)


def set_topic(kafka: KafkaSettings, topic: str, settings: Mapping[str, str]) -> None:
    """Change settings of a topic that is there; its others stay."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    for name, value in settings.items():
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource.add_incremental_config(entry)
    client = admin(kafka)  # lives until its answer comes
    client.incremental_alter_configs([resource])[resource].result(30)


def read_tail(
    settings: KafkaSettings, topic: str, partition: int, wanted: Wanted = any_record
) -> Message | None:
    """`RangeReader.last` with a reader of its own."""
    with RangeReader(settings) as reader:
        return reader.last(topic, partition, wanted)
