"""The start of a table from PostgreSQL: decided once, before the state has an owner."""

from __future__ import annotations

import time
from dataclasses import replace

import structlog

from schemas.errors import Code, TopicError
from schemas.formats.debezium import DebeziumFormat
from schemas.kinds.initial import PostgresStart
from schemas.settings.config import ServiceConfig
from state.initial.start import DatabaseStart, Survey
from state.small_files import ReadPace
from state.storage import Storage
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import cleanup_policy, watermarks
from streaming.postgres.checks import Declared
from streaming.postgres.reader import ChunkReader
from streaming.postgres.session import Gone
from streaming.postgres.start import Begun, access_of, begin, declared_of
from streaming.service.initial.reading import DatabaseReading, ReadingOrder
from streaming.service.initial.start import offsets_at

MARGIN_S = 600
"""The topic is read from this long before the first snapshot. A commit is streamed once it is in the server's log, and
seen by snapshots only afterwards: with a synchronous standby that answers late, seconds or minutes later. Its event has
to be among those that are read. The rest of it is for clocks that differ: the topic's times are the connector's."""

log = structlog.get_logger(__name__)


def debezium_of(config: ServiceConfig) -> DebeziumFormat:
    """The upstream's format, which a checked configuration has with `initial.postgres`."""
    assert isinstance(config.upstream_format, DebeziumFormat)
    return config.upstream_format


def database_start(config: ServiceConfig, declared: PostgresStart, kafka: KafkaSettings) -> DatabaseStart:
    """The start that a new state is bound to. Offsets of the topic are taken before the database is read.

    Raises: TopicError(COMPACTED_INPUT); EnvironmentProblem(POSTGRES_UNREACHABLE, BROKER_UNREACHABLE); as
    `streaming.postgres.start.begin`.
    """
    offsets = first_offsets(config, kafka)
    begun = _begun(config, declared)
    log.info(
        "starts_at",
        upstream=config.upstream,
        offsets=list(offsets),
        table=declared.table,
        rows=begun.survey.rows,
        ranges=len(begun.survey.ranges),
    )
    return DatabaseStart(
        declared.to_dict(),
        offsets,
        begun.identity,
        begun.survey,
        begun.declared.forms.time,
        begun.declared.publication,
    )


def first_offsets(config: ServiceConfig, kafka: KafkaSettings) -> tuple[int, ...]:
    """The offsets that a start from the database has now. Raises: TopicError(COMPACTED_INPUT); as `offsets_at`."""
    # Every event's own transaction decides on a chunk's rows.
    if "compact" in (policy := cleanup_policy(kafka, config.upstream) or ""):
        found = f"cleanup.policy={policy}, and a table that starts from PostgreSQL"
        raise TopicError(Code.COMPACTED_INPUT, where=config.upstream, found=found)
    return offsets_at(kafka, config.upstream, round((time.time() - MARGIN_S) * 1_000))


def survey_of(config: ServiceConfig, declared: PostgresStart) -> Survey:
    """The survey of a start, with all its checks of the database. Raises: as `database_start`, but for the topic."""
    return _begun(config, declared).survey


def _begun(config: ServiceConfig, declared: PostgresStart) -> Begun:
    try:
        return begin(declared, config.table, debezium_of(config))
    except Gone as gone:
        raise gone.problem() from None


def declared_by(start: DatabaseStart, config: ServiceConfig, declared: PostgresStart) -> Declared:
    """The declaration of the table. Keys that the configuration leaves open are as when the state was made."""
    found = declared_of(declared, config.table, debezium_of(config))
    time_mode = found.forms.time or start.time
    return replace(found, forms=replace(found.forms, time=time_mode), publication=start.publication)


def reading_of(
    start: DatabaseStart,
    config: ServiceConfig,
    declared: PostgresStart,
    storage: Storage,
    kafka: KafkaSettings,
) -> DatabaseReading:
    """The reading of the table for the batches of one run."""
    return DatabaseReading(
        ReadingOrder(
            storage=storage,
            table=config.table,
            survey=start.survey,
            whole=declared.mode == "whole",
            chunk_rows=declared.chunk_rows,
            readers=declared.readers,
            pace=ReadPace(declared.rate_limit),
            reader=lambda: reader_of(start, config, declared),
            ends=lambda: [marks.high for marks in watermarks(kafka, config.upstream)],
        )
    )


def reader_of(start: DatabaseStart, config: ServiceConfig, declared: PostgresStart) -> ChunkReader:
    """Open a session that reads the table that the state was made from. Raises: as `ChunkReader.open`."""
    access, found = access_of(declared), declared_by(start, config, declared)
    reader, _ = ChunkReader.open(access, found, expected=start.identity)
    return reader
