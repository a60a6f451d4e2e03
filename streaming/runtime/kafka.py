"""One way to reach Kafka: connection settings, topics, offsets, and librdkafka's errors as ours.

librdkafka retries by itself and reports trouble on the side, so two habits keep its behaviour predictable here:
every wait has an end (`KafkaSettings.wait_s`), and every `KafkaException` leaves through `translated`, which
turns it into an error that names the broker and says what to do. Its own log lines are off; they would
interleave with progress bars and repeat what the error says.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec, PartitionMetadata

from schemas.errors import BackfillError, Code, EnvironmentProblem, Fenced, InputError, TopicError

DEFAULT_WAIT_S = 15.0
TRANSACTION_TIMEOUT_MS = 60_000
"""After this long the broker ends a transaction that its producer left open; readers wait no longer than that."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Where the broker is and how long to wait for it.

    `wait_s` bounds every call in seconds: after it the broker counts as unreachable. Settings of a secured
    cluster will be fields of this class too, so that only keys that we know ever get to librdkafka.
    """

    bootstrap: str
    wait_s: float = DEFAULT_WAIT_S

    def client(self, **over: Any) -> dict[str, Any]:
        """librdkafka's configuration for any client; `over` wins (its keys have dots: pass `**{"group.id": ...}`)."""
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **over}

    def consumer(self, **over: Any) -> dict[str, Any]:
        """A reader of committed records that keeps no offsets and assigns partitions itself.

        Retention that overtakes the reader is an error, never a jump.
        """
        return self.client(
            **{
                "group.id": "backfill-reader",  # librdkafka wants a name; nothing is committed under it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,  # the end of a partition should be known at once, not after 0.5 s
                **over,
            }
        )

    def producer(self, **over: Any) -> dict[str, Any]:
        """An idempotent producer: no record twice and none out of order within a partition while it lives.

        A record without an explicit partition goes to crc32(key) % partitions.
        """
        return self.client(
            **{"enable.idempotence": True, "partitioner": "consistent", "linger.ms": 5, **over}
        )

    def transactional(
        self, transactional_id: str, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS, **over: Any
    ) -> dict[str, Any]:
        """A transactional producer that starts fast.

        `init_transactions` takes 0.02 s or 0.5 s by librdkafka's internal timers; no periodic metadata refresh, a
        short retry backoff and one `poll(0.02)` before the call keep it mostly at the lower.
        """
        return self.producer(
            **{
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "topic.metadata.refresh.interval.ms": -1,
                "retry.backoff.ms": 10,
                **over,
            }
        )


_UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_LOST = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})


def translate(error: KafkaError, settings: KafkaSettings, *, what: str) -> BackfillError:
    """librdkafka's error as ours. `what` is what was tried, a place or an act: `orders-0@12`, `topic orders`."""
    code, name = error.code(), error.name()
    if code in _UNREACHABLE:
        return EnvironmentProblem(
            Code.BROKER_UNREACHABLE,
            where=what,
            found=f"no answer from {settings.bootstrap} within {settings.wait_s:g} s ({name})",
            expected="a Kafka broker there",
            next_step="start the broker, or mend kafka.bootstrap",
        )
    if code in _REFUSED:
        return EnvironmentProblem(
            Code.AUTH_FAILED,
            where=what,
            found=f"{settings.bootstrap} refused this client ({name})",
            expected="credentials and rights that the broker accepts",
            next_step="check user, secret and access rules on the broker",
        )
    if code in _FENCED:
        return Fenced(
            Code.FENCED,
            where=what,
            found=f"a newer instance with the same transactional id, or an end by timeout ({name})",
            expected="to be the only instance",
            next_step="leave the newer instance running; start this one again only to take over",
        )
    if code in _MISSING:
        return topic_missing(what, settings)
    if code in _LOST:
        return InputError(
            Code.DATA_LOST,
            where=what,
            found="an offset that the broker no longer has",
            expected="every record from the beginning of the topic",
            next_step="raise the topic's retention; what it removed can't be read again",
        )
    return EnvironmentProblem(
        Code.BROKER_FAILED,
        where=what,
        found=f"Kafka's error {name}",
        expected="the broker to carry out the request",
        next_step=f"look this error up and check the broker at {settings.bootstrap}",
    )


def topic_missing(topic: str, settings: KafkaSettings) -> TopicError:
    return TopicError(
        Code.TOPIC_MISSING,
        where=topic,
        found=f"no such topic on {settings.bootstrap}",
        expected="a topic that exists",
        next_step="create the topic or mend its name",
    )


@contextmanager
def translated(settings: KafkaSettings, *, what: str) -> Iterator[None]:
    """Let no KafkaException out, only ours."""
    try:
        yield
    except KafkaException as raised:
        raise translate(raised.args[0], settings, what=what) from None


