"""Topics: existence, creation, partitions and settings, and their first and last offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from schemas.errors import Code, EnvironmentProblem, TopicError
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.errors import LEADER_MOVES, ErrorWatch, is_missing, topic_missing, translate, translated
from streaming.kafka.security import why_no_handshake

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # ships without annotations
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # likewise
_LEADER_POLL_S = 0.02
_MARGIN_S = 5.0

PartitionId = tuple[str, int]
"""A topic and one of its partitions."""


def admin(settings: KafkaSettings) -> AdminClient:
    """A connected admin client.

    Raises: EnvironmentProblem(BROKER_UNREACHABLE) after `wait_s`, EnvironmentProblem(AUTH_FAILED) at once.
    """
    watch = ErrorWatch()
    with translated(settings, what="connecting"):
        client = AdminClient(settings.admin(error_cb=watch))
    deadline = time.monotonic() + settings.wait_s
    while True:
        try:
            client.list_topics(topic="", timeout=min(1.0, settings.wait_s))
            return client
        except KafkaException as raised:
            client.poll(0)
            refused = watch.refused or _refused_by_tls(settings)
            if refused or time.monotonic() >= deadline:
                raise translate(refused or raised.args[0], settings, what="connecting") from None


def _refused_by_tls(settings: KafkaSettings) -> KafkaError | None:
    """A broker that refuses this client's certificate just closes the connection (TLS 1.3), as if it were not there."""
    is_refused = settings.security.encrypted and why_no_handshake(settings.bootstrap, settings.security)
    return KafkaError(KafkaError._SSL) if is_refused else None


def _partitions(client: AdminClient, topic: str, settings: KafkaSettings) -> Mapping[int, PartitionMetadata]:
    with translated(settings, what=topic):
        found = client.list_topics(topic=topic, timeout=settings.wait_s).topics[topic]
    if found.error is not None and not is_missing(found.error):
        raise translate(found.error, settings, what=topic)
    partitions: Mapping[int, PartitionMetadata] = found.partitions
    return partitions


def partitions_of(settings: KafkaSettings, topic: str, *, client: AdminClient | None = None) -> int | None:
    """The topic's number of partitions; None if there is no such topic."""
    client = admin(settings) if client is None else client
    return len(_partitions(client, topic, settings)) or None


def require_topic(settings: KafkaSettings, topic: str) -> int:
    """The topic's number of partitions. Raises: TopicError(TOPIC_MISSING)."""
    return describe_topic(settings, topic).partitions


def missing_topic(settings: KafkaSettings, topic: str, client: AdminClient) -> TopicError:
    """The error for a missing topic, with the one of the broker's that may be meant."""
    known: Collection[str] = ()
    with suppress(KafkaException):
        known = client.list_topics(timeout=settings.wait_s).topics
    return topic_missing(topic, settings, known)


def create_topic(
    settings: KafkaSettings,
    topic: str,
    partitions: int,
    *,
    config: Mapping[str, str] | None = None,
    replication_factor: int | None = None,
    gains: bool = False,
    client: AdminClient | None = None,
) -> None:
    """Ensure a topic with exactly this number of partitions, each with a leader; an existing one is used.

    With `gains`, one that has fewer gets the others.

    `config` are settings of a new topic; those of an existing one are not changed. A new topic keeps its records for
    ever unless `config` has another retention: it is read from its beginning. `replication_factor`, for a new topic: by
    default that of `settings`.

    Raises: TopicError: OUTPUT_TOPIC_MISMATCH if it exists with another count, TOPIC_NOT_CREATED if the broker refuses
    to create it so.
    """
    client = admin(settings) if client is None else client
    there = len(_partitions(client, topic, settings))
    if gains and 0 < there < partitions:
        with translated(settings, what=topic):
            answered(client.create_partitions([NewPartitions(topic, partitions)])[topic], settings)
    if not there:
        copies = replication_factor or settings.replication_factor
        wanted = NewTopic(
            topic,
            partitions,
            -1 if copies is None else copies,
            config={"retention.ms": "-1", "retention.bytes": "-1", **(config or {})},
        )
        try:
            answered(client.create_topics([wanted], operation_timeout=settings.wait_s)[topic], settings)
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                problem = translate(error, settings, what=topic)
                # A broker that answers has a reason in the topic: its name, its copies or its settings.
                is_topics = problem.code is Code.BROKER_FAILED
                raise _not_created(wanted, error) if is_topics else problem from None
    count = _await_leaders(client, topic, settings, partitions if gains else 1)
    if count != partitions:
        raise TopicError(
            Code.OUTPUT_TOPIC_MISMATCH,
            where=topic,
            found=f"{count} partitions",
            expected=f"{partitions} partitions",
        )


