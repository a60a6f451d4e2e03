"""The start of a table from its topic or from a Delta table: decided when the state is made, and kept in it.

Nothing is written here. Errors that need no rows are raised here, before the journal has an owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from schemas.errors import Code, ConfigError, StateError
from schemas.kinds.initial import DeltaStart
from schemas.settings.config import ServiceConfig
from state.initial.start import AnyStart, DatabaseStart, Start, TopicStart
from state.initial.table import checked_table
from state.journal import Entry
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.errors import translated
from streaming.kafka.topics import watermarks


def start_of(
    config: ServiceConfig, known: Entry | None, kafka: KafkaSettings, *, state: str
) -> AnyStart | None:
    """The start of a state whose journal has the entry `known`, or of a new one; None: the topic's first record.

    Rows without identity stand for themselves alone, so their table starts at the earliest record that is there. A new
    state that starts from PostgreSQL is for `database_start`.

    Raises: StateError(INITIAL_CHANGED); ConfigError for an incompatible table (`SourceTable`) and offsets that are not
    the topic's (INITIAL_OFFSETS_MISFIT); EnvironmentProblem.
    """
    if known is not None:
        _refuse_changed(config, known, state)
        of_topic = TopicStart.from_binding(known.table)
        return (
            of_topic
            or Start.from_binding(known.table)
            or DatabaseStart.from_binding(known.table, config.table)
        )
    if config.initial is None:
        return None if config.table.has_key else _start_from_earliest(config.upstream, kafka)
    return _start_from_delta(config.initial, config, kafka)


def _start_from_earliest(topic: str, kafka: KafkaSettings) -> TopicStart | None:
    offsets = tuple(marks.earliest for marks in watermarks(kafka, topic))
    return TopicStart(offsets) if any(offsets) else None


def _start_from_delta(declared: DeltaStart, config: ServiceConfig, kafka: KafkaSettings) -> Start:
    source, topic = checked_table(declared, config.table), config.upstream
    offsets = declared.offsets
    if declared.timestamp is not None:
        offsets = offsets_at(kafka, topic, declared.timestamp)
    assert offsets is not None
    _refuse_beyond_topic(offsets, kafka, topic)
    return Start(declared, offsets, source.rows, source.further(config.table))


def _refuse_changed(config: ServiceConfig, known: Entry, state: str) -> None:
    declared = config.initial or config.initial_postgres
    delta, database = Start.from_binding(known.table), DatabaseStart.from_binding(known.table, config.table)
    before = delta.declared.to_dict() if delta else database.declared if database else None
    if (declared and declared.to_dict()) != before:
        raise StateError(
            Code.INITIAL_CHANGED,
            where=state,
            found=str(declared or "no section initial"),
            start=delta.declared if delta else database or "the topic's first record",
        )


def _refuse_beyond_topic(offsets: Sequence[int], kafka: KafkaSettings, topic: str) -> None:
    """Raises: ConfigError(INITIAL_OFFSETS_MISFIT). Offsets that the topic no longer holds are DATA_LOST later."""
    ends = [marks.high for marks in watermarks(kafka, topic)]
    if len(offsets) != len(ends) or any(offset > end for offset, end in zip(offsets, ends, strict=True)):
        raise ConfigError(
            Code.INITIAL_OFFSETS_MISFIT, where=topic, found=f"offsets {list(offsets)}", ends=ends
        )


def offsets_at(kafka: KafkaSettings, topic: str, timestamp_ms: int) -> tuple[int, ...]:
    """For each partition the offset of the first record with this timestamp or a later one; the end without one.

    Records of open transactions count. Raises: EnvironmentProblem, TopicError(TOPIC_MISSING).
    """
    marks = watermarks(kafka, topic)  # first, so that records that come in between are read
    asked = [TopicPartition(topic, number, timestamp_ms) for number in range(len(marks))]
    over = {"isolation.level": "read_uncommitted"}
    with closing(Consumer(kafka.consumer(**over))) as consumer, translated(kafka, what=topic):
        found = {each.partition: each.offset for each in consumer.offsets_for_times(asked, kafka.wait_s)}
    return tuple(found[number] if found[number] >= 0 else each.high for number, each in enumerate(marks))
