"""The columns that the replica adds to the table's own; names start with the reserved prefix."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from schemas.records import Op
from schemas.table import TableSchema
from schemas.types import Value

VNODE = "_bf_vnode"
EPOCH = "_bf_epoch"
"""The barrier that closed the change's interval."""
PARTITION = "_bf_partition"
OFFSET = "_bf_offset"
"""The change's offset upstream. By epoch, then offset, the changes of a key are in order: they are in one partition.

Where a key may come from several, it is a number that orders the changes of its epoch, and the partition `NO_PLACE`.
"""
NO_PLACE = -1
"""Of a row that has no record upstream, or whose offset is none."""
OP = "_bf_op"
BEFORE_HASH = "_bf_before_hash"
"""Spark's xxhash64 of the change's `before` columns, null for INSERT: checked at compaction against the stored row."""

LOG_OWN = (VNODE, EPOCH, PARTITION, OFFSET, OP, BEFORE_HASH)


def log_schema(table: TableSchema) -> pa.Schema:
    """A row of the log: the change's `after`, or its `before` for a DELETE."""
    own = [
        (VNODE, pa.int32()),
        (EPOCH, pa.int64()),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
        (OP, pa.int8()),
        (BEFORE_HASH, pa.int64()),
    ]
    return pa.schema([*own, *((column.name, column.type.arrow) for column in table.columns)])


def as_inserts(rows: pa.Table, vnodes: pa.Array | int, epoch: int, schema: pa.Schema) -> pa.Table:
    """Rows of a table as INSERTs of the log without an upstream record: partition and offset are `NO_PLACE`.

    `vnodes` is one for each row, or one for all. `schema` is `log_schema` or some of its columns; `rows` has those of
    the table among them, in the same types.
    """
    own = {EPOCH: epoch, PARTITION: NO_PLACE, OFFSET: NO_PLACE, OP: Op.INSERT.value, BEFORE_HASH: None}
    if isinstance(vnodes, int):
        own[VNODE] = vnodes
    columns = [
        pa.repeat(pa.scalar(own[field.name], field.type), rows.num_rows)
        if field.name in own
        else vnodes
        if field.name == VNODE
        else rows[field.name]
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def base_schema(table: TableSchema) -> pa.Schema:
    """A row of the base; the vnode is its partition column."""
    return pa.schema([(VNODE, pa.int32()), *((column.name, column.type.arrow) for column in table.columns)])


TRANSACTION = "_bf_transaction"
"""The transaction of the database that made a change, as a whole number."""
LEFT_OUT = "_bf_left_out"
"""Indices of the table's columns whose value is left out of the event, null for none."""


def waiting_schema(table: TableSchema) -> pa.Schema:
    """An event that waits for the chunk of its key: a row of the log, with its transaction and the columns left out."""
    more = [pa.field(TRANSACTION, pa.int64()), pa.field(LEFT_OUT, pa.list_(pa.int32()))]
    names = [name for name in log_schema(table).names if name not in (EPOCH, BEFORE_HASH)]
    return pa.schema([*(log_schema(table).field(name) for name in names), *more])


Fills = Mapping[str, Value]
"""`TableSchema.fills`."""
NO_FILLS: Fills = {}


def within_vnodes(vnodes: range) -> pc.Expression:
    """True for rows of these vnodes, which follow each other."""
    return (pc.field(VNODE) >= vnodes.start) & (pc.field(VNODE) < vnodes.stop)


def in_parts(rows: Iterable[pa.Table], part_bytes: int) -> Iterator[pa.Table]:
    """The rows again, in tables of at least so many bytes, the last of which may have fewer."""
    held, size = list[pa.Table](), 0
    for some in rows:
        held.append(some)
        size += some.nbytes
        if size >= part_bytes:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def filled(
    source: ds.Dataset, schema: pa.Schema, fills: Fills, part_bytes: int = 0, **how: Any
) -> Iterator[pa.Table]:
    """The rows of some files in parts of about `part_bytes`, with the fills of columns that a file lacks.

    `how` is that of `Fragment.to_batches`.
    """
    rows = (
        with_fills(pa.Table.from_batches([batch]), fragment.physical_schema.names, fills)
        for fragment in source.get_fragments()
        for batch in fragment.to_batches(schema, **how)
    )
    return in_parts(rows, part_bytes)


def with_fills(rows: pa.Table, stored: Collection[str], fills: Fills) -> pa.Table:
    """Rows of a file that has the columns `stored`, with the fills of those that it lacks."""
    for index, name in enumerate(rows.column_names):
        if name in fills and name not in stored:
            column = pa.repeat(pa.scalar(fills[name], rows.field(index).type), rows.num_rows)
            rows = rows.set_column(index, rows.field(index), column)
    return rows
