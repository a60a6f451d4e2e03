"""Rows and changes of a table as whole columns, and their origins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.formats.protocol import Origins
from schemas.records import Barrier, BarrierKind, Change, Op
from schemas.table import Column, TableSchema
from streaming.source.decoded import Changes


def columns_of(columns: Sequence[Column], rows: Sequence[tuple[Any, ...] | None]) -> tuple[pa.Array, ...]:
    """Arrays with nulls where a row is None."""
    return tuple(
        pa.array([None if row is None else row[index] for row in rows], column.type.arrow)
        for index, column in enumerate(columns)
    )


def changes_of(
    table: TableSchema,
    changes: Sequence[Change],
    rows: pa.Table | None = None,
    intervals: Sequence[int] | None = None,
) -> Changes:
    """Changes as a lane decodes them; `rows`: the records' other columns; all in interval 0 unless given."""
    count = len(changes)
    return Changes(
        interval=np.array(intervals or [0] * count, np.int64),
        vnodes=np.zeros(count, np.int32),
        ops=np.array([change.op for change in changes], np.int8),
        before=columns_of(table.columns, [change.before for change in changes]),
        after=columns_of(table.columns, [change.after for change in changes]),
        keys=columns_of(table.key_columns, [table.key_of(change.row) for change in changes]),
        rows=pa.table({}) if rows is None else rows,
    )


def upserts_of(
    table: TableSchema,
    records: Sequence[tuple[object, tuple[Any, ...] | None]],
    intervals: Sequence[int] | None = None,
) -> Changes:
    """Keys of one column, with a row each or None for a delete, by the column `number` beside them."""
    nulls = (None,) * (len(table.columns) - 1)
    made = [
        Change(Op.DELETE, (key, *nulls), None) if row is None else Change(Op.INSERT, None, row)
        for key, row in records
    ]
    return changes_of(table, made, pa.table({"number": pa.array(range(len(made)), pa.int64())}), intervals)


BARRIER = Barrier(2 << 16, 1 << 16, BarrierKind.BARRIER, 1, 1_700_000_000_123)


def origins(count: int) -> Origins:
    """Origins of that many rows of one part and interval."""
    return origins_at(BARRIER, count=count)


def origins_at(
    barrier: Barrier, job: str = "copy", table: str = "t", part: int = 3, count: int = 1
) -> Origins:
    """Rows of a part in the interval that a barrier closes."""
    return Origins(job, table, np.full(count, part, np.int32), np.zeros(count, np.int64), [barrier])
