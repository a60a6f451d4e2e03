"""The first records of an upstream, read once before there is a finished batch, and judged.

Their rows have the declared columns, no two databases write under one name, and each record can be decoded with the
declared table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from confluent_kafka import Message

from schemas.avro.registered import KnownSchemas, Schemas
from schemas.codec.log_positions import positions_in
from schemas.codec.logs import LogId
from schemas.errors import Code, ConfigError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.row_names import SeenNames, row_names
from schemas.formats.with_registry import RegistryFormat
from schemas.records import BARRIER_HEADER, RecordId
from schemas.settings.config import ServiceConfig
from state.columns import PARTITION
from streaming.core.log_ranges import LogRanges
from streaming.inspect.samples import Sample
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of
from streaming.lane.changes import unplanned_changes
from streaming.lane.faults import Fault, find_faults
from streaming.registry.client import AskedSchemas, Registry
from streaming.source.decoded import POSITION, RecordDecoder
from streaming.source.direct_read import raw_record
from streaming.source.records import Records, RecordVnodes

OF_PARTITION, OF_TOPIC = 1_000, 16_000
"""Records that are looked at, at most."""
_AT_ONCE, _MOST_BYTES = 1_000, 16 << 20
"""Records that are decoded together, and their bytes."""
_SAMPLES = 100


@dataclass
class FirstRecords:
    """The judgement of the first records of `topic`.

    `names` is None where records have all columns anyway, `logs` where positions are not compared. `faults` are the
    invalid records among `count`, by location. `samples` are some of the records, for a guess at what they are.
    """

    topic: str
    names: SeenNames | None
    logs: dict[tuple[int, LogId], LogRanges] | None
    faults: list[Fault] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    count: int = 0

    def refuse_shared_logs(self) -> None:
        """Raises: ConfigError(LOG_SHARED) where some changes would look like redelivered ones, and be dropped."""
        for (partition, _), ranges in (self.logs or {}).items():
            if ranges.is_shared:
                raise ConfigError(Code.LOG_SHARED, where=f"{self.topic}-{partition}", found=str(ranges))

    @property
    def log_count(self) -> int:
        """The number of databases that write the topic."""
        return len({log for _, log in self.logs or {}})


def read_first(
    config: ServiceConfig,
    kafka: KafkaSettings,
    begins: Sequence[int] = (),
    left_out: Collection[RecordId] = (),
    schemas: Schemas | None = None,
) -> FirstRecords:
    """Read and judge the first records of each partition, from `begins` on, without barriers and those `left_out`.

    `schemas` are by default those of the configured registry.

    Raises: TopicError(TOPIC_MISSING); EnvironmentProblem of broker and registry.
    """
    format_ = config.upstream_format
    schemas = AskedSchemas(Registry(config.registry)) if schemas is None else schemas
    names = row_names(format_.with_schemas(schemas))
    compares = isinstance(format_, DebeziumFormat) and format_.on_log_reset != "accept"
    found = FirstRecords(
        config.upstream, None if names is None else SeenNames(config.table), {} if compares else None
    )
    known = KnownSchemas()
    decoder: RecordDecoder | None = None
    for block in _blocks(_first(kafka, config.upstream, begins, config.topics.barriers is None)):
        raws = [
            each for each in map(partial(raw_record, holds_barriers=False), block) if each[:2] not in left_out
        ]
        if not raws:
            continue
        found.count += len(raws)
        found.samples += [Sample(key, value) for _, _, key, value, _ in raws[: _SAMPLES - len(found.samples)]]
        if names is not None and found.names is not None:
            for row in (names(value) for _, _, _, value, _ in raws if value):
                if row is not None:
                    found.names.add(row)
        records = Records.of(raws)
        ids = known.unanswered(each for named in records.named(format_.framed) for each in named.distinct)
        if ids or decoder is None:
            asked = {each: schemas.get(each) for each in ids}
            there = (schema for schema in asked.values() if schema is not None)
            refused = (each for each, schema in asked.items() if schema is None)
            known = KnownSchemas((*known.schemas, *there), known.refused.union(refused))
            decoder = RecordDecoder(format_.with_schemas(known), config.table)
        _judge(decoder, records, found, config)
    found.faults.sort(key=lambda fault: (fault.partition, fault.offset))
    return found


def _judge(decoder: RecordDecoder, records: Records, found: FirstRecords, config: ServiceConfig) -> None:
    format_, table = decoder.format, decoder.table
    batch = decoder.decoded(records, RecordVnodes(format_, table).of(records).numbers)
    changes = unplanned_changes(batch, table)
    faults = find_faults(changes, table, config.limits.record_bytes, format_)
    adds = isinstance(format_, RegistryFormat) and format_.on_new_column == "add"
    found.faults += [fault for fault in faults if not (adds and fault.code is Code.SCHEMA_WAITS)]
    if found.logs is not None:
        _add_positions(batch, found.logs)


def _add_positions(batch: pa.RecordBatch, logs: dict[tuple[int, LogId], LogRanges]) -> None:
    """Add the position of each valid change that has one, in order."""
    partitions = batch.column(PARTITION).to_pylist()
    for partition, where in zip(partitions, positions_in(batch.column(POSITION)), strict=True):
        if where is not None and where.position is not None:
            logs.setdefault((partition, where.log), LogRanges(where.log)).add(where.position)


def _blocks(messages: Iterator[Message]) -> Iterator[list[Message]]:
    """Blocks of messages, of a bounded number and size."""
    block, size = list[Message](), 0
    for message in messages:
        block.append(message)
        size += len(message)
        if len(block) >= _AT_ONCE or size >= _MOST_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _first(
    kafka: KafkaSettings, topic: str, begins: Sequence[int], holds_barriers: bool
) -> Iterator[Message]:
    """The first records that are no barriers."""
    with RangeReader(kafka) as reader:
        most = min(OF_TOPIC, OF_PARTITION * len(reader.watermarks(topic)))
        for message in reader.first(topic, most, begins):
            if not (holds_barriers and header_of(message, BARRIER_HEADER) is not None):
                yield message