def delete_topics(settings: KafkaSettings, topics: Sequence[str]) -> tuple[str, ...]:
    """Delete those of the topics that are there, with all their records, and return them. On request of a person.

    Raises: EnvironmentProblem, AUTH_FAILED without the right Delete; topics before the one that is named are gone then.
    """
    client = admin(settings)
    there = tuple(each for each in topics if partitions_of(settings, each, client=client) is not None)
    answers = client.delete_topics(list(there), operation_timeout=settings.wait_s) if there else {}
    for topic, answer in answers.items():
        try:
            answered(answer, settings)
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise translate(raised.args[0], settings, what=topic) from None
    return there


def _not_created(wanted: NewTopic, error: KafkaError) -> TopicError:
    copies = "" if wanted.replication_factor < 0 else f", replication factor {wanted.replication_factor}"
    return TopicError(
        Code.TOPIC_NOT_CREATED,
        where=wanted.topic,
        found=f"Kafka's error {error.name()} ({error.str()}) for {wanted.num_partitions} partitions{copies}, "
        f"settings {', '.join(sorted(wanted.config or ()))}",
    )


def _await_leaders(client: AdminClient, topic: str, settings: KafkaSettings, least: int) -> int:
    """Wait for the leaders: a new topic is known to the controller first and to clients a little later."""
    deadline = time.monotonic() + settings.wait_s
    while True:
        partitions = _partitions(client, topic, settings)
        if len(partitions) >= least and all(part.leader >= 0 for part in partitions.values()):
            return len(partitions)
        if time.monotonic() >= deadline:
            raise translate(KafkaError(KafkaError._TIMED_OUT), settings, what=topic)
        client.poll(_LEADER_POLL_S)


@dataclass(frozen=True, slots=True)
class Topic:
    """The broker's description of a topic. No two topics ever have the same `id`, whatever their names."""

    id: str
    partitions: int


def describe_topic(settings: KafkaSettings, topic: str, *, client: AdminClient | None = None) -> Topic:
    """A topic as it is now. Raises: TopicError(TOPIC_MISSING)."""
    client = admin(settings) if client is None else client
    answer = client.describe_topics(TopicCollection([topic]), request_timeout=settings.wait_s)[topic]
    try:
        found = answered(answer, settings)
    except KafkaException as raised:
        if is_missing(raised.args[0]):
            raise missing_topic(settings, topic, client) from None
        raise translate(raised.args[0], settings, what=topic) from None
    return Topic(str(found.topic_id), len(found.partitions))


def topic_settings(
    settings: KafkaSettings, topic: str, *, client: AdminClient | None = None
) -> dict[str, str]:
    """A topic's settings, by Kafka's names for them. Raises: TopicError(TOPIC_MISSING)."""
    client = admin(settings) if client is None else client
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with translated(settings, what=topic):
        answer = client.describe_configs([resource], request_timeout=settings.wait_s)[resource]
        found = answered(answer, settings)
    return {name: str(entry.value) for name, entry in found.items()}


def cleanup_policy(settings: KafkaSettings, topic: str, *, client: AdminClient | None = None) -> str | None:
    """`delete`, `compact` or both; None without the right to read it. Raises: TopicError(TOPIC_MISSING)."""
    found = known_settings(settings, topic, client=client)
    return None if found is None else found["cleanup.policy"]


