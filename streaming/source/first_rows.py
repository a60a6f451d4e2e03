"""The first rows of an upstream topic, judged before a state is made of it: they have the declared columns."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.formats.names.rows import row_names
from schemas.formats.names.seen import SeenNames, refuse_absent
from schemas.formats.protocol import Format
from schemas.records import BARRIER_HEADER
from schemas.table import TableSchema
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of

OF_PARTITION, OF_TOPIC = 1_000, 16_000
"""Records that are looked at, at most."""


def check_columns(
    kafka: KafkaSettings, topic: str, format_: Format, table: TableSchema, begins: Sequence[int] = ()
) -> SeenNames | None:
    """Look for the declared columns in the first records of each partition, from `begins` on.

    `format_` knows where schemas are looked up. None where its records have all columns anyway.

    Raises: ConfigError(COLUMN_ABSENT); TopicError(TOPIC_MISSING); EnvironmentProblem of broker and registry.
    """
    names_in = row_names(format_)
    if names_in is None:
        return None
    seen = SeenNames(table)
    with RangeReader(kafka) as reader:
        most = min(OF_TOPIC, OF_PARTITION * len(reader.watermarks(topic)))
        for message in reader.first(topic, most, begins):
            value = message.value()
            if value and header_of(message, BARRIER_HEADER) is None:
                names = names_in(value.encode() if isinstance(value, str) else value)
                if names is not None:
                    seen.add(names)
    refuse_absent(seen, topic)
    return seen
