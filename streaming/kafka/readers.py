"""Consumer groups that read a topic, and how far behind they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from streaming.kafka.clients import KafkaSettings
from streaming.kafka.errors import translate
from streaming.kafka.topics import Watermarks, admin, answered, watermarks

MOST_GROUPS = 500
"""Groups of a cluster that are asked, a request each."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A group with an offset in the topic; `behind` counts offsets, markers of transactions included.

    `state` is the broker's name for it: an `EMPTY` one has no member now.
    """

    group: str
    state: str
    behind: int


@dataclass(frozen=True, slots=True)
class TopicReaders:
    """The offsets that a topic holds, and its readers, those that are furthest behind first.

    `unasked` is the number of groups of the cluster that were not asked, beyond `MOST_GROUPS`. Readers that commit no
    offsets to Kafka, as many sinks do, are not seen.
    """

    offsets: int
    readers: tuple[Reader, ...]
    unasked: int


def readers_of(settings: KafkaSettings, topic: str) -> TopicReaders:
    """The readers of a topic as of now. Groups without Describe are left out by the broker.

    Raises: TopicError(TOPIC_MISSING), EnvironmentProblem.
    """
    client = admin(settings)
    marks = watermarks(settings, topic, client=client)
    try:
        groups = answered(client.list_consumer_groups(request_timeout=settings.wait_s), settings).valid
        states = {each.group_id: each.state.name for each in groups}
        asked = [TopicPartition(topic, number) for number in range(len(marks))]
        futures = {
            group: client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, asked)], request_timeout=settings.wait_s
            )[group]
            for group in sorted(states)[:MOST_GROUPS]
        }
        offsets = {group: answered(each, settings).topic_partitions for group, each in futures.items()}
    except KafkaException as raised:
        raise translate(raised.args[0], settings, what="consumer groups") from None
    readers = [
        Reader(group, states[group], behind)
        for group, places in offsets.items()
        if (behind := _behind(places, marks)) is not None
    ]
    readers.sort(key=lambda each: (-each.behind, each.group))
    held = sum(each.stable - each.earliest for each in marks)
    return TopicReaders(held, tuple(readers), max(0, len(states) - MOST_GROUPS))


def _behind(places: Sequence[TopicPartition], marks: Sequence[Watermarks]) -> int | None:
    """The offsets up to the end that are unread; None for a group without an offset in the topic."""
    known = {each.partition: each.offset for each in places if each.offset >= 0}
    if not known:
        return None
    # A partition without an offset, or with one that was deleted, is read from what is there.
    return sum(
        max(0, each.stable - max(known.get(number, 0), each.earliest)) for number, each in enumerate(marks)
    )