class ErrorWatch:
    """librdkafka's side channel (`error_cb`): it says *why* a broker can't be reached before the call gives up.

    A refused login shows only here; the call itself would time out with a transport error. `poll` serves it.
    """

    def __init__(self) -> None:
        self.refused: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() in _REFUSED:
            self.refused = error


def admin(settings: KafkaSettings) -> AdminClient:
    """A connected admin client.

    Raises: EnvironmentProblem(BROKER_UNREACHABLE) after `wait_s`, EnvironmentProblem(AUTH_FAILED) at once.
    """
    watch = ErrorWatch()
    client = AdminClient(settings.client(error_cb=watch))
    deadline = time.monotonic() + settings.wait_s
    while True:
        try:
            client.list_topics(topic="", timeout=min(1.0, settings.wait_s))
            return client
        except KafkaException as raised:
            client.poll(0)
            if watch.refused or time.monotonic() >= deadline:
                raise translate(watch.refused or raised.args[0], settings, what="connecting") from None


def _partitions(client: AdminClient, topic: str, settings: KafkaSettings) -> Mapping[int, PartitionMetadata]:
    with translated(settings, what=topic):
        found = client.list_topics(topic=topic, timeout=settings.wait_s).topics[topic]
    if found.error is not None and found.error.code() not in (*_MISSING, KafkaError.LEADER_NOT_AVAILABLE):
        raise translate(found.error, settings, what=topic)
    partitions: Mapping[int, PartitionMetadata] = found.partitions
    return partitions


def partitions_of(settings: KafkaSettings, topic: str) -> int | None:
    """How many partitions the topic has; None if there is no such topic."""
    return len(_partitions(admin(settings), topic, settings)) or None


def require_topic(settings: KafkaSettings, topic: str) -> int:
    """How many partitions the topic has. Raises: TopicError(TOPIC_MISSING)."""
    count = partitions_of(settings, topic)
    if count is None:
        raise topic_missing(topic, settings)
    return count


def create_topic(
    settings: KafkaSettings, topic: str, partitions: int, *, config: Mapping[str, str] | None = None
) -> None:
    """Have the topic, with exactly this many partitions, each with a leader; one that is there already is taken.

    `config` are topic settings for a new topic; those of an old one are left alone. A new topic keeps its
    records for ever unless `config` says otherwise: it is read from its beginning.

    Raises: TopicError(OUTPUT_TOPIC_MISMATCH) if it is there with another count.
    """
    client = admin(settings)
    if not _partitions(client, topic, settings):
        wanted = NewTopic(
            topic, partitions, config={"retention.ms": "-1", "retention.bytes": "-1", **(config or {})}
        )
        try:
            client.create_topics([wanted], operation_timeout=settings.wait_s)[topic].result(settings.wait_s)
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translate(raised.args[0], settings, what=topic) from None
    count = _await_leaders(client, topic, settings)
    if count != partitions:
        raise TopicError(
            Code.OUTPUT_TOPIC_MISMATCH,
            where=topic,
            found=f"{count} partitions",
            expected=f"{partitions} partitions",
            next_step="name another topic, delete this one, or declare the count that it has",
        )


def _await_leaders(client: AdminClient, topic: str, settings: KafkaSettings) -> int:
    """A topic just made is known to the controller first and to its clients a little later."""
    deadline = time.monotonic() + settings.wait_s
    while True:
        partitions = _partitions(client, topic, settings)
        if partitions and all(part.leader >= 0 for part in partitions.values()):
            return len(partitions)
        if time.monotonic() >= deadline:
            raise translate(KafkaError(KafkaError._TIMED_OUT), settings, what=topic)
        client.poll(0.02)


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Offsets of a partition: `earliest` is there, `stable` and `high` are one past the last.

    Committed readers get as far as `stable` (the last stable offset); between it and `high` a transaction is open.
    """

    earliest: int
    stable: int
    high: int


def watermarks(
    settings: KafkaSettings, topic: str, *, client: AdminClient | None = None
) -> tuple[Watermarks, ...]:
    """The watermarks of every partition, in partition order, as of now. Raises: TopicError(TOPIC_MISSING)."""
    client = client or admin(settings)
    count = len(_partitions(client, topic, settings))
    if not count:
        raise topic_missing(topic, settings)

    def offsets(spec: OffsetSpec, isolation: IsolationLevel) -> list[Any]:
        asked = {TopicPartition(topic, partition): spec for partition in range(count)}
        futures = client.list_offsets(asked, isolation_level=isolation, request_timeout=settings.wait_s)
        return [futures[partition] for partition in asked]

    asked = (
        offsets(OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
        offsets(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
        offsets(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
    )
    with translated(settings, what=topic):
        return tuple(
            Watermarks(*(future.result().offset for future in each)) for each in zip(*asked, strict=True)
        )
