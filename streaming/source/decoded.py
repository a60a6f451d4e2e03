"""Decodes raw records to columns, with an error for each record that is invalid; a lane's changes are made of them.

    PARTITION, OFFSET    where it stands
    KEY                  its key as it came
    SIZE                 bytes of key and value
    OP                   null where it is invalid, `MARKED` where it is marked as a barrier, `AWAITS` where it names a
                         schema of which the registry has not been asked yet
    VNODE                of its key, whatever its value; null where the key can't be read
    BEFORE, AFTER        structs of the table's columns, in their order; null where the image is missing
    BEFORE_HASH          see `state.columns`; null where the format does not give the row before
    ERROR                of an invalid record: code, what was found, what was expected
    AWAITED              the ids of the schemas that it waits for, of a record that does
    UNCHANGED            indices of columns that the record leaves out; of formats that may
    POSITION             where the change stands in its database's log, see `schemas.codec.log_positions`;
                         only of formats that have it
    TRANSACTION          see `state.columns`, or the lower 32 bits of it; only of formats that have it
    HEADERS              those that jobs pass on, see `streaming.source.records`; only where jobs do
    LACKING              see `FrameColumns.lacking`; only where a frame without a column may be an error

Nullability is not declared: the lane looks at the values, which `check_decoded` has checked by their types.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.chunks import whole
from schemas.codec.log_positions import POSITION_TYPE
from schemas.codec.results import flags_of, row_type
from schemas.errors import Code, InputError
from schemas.formats.protocol import Images, KeyEncoder, UpstreamFormat
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, OFFSET, OP, PARTITION, TRANSACTION, VNODE
from state.vnode import row_hashes
from streaming.source.records import HEADERS_FIELD, TIME_FIELD, Bools, Records, read_where, vnodes_of

KEY, SIZE, BEFORE, AFTER = "_bf_key", "_bf_size", "_bf_before", "_bf_after"
ERROR, AWAITED, LACKING = "_bf_error", "_bf_awaited", "_bf_lacking"
UNCHANGED, POSITION, HEADERS, TIME = "_bf_unchanged", "_bf_position", "_bf_headers", "_bf_time"
"""Columns in addition to those that the log has, too."""

ERROR_TYPE = pa.struct([("code", pa.string()), ("found", pa.string()), ("expected", pa.string())])

MARKED = -2
"""Op of a record that is marked as a barrier."""
AWAITS = -4
"""Op of a record that can't be read yet.

