"""Access to Kafka: settings for each kind of client.

librdkafka retries by itself and reports errors by callbacks, so two rules keep it predictable: every wait has an end
(`KafkaSettings.wait_s`), and every error is translated (`streaming.kafka.errors`). Its own log lines are off: they
would interleave with progress bars and repeat the error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from schemas.errors import Code, ConfigError
from schemas.settings.client_settings import PassedSettings, Role, for_java_consumer
from schemas.settings.kafka import KafkaConfig
from schemas.settings.security import Security
from streaming.kafka.security import for_java, for_librdkafka

DEFAULT_WAIT_S = 15.0
TRANSACTION_TIMEOUT_MS = 60_000
"""The broker ends a transaction that its producer left open after this time; no reader waits longer."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The broker's address, the login, and the longest wait for an answer.

    `wait_s` bounds every call in seconds: after it the broker counts as unreachable. `security` names secrets and holds
    none, so these settings are sent to lanes as they are, and each client reads the secrets when it is made: a task
    that Spark spills to a disk reveals nothing, and a replaced secret is used by the next client.
    `replication_factor` is that of topics that are created, None for the broker's default. `passed` are settings of
    clients by role that win over those of this class, but over none that its callers ask for.
    """

    bootstrap: str
    wait_s: float = DEFAULT_WAIT_S
    security: Security = field(default_factory=Security)
    replication_factor: int | None = None
    passed: PassedSettings = ()

    @classmethod
    def from_config(cls, config: KafkaConfig) -> Self:
        """The settings of a checked configuration, which has to name a broker.

        Raises: ConfigError(CONFIG_INVALID) for a passed setting that librdkafka does not have, or a value that it does
        not take.
        """
        assert config.bootstrap is not None
        settings = cls(
            config.bootstrap,
            security=config.declared_security(),
            replication_factor=config.replication_factor,
            passed=config.passed_settings(),
        )
        settings._refuse_unknown()
        return settings

    def _refuse_unknown(self) -> None:
        # Only librdkafka knows its settings: a client is made of each role's, which connects to nothing yet.
        clients: dict[Role, Callable[[], object]] = {
            "consumer": lambda: Consumer(self.consumer()).close(),
            "producer": lambda: Producer(self.producer()),
            "admin": lambda: AdminClient(self.admin()),
        }
        for role, _ in self.passed:
            try:
                clients[role]()
            except KafkaException as raised:
                raise ConfigError(
                    Code.CONFIG_INVALID,
                    where=f"kafka.{role}",
                    found=f"what librdkafka does not take ({raised.args[0].str().strip()})",
                    expected="settings that its documentation names, with values in their range",
                    next_step="correct the section kafka",
                ) from None

    def passed_to(self, role: Role) -> dict[str, str]:
        """The passed settings of clients of a role."""
        return dict(dict(self.passed).get(role, ()))

    def admin(self, **over: object) -> dict[str, Any]:
        """Configuration of a client that looks at topics and changes them. As `client`."""
        return self.client(**{**self.passed_to("admin"), **over})

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
        passed = for_java_consumer(self.passed_to("consumer"))
        java = {"bootstrap.servers": self.bootstrap, **for_java(self.security), **passed}
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
                **self.passed_to("consumer"),
                **over,
            }
        )

    def producer(self, **over: object) -> dict[str, Any]:
        """An idempotent producer: no record twice and none out of order within a partition while it lives.

        A record without an explicit partition goes to crc32(key) % partitions.
        """
        own = {"enable.idempotence": True, "partitioner": "consistent", "linger.ms": 5}
        return self.client(**{**own, **self.passed_to("producer"), **over})

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
                **self.passed_to("producer"),
                **over,
            }
        )
