"""A few upstream records that a lane reads and decodes itself, to the columns of `streaming.source.decoded`.

Spark takes some hundred milliseconds to plan, exchange and start a query, whatever it brings. A few hundred records are
read and decoded by their format's strict twin in a tenth of that, to the same columns, as long as there is nothing to
be said about one of them: whatever is at fault, or waits for a schema, is left to Spark's columns, which decide what
lane reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from schemas.errors import BackfillError, InputError
from schemas.formats.protocol import Format, Images, Rows
from schemas.records import BARRIER_HEADER, RecordId, Row, UpstreamRecord
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, OFFSET, OP, PARTITION, TRANSACTION, VNODE
from state.row_hash import row_hashes
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.source.decoded import AFTER, BEFORE, KEY, NO_DATA, POSITION, SIZE, UNCHANGED, VALUE

Ranges = Mapping[int, tuple[int, int]]
"""By partition, the offsets [first, end)."""

_READERS: dict[tuple[KafkaSettings, str], RangeReader] = {}
"""Open consumers of this process. A worker has one task at a time, and reads the same topic batch after batch."""


class UnfitError(Exception):
    """Records that Spark has to read. Nothing was done with them."""


@dataclass(frozen=True, slots=True)
class FewRecords:
    """Reads a topic of one table; a value that is sent to the lanes. `most_bytes`: what it reads at a time.

    A topic that holds no barriers is not looked through for marks of them, as in `UpstreamSource`.
    """

    kafka: KafkaSettings
    topic: str
    table: TableSchema
    holds_barriers: bool
    most_bytes: int = 8 << 20

    def decoded(
        self,
        ranges: Ranges,
        format_: Format,
        schema: pa.Schema,
        *,
        markers: Set[RecordId] = frozenset(),
        skipped: Set[RecordId] = frozenset(),
    ) -> pa.RecordBatch:
        """The committed records of some ranges, in columns of this schema: `decoded_schema`, and what the format adds.

        Without `markers`, records of barriers, and those `skipped`. For one thread of a process.
        Raises: UnfitError for records that are too large together, that can't be read, or of which the format, or a
        mark, makes no sound change.
        """
        rows = _rows_of(format_, self.table)
        found = [
            _decoded(message, rows, format_)
            for message in self._read(ranges)
            if not self._is_left_out(message, markers, skipped)
        ]
        return _columns(found, format_, self.table, schema)

    def _read(self, ranges: Ranges) -> Iterator[Message]:
        held = 0
        key = self.kafka, self.topic
        reader = _READERS.pop(key, None)
        try:
            if reader is None:
                reader = RangeReader(self.kafka, **{"fetch.wait.max.ms": 5})
            for chunk in reader.read(self.topic, ranges):
                held += sum(map(_size, chunk))
                if held > self.most_bytes:
                    raise UnfitError
                yield from chunk
        except BackfillError as error:
            raise UnfitError from error
        else:
            _READERS[key], reader = reader, None
        finally:
            if reader is not None:
                reader.close()

    def _is_left_out(self, message: Message, markers: Set[RecordId], skipped: Set[RecordId]) -> bool:
        place = located(message)
        if place in skipped:
            return True
        if not self.holds_barriers or header_of(message, BARRIER_HEADER) is None:
            return False
        if place in markers and message.key() is None:
            return True
        raise UnfitError


@lru_cache(maxsize=4)
def _rows_of(format_: Format, table: TableSchema) -> Rows:
    return format_.rows(table.columns, table.key_columns)


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A record, and what is in it."""

    place: RecordId
    key: bytes | None
    size: int
    content: UpstreamRecord

    def half(self, name: str) -> Row | None:
        change = self.content.change
        row: Row | None = None if change is None else getattr(change, name)
        return row


def _decoded(message: Message, rows: Rows, format_: Format) -> _Decoded:
    key, value = message.key(), message.value()
    if value is None and not format_.may_be_null:
        raise UnfitError
    try:
        content = rows.read_record(key, value)
    except InputError as error:
        raise UnfitError from error
    return _Decoded(located(message), key, _size(message), content)


def _size(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def _columns(
    records: Sequence[_Decoded], format_: Format, table: TableSchema, schema: pa.Schema
) -> pa.RecordBatch:
    befores, afters = ([record.half(name) for record in records] for name in ("before", "after"))
    before, after = (
        _struct(schema.field(name).type, halves) for name, halves in ((BEFORE, befores), (AFTER, afters))
    )
    rows = _struct(before.type, [a if a is not None else b for b, a in zip(befores, afters, strict=True)])
    partitions = pa.array([record.place[0] for record in records], pa.int32())
    contents = [record.content for record in records]
    values = {
        PARTITION: partitions,
        OFFSET: [record.place[1] for record in records],
        KEY: [record.key for record in records],
        VALUE: [None] * len(records),
        SIZE: [record.size for record in records],
        OP: [NO_DATA if each.change is None else each.change.op.value for each in contents],
        VNODE: pc.if_else(rows.is_valid(), _vnodes(rows, partitions, table), None),
        BEFORE: before,
        AFTER: after,
        BEFORE_HASH: _before_hashes(before, table)
        if format_.images is Images.FULL
        else [None] * len(records),
        UNCHANGED: [each.unchanged or None for each in contents],
        POSITION: [
            each.position and dict(zip(("commit", "lsn"), each.position, strict=True)) for each in contents
        ],
        TRANSACTION: [each.transaction for each in contents],
    }
    return pa.RecordBatch.from_arrays(
        [_array(values[field.name], field.type) for field in schema], schema=schema
    )


def _array(values: pa.Array | list[Any], kind: pa.DataType) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _struct(kind: pa.StructType, rows: Sequence[Row | None]) -> pa.StructArray:
    if not rows:
        return pa.array([], kind)
    cells = zip(*((None,) * kind.num_fields if row is None else row for row in rows), strict=True)
    columns = [pa.array(column, field.type) for column, field in zip(cells, kind, strict=True)]
    return pa.StructArray.from_arrays(
        columns, fields=list(kind), mask=pa.array([row is None for row in rows])
    )


def _vnodes(rows: pa.StructArray, partitions: pa.Array, table: TableSchema) -> pa.Array:
    """The vnode of each row, anything where there is none; rows without identity go by their partition, too."""
    if table.by_partition or not table.has_key:
        return partitions
    columns = [table.by_name[name] for name in table.distribution_key]
    hashes = row_hashes([pc.struct_field(rows, column.name) for column in columns], columns)
    return pa.array(hashes % table.vnode_count, pa.int32())


def _before_hashes(before: pa.StructArray, table: TableSchema) -> pa.Array:
    hashes = row_hashes([pc.struct_field(before, name) for name in table.column_names], table.columns)
    return pc.if_else(before.is_valid(), pa.array(hashes), None)
