"""A few upstream records that a lane reads and decodes itself, to the columns of `streaming.source.decoded`.

Spark takes some hundred milliseconds to plan, exchange and start a query, whatever it brings. A few hundred records are
read and decoded by their format's strict twin in a tenth of that, to the same columns, as long as there is nothing to
be said about one of them: whatever is at fault, or waits for a schema, is left to Spark's columns, which decide what
lane reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from schemas.errors import BackfillError, InputError
from schemas.formats.by_columns.log_positions import POSITION_TYPE, position_column
from schemas.formats.protocol import ColumnReader, Format, Images, Rows
from schemas.records import BARRIER_HEADER, NO_DATA, OddRecordError, RecordId, Row, UpstreamRecord
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
    MARKED,
    POSITION,
    SIZE,
    UNCHANGED,
    VALUE,
    decoded_schema,
)

_WAIT_S = 5.0
"""For records that are there. Spark waits longer, and says what is wrong."""
_MOST_BYTES = 8 << 20
"""Of records that are read one by one."""
_MOST_BYTES_BY_COLUMNS = 64 << 20
_KINDS = pa.int32(), pa.int64(), pa.binary(), pa.binary()

Columns: TypeAlias = dict[str, Any]
"""An Arrow array each, or a list that one is made of."""


Wanted: TypeAlias = Callable[[pa.Array, pa.Array], pa.Array]
"""From partitions and vnodes, null for none, to whether a record is wanted."""


class UnfitError(Exception):
    """Records that Spark has to read. Nothing was done with them."""


class UnreadError(UnfitError):
    """They are too many bytes together, or did not come: nothing is known of what is in them."""


class Records(NamedTuple):
    """n records as they are in the topic: 32-bit and 64-bit numbers, and bytes, null for none."""

    partitions: pa.Array
    offsets: pa.Array
    keys: pa.Array
    values: pa.Array

    @classmethod
    def of(cls, records: Sequence[tuple[int | None, int | None, object, object]]) -> Records:
        """From partition, offset, key and value of each."""
        columns = zip(*records, strict=True) if records else ((),) * len(_KINDS)
        return cls(*(pa.array(column, kind) for column, kind in zip(columns, _KINDS, strict=True)))

    def filter(self, wanted: pa.Array) -> Records:
        """Those where `wanted` is True."""
        return Records(*(column.filter(wanted) for column in self))

    @property
    def sizes(self) -> pa.Array:
        """Bytes of key and value of each."""
        return pc.add(*(pc.binary_length(each).fill_null(0) for each in (self.keys, self.values)))


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
        wanted: Wanted | None = None,
        by_columns: bool = False,
    ) -> pa.RecordBatch:
        """The committed records of each partition's offsets [first, end), as `decoded_columns` has them.

        Without the barriers that stand at `markers`, and without those `skipped`. For one thread of a process.
        Raises: UnfitError as `decoded_columns`, and for records that are marked as barriers elsewhere; UnreadError.
        """
        found = self._read(ranges, _MOST_BYTES_BY_COLUMNS if by_columns else _MOST_BYTES)
        if skipped:
            found = [each for each in found if located(each) not in skipped]
        if self.holds_barriers:
            found = [each for each in found if each.headers() is None or not self._is_barrier(each, markers)]
        records = [(each.partition(), each.offset(), each.key(), each.value()) for each in found]
        return decoded_columns(Records.of(records), format_, self.table, wanted, by_columns=by_columns)

    def _read(self, ranges: Mapping[int, tuple[int, int]], most_bytes: int) -> list[Message]:
        held, found = 0, list[Message]()
        reader = _reader_of(self.kafka)
        try:
            for chunk in reader.read(self.topic, ranges):
                held += sum(map(len, chunk))
                if held > most_bytes:
                    raise UnreadError
                found += chunk
        except BackfillError as error:
            _reader_of.cache_clear()
            reader.close()
            raise UnreadError from error
        return found

    def _is_barrier(self, message: Message, markers: Set[RecordId]) -> bool:
        if header_of(message, BARRIER_HEADER) is None:
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


@lru_cache(maxsize=1)
def _column_reader_of(format_: Format, table: TableSchema) -> ColumnReader | None:
    return format_.column_reader(table.columns, table.key_columns)


def few_schema(format_: Format, table: TableSchema) -> pa.Schema:
    """The columns of `decoded_schema` and those that the format adds."""
    schema = decoded_schema(table)
    if format_.may_be_unchanged:
        schema = schema.append(pa.field(UNCHANGED, pa.list_(pa.int32())))
    if format_.comes_again:
        schema = schema.append(pa.field(POSITION, POSITION_TYPE))
    if format_.reads_transactions:
        schema = schema.append(pa.field(TRANSACTION, pa.int64()))
    return schema


def marked_columns(records: Records, format_: Format, table: TableSchema) -> pa.RecordBatch:
    """What Spark makes of records that are marked as barriers; the schema is `few_schema`."""
    ops = pa.array([MARKED] * len(records.offsets), pa.int8())
    own = {PARTITION: records.partitions, OFFSET: records.offsets, KEY: records.keys, SIZE: records.sizes}
    columns: Columns = {**own, OP: ops}
    schema = few_schema(format_, table)
    arrays = [columns.get(field.name, pa.nulls(len(ops), field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decoded_columns(
    records: Records,
    format_: Format,
    table: TableSchema,
    wanted: Wanted | None = None,
    *,
    by_columns: bool = False,
) -> pa.RecordBatch:
    """What Spark makes of sound records, in their order, of those `wanted`; the schema is `few_schema`.

    `by_columns`: never one by one.

    Raises: UnfitError for a record that is no sound change, as far as a format says that, and for one that names a
    schema which is not known.
    """
    schema = few_schema(format_, table)
    content = _by_columns(records, format_, table)
    if content is None and by_columns:
        raise UnfitError
    if content is None:
        content = _one_by_one(records, format_, table, schema.field(AFTER).type)
    before, after = content[BEFORE], content[AFTER]
    row = pc.if_else(after.is_valid(), after, before)
    nothing = [None] * len(row)
    columns: Columns = content | {
        PARTITION: records.partitions,
        OFFSET: records.offsets,
        KEY: records.keys,
        VALUE: nothing,
        SIZE: records.sizes,
        VNODE: pc.if_else(row.is_valid(), _vnodes(row, records.partitions, table), None),
        BEFORE_HASH: nothing,
    }
    found = pa.RecordBatch.from_arrays(
        [_array(columns[field.name], field.type) for field in schema], schema=schema
    )
    if wanted is not None:
        found = found.filter(wanted(found[PARTITION], found[VNODE]))
    if format_.images is not Images.FULL:
        return found
    hashes = _hashes(found[BEFORE], table.column_names, table)
    return found.set_column(schema.get_field_index(BEFORE_HASH), schema.field(BEFORE_HASH), hashes)


def _by_columns(records: Records, format_: Format, table: TableSchema) -> Columns | None:
    """What the values say, by columns; None where the format has no way to, or a record is odd."""
    read = _column_reader_of(format_, table)
    if read is None:
        return None
    try:
        found = read(records.keys, records.values)
    except OddRecordError:
        return None
    return {
        OP: pa.array(found.ops),
        BEFORE: found.before,
        AFTER: found.after,
        UNCHANGED: found.unchanged,
        POSITION: found.positions,
        TRANSACTION: found.transactions,
    }


def _one_by_one(records: Records, format_: Format, table: TableSchema, halves: pa.StructType) -> Columns:
    rows = _rows_of(format_, table)
    pairs = zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True)
    contents = [_content(*pair, rows, format_) for pair in pairs]
    before, after = (
        _struct([None if each.change is None else getattr(each.change, half) for each in contents], halves)
        for half in ("before", "after")
    )
    return {
        OP: [NO_DATA if each.change is None else each.change.op.value for each in contents],
        BEFORE: before,
        AFTER: after,
        UNCHANGED: [each.unchanged for each in contents],
        POSITION: position_column(each.position for each in contents),
        TRANSACTION: [each.transaction for each in contents],
    }


def _content(key: bytes | None, value: bytes | None, rows: Rows, format_: Format) -> UpstreamRecord:
    if value is None and not format_.may_be_null:
        raise UnfitError
    try:
        return rows.read_record(key, value)
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
