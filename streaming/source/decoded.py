"""The columns of decoded upstream records, as lanes get them; `check_decoded` checks a lane's input against them.

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
    HEADERS              those that jobs pass on, see `streaming.source.raw.records`; only where jobs do

Nullability is not declared: the lane looks at the values.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from schemas.codec.log_positions import POSITION_TYPE
from schemas.codec.results import row_type
from schemas.formats.protocol import UpstreamFormat
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, OFFSET, OP, PARTITION, TRANSACTION, VNODE
from streaming.source.raw.records import HEADERS_FIELD, TIME_FIELD

KEY, SIZE, BEFORE, AFTER = "_bf_key", "_bf_size", "_bf_before", "_bf_after"
ERROR, AWAITED = "_bf_error", "_bf_awaited"
UNCHANGED, POSITION, HEADERS, TIME = "_bf_unchanged", "_bf_position", "_bf_headers", "_bf_time"
"""Columns in addition to those that the log has, too."""

ERROR_TYPE = pa.struct([("code", pa.string()), ("found", pa.string()), ("expected", pa.string())])

MARKED = -2
"""Op of a record that is marked as a barrier."""
AWAITS = -4
"""Op of a record that can't be read yet.

If that is its key, it comes to every lane, so that none sends before the lane of the record is known.
"""


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
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from ((f"{field.name}.{each.name}", each.type) for each in field.type)
        else:
            yield field.name, field.type