If that is its key, it comes to every lane, so that none sends before the lane of the record is known.
"""
_CONTENT = (OP, BEFORE, AFTER, UNCHANGED, POSITION, TRANSACTION, ERROR)
"""Columns that follow from key and value."""


class DecodedSchemaError(AssertionError):
    """A bug in us: what decodes records and what reads them do not fit together. Nothing was sent."""


def decoded_schema(table: TableSchema) -> pa.Schema:
    """The columns of decoded records of a table."""
    row = row_type(table.columns)
    return pa.schema(
        {
            PARTITION: pa.int32(),
            OFFSET: pa.int64(),
            KEY: pa.binary(),
            SIZE: pa.int32(),
            OP: pa.int8(),
            VNODE: pa.int32(),
            BEFORE: row,
            AFTER: row,
            BEFORE_HASH: pa.int64(),
            ERROR: ERROR_TYPE,
            AWAITED: pa.list_(pa.int64()),
        }
    )


def decoded_schema_of(
    format_: UpstreamFormat, table: TableSchema, *, headers: bool = False, times: bool = False
) -> pa.Schema:
    """The columns of `decoded_schema`, those that the format adds, and those of `raw_schema`."""
    schema = decoded_schema(table)
    if format_.may_be_unchanged:
        schema = schema.append(pa.field(UNCHANGED, pa.list_(pa.int32())))
    if format_.comes_again:
        schema = schema.append(pa.field(POSITION, POSITION_TYPE))
    if format_.reads_transactions:
        schema = schema.append(pa.field(TRANSACTION, pa.int64()))
    if format_.frame_columns(table) is not None:
        schema = schema.append(pa.field(LACKING, pa.string()))
    return with_more(schema, headers=headers, times=times)


def with_more(schema: pa.Schema, *, headers: bool, times: bool) -> pa.Schema:
    """The columns of decoded records, with further ones that raw records have."""
    own = [(HEADERS_FIELD.with_name(HEADERS), headers), (TIME_FIELD.with_name(TIME), times)]
    return pa.schema([*schema, *(field for field, wanted in own if wanted)])


def check_decoded(schema: pa.Schema, table: TableSchema) -> None:
    """Check that a lane of the table can read records with this schema; further columns do no harm.

    Raises: DecodedSchemaError, which names the first column that is missing or of another type.
    """
    found = dict(_columns(schema))
    for name, kind in _columns(decoded_schema(table)):
        if name not in found:
            raise DecodedSchemaError(f"decoded records lack the column {name} ({kind})")
        if found[name] != kind:
            raise DecodedSchemaError(f"column {name} of decoded records is {found[name]}, expected {kind}")
    for half in (BEFORE, AFTER):  # read by position
        names = [field.name for field in schema.field(half).type]
        if names != list(table.column_names):
            raise DecodedSchemaError(
                f"column {half} of decoded records has {names}, expected the table's order"
            )


def _columns(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """Every column with its type, those of a struct one by one."""
    for column in schema:
        if pa.types.is_struct(column.type):
            yield from ((f"{column.name}.{each.name}", each.type) for each in column.type)
        else:
            yield column.name, column.type


@dataclass
class RecordDecoder:
    """Decodes records of one table and format. For one thread."""

    format: UpstreamFormat
    table: TableSchema

    def __post_init__(self) -> None:
        table, format_ = self.table, self.format
        self.schema = decoded_schema_of(format_, table)
        self._content = pa.schema([each for each in self.schema if each.name in _CONTENT])
        self._decoder = format_.decoder(table.columns, table.key_columns)
        self._frames = format_.frame_columns(table)

    def decoded(self, records: Records, vnodes: pa.Int32Array) -> pa.RecordBatch:
        """The records in their order, in the columns of `schema`. `vnodes` as in `routes.Vnodes`."""
        marked, count = records.marked.to_numpy(zero_copy_only=False), len(records.marked)
        awaited = self._awaited(records)
        awaits = awaited.is_valid().to_numpy(zero_copy_only=False)
        own = {
            PARTITION: records.partitions,
            OFFSET: records.offsets,
            KEY: records.keys,
            SIZE: records.sizes,
            VNODE: vnodes,
            AWAITED: awaited,
        }
        content = read_where(~(marked | awaits), self._read, records.keys, records.values)
        own |= dict(zip(self._content.names, content.columns, strict=True))
        if marked.any() or awaits.any():
            others = pa.array(np.where(marked, np.int8(MARKED), np.int8(AWAITS)))
            own[OP] = pc.if_else(pa.array(marked | awaits), others, own[OP])
        own[BEFORE_HASH] = self._before_hashes(own[BEFORE], count)
        if self._frames is not None:
            own[LACKING] = self._frames.lacking(records.values)
        schema = self.schema
        more = records.headers is not None, records.times is not None
        if any(more):
            own |= {HEADERS: records.headers, TIME: records.times}
            schema = with_more(schema, headers=more[0], times=more[1])
        return pa.RecordBatch.from_arrays([own[each.name] for each in schema], schema=schema)

    def _awaited(self, records: Records) -> pa.ListArray:
        """The ids that the registry has not been asked for, of each record that has some; else null."""
        named, count = records.named(self.format.framed), len(records.keys)
        unanswered = self.format.known.unanswered(schema_id for each in named for schema_id in each.distinct)
        kind = self.schema.field(AWAITED).type
        if not unanswered:
            return pa.nulls(count, kind)
        ids = np.stack([np.where(each.within(unanswered), each.ids, -1) for each in named], axis=1)
        lists = [[int(each) for each in row if each >= 0] or None for row in ids]
        return pa.array(lists, kind)

    def _read(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.RecordBatch:
        count = len(keys)
        without = np.zeros(count, np.bool_) if self.format.may_be_null else flags_of(values.is_null())
        if without.any():
            rows = read_where(~without, self._read, keys, values)
            tombstone = InputError(Code.TOMBSTONE_UNSUPPORTED, found="a record without a value")
            errors = _errors(dict.fromkeys(np.flatnonzero(without).tolist(), tombstone), count)
            own = {ERROR: pc.coalesce(errors, rows.column(ERROR))}
            arrays = [own.get(name, rows.column(name)) for name in rows.schema.names]
            return pa.RecordBatch.from_arrays(arrays, schema=self._content)
        decoded = self._decoder.decode(keys, values)
        columns = {
            OP: decoded.ops,
            BEFORE: decoded.before,
            AFTER: decoded.after,
            UNCHANGED: decoded.unchanged,
            POSITION: decoded.positions,
            TRANSACTION: decoded.transactions,
            ERROR: _errors(decoded.errors, count),
        }
        found = ((columns[each.name], each.type) for each in self._content)
        arrays = [pa.nulls(count, kind) if column is None else column for column, kind in found]
        return pa.RecordBatch.from_arrays(arrays, schema=self._content)

    def _before_hashes(self, before: pa.StructArray, count: int) -> pa.Int64Array:
        if self.format.images is not Images.FULL:
            return pa.nulls(count, pa.int64())
        hashed = self.table.hashed_columns
        hashes = row_hashes([pc.struct_field(before, column.name) for column in hashed], hashed)
        return pa.array(hashes, mask=~before.is_valid().to_numpy(zero_copy_only=False))


def _errors(errors: Mapping[int, InputError], count: int) -> pa.StructArray:
    """The column of errors: code, what was found, what was expected."""
    if not errors:
        return pa.nulls(count, ERROR_TYPE)
    names = [each.name for each in ERROR_TYPE]
    texts = {row: (each.code.value, each.found, each.expected) for row, each in errors.items()}
    found = [dict(zip(names, texts[row], strict=True)) if row in texts else None for row in range(count)]
    return pa.array(found, ERROR_TYPE)


@lru_cache(maxsize=1)
def decoder_of(format_: UpstreamFormat, table: TableSchema) -> RecordDecoder:
    """The decoder of a format and table; that of the last call is kept."""
    return RecordDecoder(format_, table)


def decoded(records: Records, format_: UpstreamFormat, table: TableSchema) -> pa.RecordBatch:
    """The records in their order, decoded."""
    return decoder_of(format_, table).decoded(records, vnodes_of(format_, table).of(records).numbers)


class _Values(NamedTuple):
    """Encoded values of the changes at `rows`, with these ops."""

    rows: npt.NDArray[np.int64]
    ops: npt.NDArray[np.int8]
    values: pa.BinaryArray


@dataclass(frozen=True)
class Changes:
    """n changes in order. `interval[i]` counts the batch's barriers before change i; it only rises.

    `before` and `after` hold the table's columns (null where the image is missing), `keys` the key columns. A record
    that is no change has op -1, or `MARKED`.
    """

    interval: npt.NDArray[np.int64]
    vnodes: npt.NDArray[np.int32]
    ops: npt.NDArray[np.int8]
    before: tuple[pa.Array, ...]
    after: tuple[pa.Array, ...]
    keys: tuple[pa.Array, ...]
    rows: pa.Table
    _encoded: dict[KeyEncoder, pa.Array] = field(default_factory=dict, init=False, repr=False)
    _values: dict[Hashable, _Values] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def partitions(self) -> npt.NDArray[np.int32]:
        """The upstream partition of each change."""
        return numpy_of(self.rows, PARTITION)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each change in its partition."""
        return numpy_of(self.rows, OFFSET)

    @property
    def record_keys(self) -> pa.Array:
        """The keys of the records as they came, null for none."""
        return whole(self.rows[KEY])

    @property
    def headers(self) -> pa.ListArray | None:
        """The headers of the records that jobs pass on; None where none does."""
        return whole(self.rows[HEADERS]) if HEADERS in self.rows.schema.names else None

    def filtered(self, kept: Bools) -> Changes:
        """The changes where `kept` is True, in their order."""
        mask = pa.array(kept)
        return self._picked(kept, lambda column: column.filter(mask))

    def taken(self, rows: npt.NDArray[np.int64]) -> Changes:
        """The changes at `rows`, in this order."""
        places = pa.array(rows)
        return self._picked(rows, lambda column: column.take(places))

    def _picked(self, picked: npt.NDArray[Any], pick: Callable[[Any], Any]) -> Changes:
        return Changes(
            interval=self.interval[picked],
            vnodes=self.vnodes[picked],
            ops=self.ops[picked],
            before=tuple(map(pick, self.before)),
            after=tuple(map(pick, self.after)),
            keys=tuple(map(pick, self.keys)),
            rows=pick(self.rows),
        )

    def bounds(self, intervals: int) -> npt.NDArray[np.int64]:
        """The first index of each interval, and the end: interval i is [bounds[i], bounds[i + 1])."""
        return np.searchsorted(self.interval, np.arange(intervals + 1))

    def encoded_keys(self, encoder: KeyEncoder) -> pa.Array:
        """The keys as this writes them, null where a record is no change; done once for equal encoders.

        The upstream's say whether its records have the keys of their rows, a job's are what is sent.
        """
        if encoder not in self._encoded:
            self._encoded[encoder] = self._encode_keys(encoder)
        return self._encoded[encoder]

    def encoded_values(
        self,
        form: Hashable,
        rows: npt.NDArray[np.int64],
        ops: npt.NDArray[np.int8],
        encode: Callable[[], pa.BinaryArray],
    ) -> pa.BinaryArray:
        """The values of these rows, encoded once. The last encoded values of each form are kept."""
        known = self._values.get(form)
        if known is None or not (np.array_equal(known.rows, rows) and np.array_equal(known.ops, ops)):
            known = self._values[form] = _Values(rows, ops, encode())
        return known.values

    def _encode_keys(self, encoder: KeyEncoder) -> pa.Array:
        decoded = pc.and_(pa.array(self.ops >= 0), pc.is_valid(self.keys[0]))
        if pc.all(decoded).as_py():
            return encoder(self.keys)
        encoded = encoder([key.filter(decoded) for key in self.keys])
        return pc.replace_with_mask(pa.nulls(len(self), encoded.type), decoded, encoded)


def numpy_of(rows: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column without nulls as an array of NumPy."""
    column: npt.NDArray[Any] = rows[name].to_numpy()
    return column
