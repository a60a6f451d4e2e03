"""A few upstream records that a lane reads and decodes itself, to the columns of `streaming.source.decoded`.

Spark takes some hundred milliseconds to plan, exchange and start a query, whatever it brings. A few hundred records are
read and decoded by their format's strict twin in a tenth of that, to the same columns, as long as there is nothing to
be said about one of them: whatever is at fault, or waits for a schema, is left to Spark's columns, which decide what
lane reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from schemas.errors import BackfillError, InputError
from schemas.formats.protocol import Format, Images, Rows
from schemas.records import BARRIER_HEADER, RecordId, Row, UpstreamRecord
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, OFFSET, OP, PARTITION, TRANSACTION, VNODE
from state.row_hash import row_hashes
from state.values.plan import BatchPlan
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.source.decoded import (
    AFTER,
    BEFORE,
    KEY,
    NO_DATA,
    POSITION,
    SIZE,
    UNCHANGED,
    VALUE,
    decoded_schema,
)

_WAIT_S = 5.0
"""For records that are there. Spark waits longer, and says what is wrong."""
_MOST_BYTES = 8 << 20
_POSITION = pa.struct([("commit", pa.int64()), ("lsn", pa.int64())])


class UnfitError(Exception):
    """Records that Spark has to read. Nothing was done with them."""


class Record(NamedTuple):
    """A record as it is in the topic."""

    place: RecordId
    key: bytes | None
    value: bytes | None

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class FewRecords:
    """Reads a topic of one table; a value that is sent to the lanes.

    A topic that holds no barriers is not looked through for marks of them, as in `UpstreamSource`.
    """

    kafka: KafkaSettings
    topic: str
    table: TableSchema
    holds_barriers: bool

    def decoded(
        self,
        ranges: Mapping[int, tuple[int, int]],
        format_: Format,
        *,
        markers: Set[RecordId] = frozenset(),
        skipped: Set[RecordId] = frozenset(),
    ) -> pa.RecordBatch:
        """The committed records of each partition's offsets [first, end), as `decoded_columns` has them.

        Without the barriers that stand at `markers`, and without those `skipped`. For one thread of a process.
        Raises: UnfitError as `decoded_columns`, and for records that can't be read, that are too many bytes together,
        or that are marked as barriers elsewhere.
        """
        found = [
            Record(place, message.key(), message.value())
            for message in self._read(ranges)
            if (place := located(message)) not in skipped and not self._is_barrier(message, markers)
        ]
        return decoded_columns(found, format_, self.table)

    def _read(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Message]:
        held = 0
        reader = _reader_of(self.kafka)
        try:
            for chunk in reader.read(self.topic, ranges):
                held += sum(len(message) for message in chunk)
                if held > _MOST_BYTES:
                    raise UnfitError
                yield from chunk
        except BackfillError as error:
            _reader_of.cache_clear()
            reader.close()
            raise UnfitError from error

    def _is_barrier(self, message: Message, markers: Set[RecordId]) -> bool:
        if not self.holds_barriers or header_of(message, BARRIER_HEADER) is None:
            return False
        if located(message) in markers and message.key() is None:
            return True
        raise UnfitError


def ranges_of(plan: BatchPlan, begins: Sequence[int] = ()) -> dict[int, tuple[int, int]]:
    """The offsets [first, end) of a batch by partition, without those before `begins`, and without empty ones."""
    first = map(max, plan.first_offsets, begins or plan.first_offsets)
    pairs = enumerate(zip(first, plan.end_offsets, strict=True))
    return {number: (start, end) for number, (start, end) in pairs if start < end}


@lru_cache(maxsize=1)
def _reader_of(kafka: KafkaSettings) -> RangeReader:
    """Kept open: a worker has one task at a time, and reads the same topic batch after batch."""
    return RangeReader(replace(kafka, wait_s=min(kafka.wait_s, _WAIT_S)), **{"fetch.wait.max.ms": 5})


@lru_cache(maxsize=1)
def _rows_of(format_: Format, table: TableSchema) -> Rows:
    return format_.rows(table.columns, table.key_columns)


def few_schema(format_: Format, table: TableSchema) -> pa.Schema:
    """The columns of `decoded_schema` and those that the format adds."""
    schema = decoded_schema(table)
    if format_.may_be_unchanged:
        schema = schema.append(pa.field(UNCHANGED, pa.list_(pa.int32())))
    if format_.comes_again:
        schema = schema.append(pa.field(POSITION, _POSITION))
    if format_.reads_transactions:
        schema = schema.append(pa.field(TRANSACTION, pa.int64()))
    return schema


def decoded_columns(records: Sequence[Record], format_: Format, table: TableSchema) -> pa.RecordBatch:
    """What Spark makes of sound records, in their order; the schema is `few_schema`.

    Raises: UnfitError for a record that is no sound change, as far as a format says that, and for one that names a
    schema which is not known.
    """
    schema = few_schema(format_, table)
    rows = _rows_of(format_, table)
    contents = [_content(record, rows, format_) for record in records]
    befores, afters = (
        [None if each.change is None else getattr(each.change, half) for each in contents]
        for half in ("before", "after")
    )
    halves = schema.field(AFTER).type
    before, after = _struct(befores, halves), _struct(afters, halves)
    row = _struct([b if a is None else a for b, a in zip(befores, afters, strict=True)], halves)
    partitions = pa.array([record.place[0] for record in records], pa.int32())
    nothing = [None] * len(records)
    columns: dict[str, pa.Array | list[Any]] = {
        PARTITION: partitions,
        OFFSET: [record.place[1] for record in records],
        KEY: [record.key for record in records],
        VALUE: nothing,
        SIZE: [record.size for record in records],
        OP: [NO_DATA if each.change is None else each.change.op.value for each in contents],
        VNODE: pc.if_else(row.is_valid(), _vnodes(row, partitions, table), None),
        BEFORE: before,
        AFTER: after,
        BEFORE_HASH: _hashes(before, table.column_names, table) if format_.images is Images.FULL else nothing,
        UNCHANGED: [each.unchanged for each in contents],
        POSITION: [
            each.position and dict(zip(("commit", "lsn"), each.position, strict=True)) for each in contents
        ],
        TRANSACTION: [each.transaction for each in contents],
    }
    arrays = [_array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _content(record: Record, rows: Rows, format_: Format) -> UpstreamRecord:
    if record.value is None and not format_.may_be_null:
        raise UnfitError
    try:
        return rows.read_record(record.key, record.value)
    except InputError as error:
        raise UnfitError from error


def _array(values: pa.Array | list[Any], kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _struct(rows: Sequence[Row | None], kind: pa.StructType) -> pa.StructArray:
    absent = (None,) * kind.num_fields
    cells = [[] for _ in absent] if not rows else zip(*(row or absent for row in rows), strict=True)
    columns = [pa.array(column, field.type) for column, field in zip(cells, kind, strict=True)]
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)


def _vnodes(rows: pa.StructArray, partitions: pa.Array, table: TableSchema) -> pa.Array:
    """The vnode of each row, anything where there is none; rows without identity go by their partition, too."""
    if table.by_partition or not table.has_key:
        return partitions
    hashes = _hashes(rows, table.distribution_key, table)
    return pa.array(hashes.fill_null(0).to_numpy() % table.vnode_count, pa.int32())


def _hashes(rows: pa.StructArray, names: Sequence[str], table: TableSchema) -> pa.Array:
    """Spark's hash of these columns of each row, null without a row."""
    columns = [table.by_name[name] for name in names]
    hashes = row_hashes([pc.struct_field(rows, name) for name in names], columns)
    return pc.if_else(rows.is_valid(), pa.array(hashes), None)
