"""The columns of decoded upstream records, as lanes get them; `check_decoded` checks a lane's input against them.

    PARTITION, OFFSET    where it stands
    KEY                  its key as it came
    VALUE                its value as it came, only where it needs a second look (`streaming.lane.faults`)
    SIZE                 bytes of key and value
    OP                   null where it does not decode, `MARKED` where it is marked as a barrier, `AWAITS` where it
                         names a schema that is not known
    VNODE                null without a row
    BEFORE, AFTER        structs of the table's columns, in their order; null where the half is missing
    BEFORE_HASH          see `state.columns`; null where the format does not give the row before
    UNCHANGED            indices of columns that the record leaves out, empty for none; of formats that may
    POSITION             where the change stands in its database's log, see `schemas.formats.by_columns.log_positions`;
                         only of formats that have it
    TRANSACTION          see `state.columns`, or the lower 32 bits of it; only of formats that have it

UNCHANGED is never null: for a list that is, Arrow's writer in the JVM writes all offsets since the last one that is
not, which took 20 us a record.

Nullability is not declared: Spark's says what Avro allows, and the lane looks at the values.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from schemas.table import TableSchema
from state.columns import BEFORE_HASH, OFFSET, OP, PARTITION, VNODE

KEY, VALUE, SIZE, BEFORE, AFTER = "_bf_key", "_bf_value", "_bf_size", "_bf_before", "_bf_after"
UNCHANGED, POSITION = "_bf_unchanged", "_bf_position"
"""Columns beside those that the log has too."""

MARKED = -2
"""Op of a record that is marked as a barrier."""
AWAITS = -4
"""Op of a record that can't be read yet. It comes to every lane, so that none sends before it can be."""


class DecodedSchemaError(AssertionError):
    """A bug in us: what decodes records and what reads them do not fit together. Nothing was sent."""


def decoded_schema(table: TableSchema) -> pa.Schema:
    """The columns of decoded records of a table."""
    row = pa.struct([(column.name, column.type.arrow) for column in table.columns])
    return pa.schema(
        {
            PARTITION: pa.int32(),
            OFFSET: pa.int64(),
            KEY: pa.binary(),
            VALUE: pa.binary(),
            SIZE: pa.int32(),
            OP: pa.int8(),
            VNODE: pa.int32(),
            BEFORE: row,
            AFTER: row,
            BEFORE_HASH: pa.int64(),
        }
    )


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
    for half in (BEFORE, AFTER):  # read by place
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
