"""Settings of Kafka's clients that a configuration passes through, by role, and those that it may not change.

Names are those of librdkafka's documentation. Spark's own consumer is Java's; it gets the settings that it has under
the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator

Role = Literal["consumer", "producer", "admin"]

_PROMISED = frozenset(
    {
        "isolation.level",
        "group.id",
        "auto.offset.reset",
        "enable.auto.commit",
        "auto.commit.enable",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "enable.idempotence",
        "enable.gapless.guarantee",
        "acks",
        "request.required.acks",
        "transactional.id",
        "transaction.timeout.ms",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "partitioner",
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "allow.auto.create.topics",
        "delivery.report.only.error",
    }
)
"""Settings that exactly once, the order of records, or the end of a topic's records rests on."""
_OF_PRODUCERS = frozenset(
    {
        "client.id",
        "message.max.bytes",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "retries",
        "message.send.max.retries",
    }
)
_OWN_KEYS = ("bootstrap.servers", "metadata.broker.list")
_OWN_SECTIONS = ("sasl.", "ssl.", "security.", "enable.ssl.", "enable.sasl.", "https.")
_CODE = frozenset(
    {
        "plugin.library.paths",
        "opaque",
        "log_level",
        "log.queue",
        "logger",
        "debug",
        "interceptor.classes",
        "default.topic.config",
        "on_commit",
        "on_delivery",
    }
)
_IN_JAVA = frozenset(
    {
        "check.crcs",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
    }
)
"""Settings of a consumer that Java's has under the same name, with the same meaning and unit."""


def refusal(role: Role, name: str) -> str | None:
    """The reason why a setting is not passed through to clients of this role; None where it is."""
    if name in _PROMISED or (role == "producer" and name in _OF_PRODUCERS):
        return "is the service's own: what it promises rests on it"
    if name in _OWN_KEYS or name.startswith(_OWN_SECTIONS):
        return "has keys of its own in the section kafka"
    if name in _CODE or name.endswith("_cb"):
        return "names code to run, or has to do with a client's own log"
    # A client with test.mock.num.brokers ignores bootstrap.servers without an error.
    if name.startswith("test."):
        return "puts a broker of librdkafka's tests in place of yours"
    return None


def _text(value: object) -> object:
    """A value as librdkafka takes it; anything but text, numbers and truth is left for pydantic to refuse."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _texts(declared: object) -> object:
    if not isinstance(declared, Mapping):
        return declared
    return {name: _text(value) for name, value in declared.items()}


ClientSettings = Annotated[dict[str, str], BeforeValidator(_texts)]
"""Settings by librdkafka's names, values as text. Those with a `refusal` are found by `check_kafka`."""
PassedSettings = tuple[tuple[Role, tuple[tuple[str, str], ...]], ...]
"""Settings by role, as a value that can be sent to lanes and compared."""


def for_java_consumer(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a consumer that Java's has, too."""
    return {name: value for name, value in settings.items() if name in _IN_JAVA}
