"""Access to Kafka: settings for each kind of client, and librdkafka's errors as ours.

librdkafka retries by itself and reports errors by callbacks, so two rules keep it predictable: every wait has an end
(`KafkaSettings.wait_s`), and every `KafkaException` leaves through `translated`, which turns it into an error that
names the broker and the next step. Its own log lines are off: they would interleave with progress bars and repeat the
error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException

from schemas.errors import BackfillError, Code, EnvironmentProblem, Fenced, InputError, TopicError
from schemas.faults import nearest
from schemas.settings.kafka import KafkaConfig
from schemas.settings.security import OAuth, Security
from streaming.kafka.security import for_java, for_librdkafka, why_no_handshake
from streaming.kafka.tokens import why_no_token

DEFAULT_WAIT_S = 15.0
TRANSACTION_TIMEOUT_MS = 60_000
"""The broker ends a transaction that its producer left open after this time; no reader waits longer."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The broker's address, the login, and the longest wait for an answer.

    `wait_s` bounds every call in seconds: after it the broker counts as unreachable. `security` names secrets and holds
    none, so these settings are sent to lanes as they are, and each client reads the secrets when it is made: a task
    that Spark spills to a disk reveals nothing, and a replaced secret is used by the next client.
    `replication_factor` is that of topics that are created, None for the broker's default.
    """

    bootstrap: str
    wait_s: float = DEFAULT_WAIT_S
    security: Security = field(default_factory=Security)
    replication_factor: int | None = None

    @classmethod
    def from_config(cls, config: KafkaConfig) -> Self:
        """The settings of a checked configuration, which has to name a broker."""
        assert config.bootstrap is not None
        security = config.declared_security()
        return cls(config.bootstrap, security=security, replication_factor=config.replication_factor)

    def client(self, **over: object) -> dict[str, Any]:
        """Configuration of any client, with the secrets in it. Never to be logged.

        `over` wins; its keys have dots: pass `**{"group.id": ...}`. Raises: ConfigError when a secret is gone.
        """
        # Level 0 still prints fatal errors; a log queue that is never read takes those.
        # Topics are created explicitly, never by a client's request for metadata.
        quiet = {"log_level": 0, "log.queue": True, "allow.auto.create.topics": False}
        # librdkafka waits half of the shortest backoff, at least 11 ms, before it connects at all (rdkafka_conf.c,
        # `sparse_connect_intvl`): a client's first answer comes after 16 ms so, after 57 by its default of 100.
        prompt = {"reconnect.backoff.ms": 10}
        server = {"bootstrap.servers": self.bootstrap, **for_librdkafka(self.security)}
        return {**server, **quiet, **prompt, **over}

    def spark_options(self) -> dict[str, str]:
        """Options of Spark's Kafka source for this broker, with the secrets in them. As `client`."""
        java = {"bootstrap.servers": self.bootstrap, **for_java(self.security)}
        return {f"kafka.{key}": value for key, value in java.items()}

    def consumer(self, **over: object) -> dict[str, Any]:
        """A reader of committed records that keeps no offsets and assigns partitions itself.

        Retention that overtakes the reader is an error, never a jump.
        """
        return self.client(
            **{
                "group.id": "backfill-reader",  # librdkafka requires a name; nothing is committed under it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 20,  # the end of a partition should be known at once, not after 0.5 s
                # Once so much is fetched ahead, librdkafka fetches no more of a partition for this long, by default a
                # whole second, and a faster reader waits: 1 M records took 5.4 s before, 1.4 now.
                "fetch.queue.backoff.ms": 5,
                "queued.min.messages": 20_000,
                "queued.max.messages.kbytes": 16_384,
                **over,
            }
        )

    def producer(self, **over: object) -> dict[str, Any]:
        """An idempotent producer: no record twice and none out of order within a partition while it lives.

        A record without an explicit partition goes to crc32(key) % partitions.
        """
        return self.client(
            **{"enable.idempotence": True, "partitioner": "consistent", "linger.ms": 5, **over}
        )

    def transactional(
        self, transactional_id: str, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS, **over: object
    ) -> dict[str, Any]:
        """A transactional producer that starts fast.

        `init_transactions` takes 0.02 s or 0.5 s by librdkafka's internal timers. No periodic metadata
        refresh, short backoffs, and a connection that is up before the call keep it at the lower.
        """
        return self.producer(
            **{
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "topic.metadata.refresh.interval.ms": -1,
                "retry.backoff.ms": 10,
                "topic.metadata.refresh.fast.interval.ms": 10,
                **over,
            }
        )


LEADER_MOVES = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,
    }
)
"""Errors of a partition whose leader has changed, or is not chosen yet, or has restarted; the last one is librdkafka's
own, for a partition without a known leader."""
COORDINATOR_MOVES = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Errors of a group whose coordinator has changed or is loading: after the broker's start, or for a new group."""
_UNREACHABLE = (
    LEADER_MOVES
    | COORDINATOR_MOVES
    | frozenset(
        {
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._RESOLVE,
            KafkaError._TIMED_OUT,
            KafkaError._MSG_TIMED_OUT,
            KafkaError._TIMED_OUT_QUEUE,
            KafkaError.REQUEST_TIMED_OUT,
            KafkaError.BROKER_NOT_AVAILABLE,
        }
    )
)
_NO_RIGHT = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_REFUSED = _NO_RIGHT | {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
_MISSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
OUT_OF_RANGE = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET})
"""Errors of a reader whose offset a broker does not have: deleted, or not there yet, as on a leader that has just been
elected. Whether anything is lost, only the partition's watermarks tell."""


