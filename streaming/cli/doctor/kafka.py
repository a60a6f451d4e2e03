"""Checks of the broker: its address, topics, rights, transactions, clock, and the upstream's first records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from schemas.errors import BackfillError
from schemas.formats.names.seen import LEAST_ROWS, MOST_NAMED, SeenNames
from schemas.settings.config import ServiceConfig
from state.journal import PATH
from state.storage import Storage
from streaming.cli.doctor.findings import Diagnosis, Grade, TopicNeed
from streaming.kafka.clients import KafkaSettings, is_missing, is_refusal, topic_missing, translate
from streaming.kafka.topics import admin
from streaming.registry.book import AskedSchemas
from streaming.registry.client import Registry
from streaming.source.fields.first_rows import check_columns, check_logs

_PROBE = "backfill-doctor"
_RIGHTS = "grant it, see the tables in docs/security.md"
_SKEW_S = 2.0
_Found = TypeVar("_Found")


def diagnoses(settings: KafkaSettings, needs: tuple[TopicNeed, ...]) -> Iterator[Diagnosis]:
    """Broker, topics and rights, transactions, clock; the broker alone where it can't be reached."""
    try:
        client = admin(settings)
    except BackfillError as error:
        yield Diagnosis.of("broker", error)
        return
    yield Diagnosis.ok("broker", settings.bootstrap)
    there = []
    for need in needs:
        finding, partitions = _topic(client, settings, need)
        yield finding
        there += [TopicPartition(need.topic, number) for number in range(partitions)]
    yield _transactions(settings)
    if there:
        yield _clock(client, settings, there)


def _topic(client: AdminClient, settings: KafkaSettings, need: TopicNeed) -> tuple[Diagnosis, int]:
    subject = f"topic {need.topic}"
    answer = client.describe_topics(
        TopicCollection([need.topic]), include_authorized_operations=True, request_timeout=settings.wait_s
    )
    try:
        found: Any = answer[need.topic].result(settings.wait_s)
    except KafkaException as raised:
        return _undescribed(subject, raised.args[0], settings, need), 0
    count = len(found.partitions)
    said = f"{count} partition{'' if count == 1 else 's'}"
    lacking = need.lacking([operation.name for operation in found.authorized_operations or ()])
    if lacking:
        rights = ", ".join(lacking)
        # Without this one the service only can't see whether records are taken out of its upstream.
        verdict = Grade.WARNING if lacking == ["DESCRIBE_CONFIGS"] and need.must_exist else Grade.FAILED
        return Diagnosis(subject, verdict, f"{said}, without the right to {rights}", _RIGHTS), count
    return Diagnosis.ok(subject, f"{said}, with {', '.join(sorted(need.operations))}"), count


def _undescribed(subject: str, error: KafkaError, settings: KafkaSettings, need: TopicNeed) -> Diagnosis:
    if is_refusal(error):
        return Diagnosis(subject, Grade.FAILED, "without the right to DESCRIBE", _RIGHTS)
    if not is_missing(error):
        return Diagnosis.of(subject, translate(error, settings, what=need.topic))
    if need.must_exist:
        return Diagnosis.of(subject, topic_missing(need.topic, settings))
    return Diagnosis.ok(subject, "not there yet; made when it is needed, which takes the right to Create")


def _transactions(settings: KafkaSettings) -> Diagnosis:
    """By one that is begun for nothing: the broker keeps a name for it, and no record."""
    try:
        producer = Producer(settings.transactional(_PROBE))
        producer.init_transactions(settings.wait_s)
    except KafkaException as raised:
        error = raised.args[0]
        if is_refusal(error) or error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            found = f"refused for {_PROBE}; right if only the prefix of this state is granted"
            return Diagnosis("transactions", Grade.WARNING, found, "grant Write to the prefix backfill-")
        found = f"{error.name()}"
        return Diagnosis("transactions", Grade.FAILED, found, "look at the broker's transaction coordinator")
    return Diagnosis.ok("transactions", "begun")


def _clock(client: AdminClient, settings: KafkaSettings, partitions: list[TopicPartition]) -> Diagnosis:
    """Compare clocks by the newest record: Kafka has no request for its time, but no record can be from the future."""
    futures = client.list_offsets(
        {
            each: OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
            for each in partitions
        },
        request_timeout=settings.wait_s,
    )
    try:
        newest_ms = max(int(future.result(settings.wait_s).timestamp) for future in futures.values())
    except (KafkaException, ValueError):
        return Diagnosis(
            "clock", Grade.UNKNOWN, "no time of a record to compare with", "compare by hand: date"
        )
    if newest_ms < 0:
        return Diagnosis.ok("clock", "no record to compare with yet")
    ahead_s = newest_ms / 1_000 - time.time()
    if ahead_s > _SKEW_S:
        found = f"the newest record is {ahead_s:,.0f} s in the future"
        return Diagnosis("clock", Grade.WARNING, found, "set this machine's clock, or its producer's, by NTP")
    return Diagnosis.ok("clock", f"the newest record is {-ahead_s:,.0f} s old")


UNASKED = Diagnosis(
    "broker", Grade.OK, "an embedded one, started by the service; none to look at before that"
)
"""The line for a configuration that names no broker."""


def of_first_rows(config: ServiceConfig, settings: KafkaSettings) -> Iterator[Diagnosis]:
    """The topic's first records, checked as by a first start: declared columns, and databases under one name.

    Nothing where there is a state already, or nothing to check.
    """
    try:
        if Storage(config.state).exists(PATH, "_delta_log"):
            return
    except BackfillError as error:
        yield Diagnosis.of("columns", error)
        return
    format_ = config.upstream_format.with_schemas(AskedSchemas(Registry(config.registry)))
    first = settings, config.upstream, format_, config.table
    yield from _of_first("columns", lambda: check_columns(*first), _columns_text)
    yield from _of_first("logs", lambda: check_logs(*first), _logs_text)


def _of_first(
    subject: str, check: Callable[[], _Found | None], text: Callable[[_Found], str]
) -> Iterator[Diagnosis]:
    try:
        found = check()
    except BackfillError as error:
        yield Diagnosis.of(subject, error)
    else:
        if found is not None:
            yield Diagnosis.ok(subject, text(found))


def _logs_text(count: int) -> str:
    return f"{count:,} in the first records, each of one database by its positions"


def _columns_text(seen: SeenNames) -> str:
    if seen.rows < LEAST_ROWS:
        return "too few rows in the topic to look for them"
    others = seen.undeclared
    more = f", which have {len(others):,} fields that are not declared: " if others else ""
    return f"each is in some of {seen.rows:,} first rows{more}{', '.join(others[:MOST_NAMED])}"
