"""The first records of an upstream topic, judged before a state is made of it.

Their rows have the declared columns, and no two databases write under one name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from confluent_kafka import Message

from schemas.codec.logs import LogId
from schemas.errors import Code, ConfigError, InputError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.names.rows import row_names
from schemas.formats.names.seen import SeenNames, refuse_absent
from schemas.formats.protocol import UpstreamFormat
from schemas.records import BARRIER_HEADER
from schemas.table import TableSchema
from streaming.core.log_ranges import LogRanges
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of

OF_PARTITION, OF_TOPIC = 1_000, 16_000
"""Records that are looked at, at most."""


def check_columns(
    kafka: KafkaSettings, topic: str, format_: UpstreamFormat, table: TableSchema, begins: Sequence[int] = ()
) -> SeenNames | None:
    """Look for the declared columns in the first records of each partition, from `begins` on.

    `format_` knows where schemas are looked up. None where its records have all columns anyway.

    Raises: ConfigError(COLUMN_ABSENT); TopicError(TOPIC_MISSING); EnvironmentProblem of broker and registry.
    """
    names_in = row_names(format_)
    if names_in is None:
        return None
    seen = SeenNames(table)
    for message in _first(kafka, topic, begins):
        names = names_in(message.value() or b"")
        if names is not None:
            seen.add(names)
    refuse_absent(seen, topic)
    return seen


def check_logs(
    kafka: KafkaSettings, topic: str, format_: UpstreamFormat, table: TableSchema, begins: Sequence[int] = ()
) -> int | None:
    """Look for two databases that write under one name. Returns how many logs there are.

    Some of their changes look like redelivered ones, and would be dropped. None for a format whose records have no
    position, and where all are accepted; records that are invalid are passed over. Otherwise as `check_columns`.

    Raises: ConfigError(LOG_SHARED).
    """
    if not isinstance(format_, DebeziumFormat) or format_.on_log_reset == "accept":
        return None
    rows, logs = format_.rows(table.columns, table.key_columns), dict[tuple[int, LogId], LogRanges]()
    for message in _first(kafka, topic, begins):
        try:
            where = rows.read_record(message.key(), message.value()).position
        except InputError:
            continue
        if where is None or where.position is None:
            continue
        own = logs.setdefault((message.partition() or 0, where.log), LogRanges(where.log))
        own.add(where.position)
    for (partition, _), ranges in logs.items():
        if ranges.is_shared:
            raise ConfigError(Code.LOG_SHARED, where=f"{topic}-{partition}", found=str(ranges))
    return len({log for _, log in logs})


def _first(kafka: KafkaSettings, topic: str, begins: Sequence[int]) -> Iterator[Message]:
    """The first records with a value, without barriers."""
    with RangeReader(kafka) as reader:
        most = min(OF_TOPIC, OF_PARTITION * len(reader.watermarks(topic)))
        for message in reader.first(topic, most, begins):
            if message.value() and header_of(message, BARRIER_HEADER) is None:
                yield message