def translate(error: KafkaError, settings: KafkaSettings, *, what: str) -> BackfillError:
    """The error to raise; `what` is the location or action that failed: `orders-0@12`, `orders`, `connecting`."""
    code, name = error.code(), error.name()
    if code == KafkaError._SSL:
        return _no_tls(why_no_handshake(settings.bootstrap, settings.security) or name, settings, what=what)
    if code in _UNREACHABLE:
        # A broker that refuses this client's certificate just closes the connection (TLS 1.3).
        if settings.security.encrypted and (
            reason := why_no_handshake(settings.bootstrap, settings.security)
        ):
            return _no_tls(reason, settings, what=what)
        # The error is the same while the client gets no token from its server.
        oauth = settings.security.oauth
        if oauth is not None and (problem := why_no_token(oauth)):
            return problem
        return EnvironmentProblem(
            Code.BROKER_UNREACHABLE,
            where=what,
            found=f"no answer from {settings.bootstrap} within {settings.wait_s:g} s ({name})",
        )
    if code in _REFUSED:
        return _refused(code, name, settings, what=what)
    if code in _FENCED:
        return Fenced(
            Code.FENCED,
            where=what,
            found=f"a newer instance with the same transactional id, or an end by timeout ({name})",
        )
    if code in _MISSING:
        return topic_missing(what, settings)
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return InputError(
            Code.RECORD_TOO_LARGE,
            where=what,
            found=f"a record that {settings.bootstrap} does not take ({name})",
            expected="topics whose max.message.bytes is what limits.record_bytes and their form need",
            next_step="raise max.message.bytes of the outputs",
        )
    reason = f"Kafka's error {name} ({error.str()})"
    return EnvironmentProblem(Code.BROKER_FAILED, where=what, found=reason, bootstrap=settings.bootstrap)


def _no_tls(reason: str, settings: KafkaSettings, *, what: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        Code.AUTH_FAILED,
        where=what,
        found=f"no TLS with {settings.bootstrap} ({reason})",
        expected="a broker and a client that accept each other's certificates",
        next_step="check kafka.ca_file, the dates of both certificates, and that kafka.bootstrap names a host of "
        "the broker's certificate",
    )


def _refused(code: int, name: str, settings: KafkaSettings, *, what: str) -> BackfillError:
    if code in _NO_RIGHT:
        return EnvironmentProblem(
            Code.AUTH_FAILED,
            where=what,
            found=f"{settings.bootstrap} does not allow this ({name})",
            expected="the rights that docs/security.md lists",
            next_step="grant them to this user on the broker",
        )
    if settings.security.oauth is not None:
        return _no_login_by_token(settings.security.oauth, name, settings, what=what)
    return EnvironmentProblem(
        Code.AUTH_FAILED, where=what, found=f"{settings.bootstrap} refused the login ({name})"
    )


def _no_login_by_token(oauth: OAuth, name: str, settings: KafkaSettings, *, what: str) -> BackfillError:
    """The error for a refused token: librdkafka's is the same if the token server is unreachable, or refuses."""
    return why_no_token(oauth) or EnvironmentProblem(
        Code.AUTH_FAILED,
        where=what,
        found=f"{settings.bootstrap} refused a login by token ({name})",
        expected="a broker that takes OAUTHBEARER and the tokens of kafka.oauth.token_url",
        next_step="compare the issuer, audience, scope and keys that the broker asks for, and its mechanisms",
    )


def topic_missing(topic: str, settings: KafkaSettings, known: Collection[str] = ()) -> TopicError:
    """The error for a missing topic; it names the nearest one of those that are `known`."""
    likely = _nearest_topic(topic, known)
    found = f"no such topic on {settings.bootstrap}{likely}"
    next_step = None
    if likely:
        next_step = "correct the topic's name; or create the topic, if it is to be a new one"
    return TopicError(Code.TOPIC_MISSING, where=topic, found=found, next_step=next_step)


def _nearest_topic(topic: str, known: Collection[str]) -> str:
    """A question for the topic that may be meant: by a slip, or by a name without the prefix that connectors give."""
    names = sorted(name for name in known if not name.startswith("__"))
    tails = [name for name in names if name.casefold().endswith(f".{topic.casefold()}")]
    return f" (did you mean {tails[0]!r}?)" if tails else nearest(topic, names)


@contextmanager
def translated(settings: KafkaSettings, *, what: str) -> Iterator[None]:
    """Raise the errors of `schemas.errors` in place of KafkaException."""
    try:
        yield
    except KafkaException as raised:
        raise translate(raised.args[0], settings, what=what) from None


def is_refusal(error: KafkaError) -> bool:
    """True if the broker answered, and refused this client."""
    return error.code() in _REFUSED


def is_missing(error: KafkaError) -> bool:
    """True if the topic or partition is missing (or new: its leader is still to be chosen)."""
    return error.code() in _MISSING or error.code() == KafkaError.LEADER_NOT_AVAILABLE
