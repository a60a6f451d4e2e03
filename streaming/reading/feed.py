"""Consumers of a topic whose partitions are read at paces of their own: as many as a process can have.

librdkafka starts some threads for each consumer, and Python has room for a thousand of them. So a topic of many
partitions shares them: what a consumer delivers for a partition that is not asked for is held for it, and beyond a
bound the partition is paused until it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from streaming.kafka.clients import KafkaSettings
from streaming.kafka.errors import translate, translated

_MOST_CONSUMERS = 32
_MOST_HELD = 1_000
"""Records of a partition that is not asked for; what is delivered with them comes on top."""
_PREFETCH_RECORDS = 10_000
"""For each consumer: librdkafka spends some 300 bytes on any record."""
_LEAST_PREFETCH_KIB = 256
_CHUNK_RECORDS = 2_000
_POLL_S = 0.2


class Feed:
    """One consumer and the partitions that it reads, each from its start. Close it after use."""

    def __init__(
        self, settings: KafkaSettings, topic: str, starts: Mapping[int, int], **prefetch: int
    ) -> None:
        self.settings, self.topic = settings, topic
        self._held: dict[int, list[Message]] = {partition: [] for partition in starts}
        self._paused = set[int]()
        self._consumer = Consumer(settings.consumer(**prefetch))
        self._consumer.assign([TopicPartition(topic, *start) for start in starts.items()])

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def take(self, partition: int, *, where: str) -> list[Message]:
        """The messages fetched from a partition, and the event of its current end; perhaps none after a short wait.

        Raises: EnvironmentProblem, TopicError.
        """
        if not self._held[partition]:
            self._poll(where)
        found, self._held[partition] = self._held[partition], []
        if partition in self._paused:
            self._paused.discard(partition)
            self._consumer.resume([TopicPartition(self.topic, partition)])
        return found

    def _poll(self, where: str) -> None:
        with translated(self.settings, what=where):
            first = self._consumer.poll(_POLL_S)
            chunk = [] if first is None else [first, *self._consumer.consume(_CHUNK_RECORDS, timeout=0)]
        for message in chunk:
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                self._held[message.partition() or 0].append(message)
            elif not error.retriable():
                raise translate(error, self.settings, what=where)
        self._pause({number for number, held in self._held.items() if len(held) > _MOST_HELD})

    def _pause(self, full: set[int]) -> None:
        more = full - self._paused
        if more and len(self._held) > 1:
            self._paused |= more
            self._consumer.pause([TopicPartition(self.topic, number) for number in more])


def feeds(settings: KafkaSettings, topic: str, starts: Sequence[int], *, prefetch_kib: int) -> list[Feed]:
    """The feed of each partition; of their own as long as they are few. `prefetch_kib` is for all of them together."""
    count = min(len(starts), _MOST_CONSUMERS)
    prefetch = {
        "queued.max.messages.kbytes": max(_LEAST_PREFETCH_KIB, prefetch_kib // max(count, 1)),
        "queued.min.messages": _PREFETCH_RECORDS,
    }
    numbered = list(enumerate(starts))
    made = [Feed(settings, topic, dict(numbered[first::count]), **prefetch) for first in range(count)]
    return [made[partition % count] for partition, _ in numbered]
