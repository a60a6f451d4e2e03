"""Checks of the broker: its address, transactions, and its clock by the newest record."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from streaming.kafka.errors import is_refusal, translate
from streaming.kafka.topics import answered
from streaming.service.checks.findings import Finding, Grade
from streaming.service.checks.surroundings import Surroundings

_PROBE = "backfill-doctor"
_SKEW_S = 2.0


def reached(found: Surroundings) -> Iterator[Finding]:
    """Check that it answers and lets this user in. Raises: EnvironmentProblem(BROKER_UNREACHABLE, AUTH_FAILED)."""
    if found.kafka is None:
        text = "an embedded one, started by the service; none to look at before that"
        yield Finding("broker", Grade.UNKNOWN, text)
        return
    _ = found.admin
    yield Finding.ok("broker", found.kafka.bootstrap)


def transactions(found: Surroundings) -> Iterator[Finding]:
    """By one that is begun for nothing: the broker keeps a name for it, and no record. Raises: as `translate`."""
    settings = found.broker
    try:
        producer = Producer(settings.transactional(_PROBE))
        producer.init_transactions(settings.wait_s)
    except KafkaException as raised:
        error = raised.args[0]
        if is_refusal(error) or error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            text = f"refused for {_PROBE}; right if only the prefix of this state is granted"
            yield Finding.warning("transactions", text, "grant Write to the prefix backfill-")
        else:
            raise translate(error, settings, what="transactions") from None
        return
    yield Finding.ok("transactions", "begun")


def clock(found: Surroundings) -> Iterator[Finding]:
    """Compare clocks by the newest record: Kafka has no request for its time, but no record can be from the future."""
    topic, wait_s = found.upstream, found.broker.wait_s
    futures = found.admin.list_offsets(
        {
            TopicPartition(topic.topic, number): OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
            for number in range(topic.partitions)
        },
        request_timeout=wait_s,
    )
    try:
        newest_ms = max(int(answered(future, found.broker).timestamp) for future in futures.values())
    except (KafkaException, ValueError):
        step = "compare by hand: date"
        yield Finding("clock", Grade.UNKNOWN, "no time of a record to compare with", step)
        return
    ahead_s = newest_ms / 1_000 - time.time()
    if newest_ms < 0:
        yield Finding.ok("clock", "no record to compare with yet")
    elif ahead_s > _SKEW_S:
        text = f"the newest record is {ahead_s:,.0f} s in the future"
        yield Finding.warning("clock", text, "set this machine's clock, or its producer's, by NTP")
    else:
        yield Finding.ok("clock", f"the newest record is {-ahead_s:,.0f} s old")