def known_settings(
    settings: KafkaSettings, topic: str, *, client: AdminClient | None = None
) -> dict[str, str] | None:
    """The result of `topic_settings`; None without the right to read them."""
    try:
        return topic_settings(settings, topic, client=client)
    except EnvironmentProblem as problem:
        if problem.code is not Code.AUTH_FAILED:
            raise
        return None


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Offsets of a partition: `earliest` is there, `stable` and `high` are one past the last.

    Committed readers get as far as `stable` (the last stable offset); a transaction is open from there on.
    """

    earliest: int
    stable: int
    high: int


def watermarks(
    settings: KafkaSettings, topic: str, *, client: AdminClient | None = None
) -> tuple[Watermarks, ...]:
    """The watermarks of every partition, in partition order, as of now. Raises: TopicError(TOPIC_MISSING)."""
    client = admin(settings) if client is None else client  # an idle client is falsy
    count = len(_partitions(client, topic, settings))
    if not count:
        raise missing_topic(settings, topic, client)
    found = _asked_offsets(
        client,
        settings,
        [(topic, partition) for partition in range(count)],
        (_EARLIEST, IsolationLevel.READ_UNCOMMITTED),
        (_LATEST, IsolationLevel.READ_COMMITTED),
        (_LATEST, IsolationLevel.READ_UNCOMMITTED),
    )
    return tuple(Watermarks(*each) for each in found)


def end_offsets(
    settings: KafkaSettings,
    partition_ids: Collection[PartitionId],
    *,
    client: AdminClient,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[PartitionId, int]:
    """The current end of each (topic, partition): one past the last record that readers of this isolation get.

    With a client that already has the leaders it is one round trip.
    """
    found = _asked_offsets(client, settings, partition_ids, (_LATEST, isolation))
    return {each: offset for each, (offset,) in zip(partition_ids, found, strict=True)}


def stable_offsets(
    settings: KafkaSettings, topic: str, partitions: int, *, client: AdminClient
) -> tuple[int, ...]:
    """The last stable offset of each partition, as of now. One round trip, as `end_offsets`."""
    partition_ids = [(topic, partition) for partition in range(partitions)]
    ends = end_offsets(settings, partition_ids, client=client, isolation=IsolationLevel.READ_COMMITTED)
    return tuple(ends[each] for each in partition_ids)


def stable_offsets_of(settings: KafkaSettings, topic: str, partitions: int) -> Callable[[], tuple[int, ...]]:
    """`stable_offsets` of one topic, with a client that is kept for it."""
    return partial(stable_offsets, settings, topic, partitions, client=admin(settings))


def answered(answer: Future[Any], settings: KafkaSettings) -> Any:
    """The broker's answer. librdkafka ends its requests by itself; the timeout here is in case it does not.

    Raises: KafkaException.
    """
    try:
        found = answer.result(settings.wait_s + _MARGIN_S)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
    # Of a leader whose answer failed or is late librdkafka drops the error (`rd_kafka_ListOffsets_response_merge`): its
    # offsets are OFFSET_INVALID, which is far below all others, and a partition that is there would look empty.
    if getattr(found, "offset", 0) < -1:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    return found


def _asked_offsets(
    client: AdminClient,
    settings: KafkaSettings,
    asked: Collection[PartitionId],
    *kinds: tuple[OffsetSpec, IsolationLevel],
) -> list[tuple[int, ...]]:
    """The offsets of these partitions, one of each kind.

    Partitions may have come, or have other leaders, since the client heard of them: it waits, and asks again.
    """
    topics, deadline = sorted({topic for topic, _ in asked}), time.monotonic() + settings.wait_s
    places, wait_s = [TopicPartition(*each) for each in asked], settings.wait_s
    while True:
        try:
            futures = [
                client.list_offsets(
                    dict.fromkeys(places, spec), isolation_level=isolation, request_timeout=wait_s
                )
                for spec, isolation in kinds
            ]
            return [tuple(answered(each[place], settings).offset for each in futures) for place in places]
        except KafkaException as raised:
            error = raised.args[0]
        if time.monotonic() >= deadline or not (error.code() in LEADER_MOVES or is_missing(error)):
            raise translate(error, settings, what=", ".join(topics))
        client.poll(_LEADER_POLL_S)
        for topic in topics:
            # The client caches partitions and leaders until a request for metadata.
            with suppress(EnvironmentProblem):
                there = _partitions(client, topic, settings)
                if not {partition for name, partition in asked if name == topic} <= there.keys():
                    raise translate(error, settings, what=topic) if there else topic_missing(topic, settings)
