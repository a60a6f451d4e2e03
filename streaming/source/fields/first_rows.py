"""The first records of an upstream topic, judged before a state is made of it.

Their rows have the declared columns, and no two databases write under one name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa
from confluent_kafka import Message

from schemas.codec.log_positions import positions_in
from schemas.codec.logs import LogId, Position
from schemas.errors import Code, ConfigError
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
_AT_ONCE = 1_000
"""Records that are decoded together."""


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
    logs = dict[tuple[int, LogId], LogRanges]()
    for partition, log, position in _positions(format_, table, _first(kafka, topic, begins)):
        logs.setdefault((partition, log), LogRanges(log)).add(position)
    for (partition, _), ranges in logs.items():
        if ranges.is_shared:
            raise ConfigError(Code.LOG_SHARED, where=f"{topic}-{partition}", found=str(ranges))
    return len({log for _, log in logs})


def _positions(
    format_: DebeziumFormat, table: TableSchema, messages: Iterator[Message]
) -> Iterator[tuple[int, LogId, Position]]:
    """The partition, the log and the position in it of each valid change that has them, in order."""
    decoder = format_.decoder(table.columns, table.key_columns)
    while block := list(islice(messages, _AT_ONCE)):
        keys, values = (pa.array(part, pa.binary()) for part in zip(*map(_parts, block), strict=True))
        found = decoder.decode(keys, values).positions
        for message, where in zip(block, positions_in(found), strict=True):
            if where is not None and where.position is not None:
                yield message.partition() or 0, where.log, where.position


def _parts(message: Message) -> tuple[object, object]:
    return message.key(), message.value()


def _first(kafka: KafkaSettings, topic: str, begins: Sequence[int]) -> Iterator[Message]:
    """The first records with a value, without barriers."""
    with RangeReader(kafka) as reader:
        most = min(OF_TOPIC, OF_PARTITION * len(reader.watermarks(topic)))
        for message in reader.first(topic, most, begins):
            if message.value() and header_of(message, BARRIER_HEADER) is None:
                yield message
