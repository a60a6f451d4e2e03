"""Rows and changes of a table as whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.records import Change, Op
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
