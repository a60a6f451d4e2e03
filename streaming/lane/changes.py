"""The changes of a lane, brought into order: by interval, then by upstream partition and offset.

Rows come out of the shuffle in any order. Every key lives in one upstream partition, so this order keeps the
changes of each key in theirs, and intervals cut the rows into contiguous runs. Barriers themselves and records
that the plan leaves out are dropped here by their place. Records at fault keep theirs: see `streaming.lane.faults`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.columnar import encode_keys
from schemas.records import Op
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, EPOCH, OFFSET, OP, PARTITION, VNODE
from state.plan import BatchPlan

KEY, VALUE, SIZE, BEFORE, AFTER = "_bf_key", "_bf_value", "_bf_size", "_bf_before", "_bf_after"
"""Columns of a decoded upstream record beside those that the log has too; `before` and `after` are structs.

The size is that of key and value in bytes. The value is there only where it needs a second look, see
`streaming.lane.faults`.
"""

MARKED = -2
"""Op of a record that is marked as a barrier."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Changes:
    """n changes in order. `interval[i]` counts the batch's barriers before change i; it only rises.

    `before` and `after` hold the table's columns (null where the half is missing), `keys` the key columns,
    `key_bytes` their Avro. A record that is no change has op -1, or `MARKED`, and no `key_bytes`.
    """

    interval: npt.NDArray[np.int64]
    vnodes: npt.NDArray[np.int32]
    ops: npt.NDArray[np.int8]
    before: tuple[pa.Array, ...]
    after: tuple[pa.Array, ...]
    keys: tuple[pa.Array, ...]
    key_bytes: pa.Array
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.ops)

    def bounds(self, intervals: int) -> npt.NDArray[np.int64]:
        """Where each interval begins, and the end: interval i is [bounds[i], bounds[i + 1])."""
        return np.searchsorted(self.interval, np.arange(intervals + 1))


def order_changes(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, plan: BatchPlan, table: TableSchema
) -> Changes:
    """All changes of a lane in order, unchecked."""
    rows = pa.Table.from_batches(list(batches), schema=schema)
    interval = _interval(rows, plan)
    wanted = (interval >= 0) & ~_skipped(rows, plan)
    rows, interval = rows.filter(pa.array(wanted)), interval[wanted]
    partition, offset = _numpy(rows, PARTITION), _numpy(rows, OFFSET)
    order = np.lexsort((offset, partition, interval))
    rows = rows.take(pa.array(order)).combine_chunks()
    return _changes(rows, interval[order], table)


def _numpy(rows: pa.Table, name: str) -> npt.NDArray[np.int64]:
    column: npt.NDArray[np.int64] = rows[name].to_numpy()
    return column


def _interval(rows: pa.Table, plan: BatchPlan) -> npt.NDArray[np.int64]:
    """Interval of each row, -1 for the barriers themselves."""
    partition, offset = _numpy(rows, PARTITION), _numpy(rows, OFFSET)
    interval = np.full(len(offset), -1, dtype=np.int64)
    for number in range(len(plan.first_offsets)):
        mine = np.flatnonzero(partition == number)
        barriers = np.array([aligned.offsets[number] for aligned in plan.barriers], dtype=np.int64)
        place = np.searchsorted(barriers, offset[mine])
        place[barriers[np.minimum(place, len(barriers) - 1)] == offset[mine]] = -1
        interval[mine] = place
    return interval


def _skipped(rows: pa.Table, plan: BatchPlan) -> Bools:
    partitions, offsets = _numpy(rows, PARTITION), _numpy(rows, OFFSET)
    skipped = np.zeros(rows.num_rows, dtype=np.bool_)
    for number in {partition for partition, _ in plan.skipped}:
        theirs = [offset for partition, offset in plan.skipped if partition == number]
        skipped |= (partitions == number) & np.isin(offsets, theirs)
    return skipped


def _changes(rows: pa.Table, interval: npt.NDArray[np.int64], table: TableSchema) -> Changes:
    before, after = (rows[name].combine_chunks().flatten() for name in (BEFORE, AFTER))
    ops = pc.fill_null(rows[OP].combine_chunks(), -1)
    deleted = pc.equal(ops, Op.DELETE.value)
    keys = tuple(pc.if_else(deleted, before[i], after[i]) for i in table.key_indices)
    decoded = pc.and_(pc.greater_equal(ops, 0), pc.is_valid(keys[0]))
    known = keys if pc.all(decoded).as_py() else tuple(key.filter(decoded) for key in keys)
    encoded = encode_keys(table.key_columns, known)
    if known is not keys:  # rows at fault keep their place with a key that equals nothing
        encoded = pc.replace_with_mask(pa.nulls(len(ops), encoded.type), decoded, encoded)
    return Changes(
        interval,
        pc.fill_null(rows[VNODE].combine_chunks(), 0).to_numpy(),
        ops.to_numpy(),
        tuple(before),
        tuple(after),
        keys,
        encoded,
        rows,
    )


def log_rows(changes: Changes, plan: BatchPlan, schema: pa.Schema) -> pa.Table:
    """The changes as rows of the replica's log, by vnode and offset, so that readers of a vnode skip the rest."""
    epochs = np.array([aligned.epoch for aligned in plan.barriers], dtype=np.int64)
    deleted = pa.array(changes.ops == Op.DELETE)
    own = {
        VNODE: pa.array(changes.vnodes, pa.int32()),
        EPOCH: pa.array(epochs[changes.interval]),
        PARTITION: changes.rows[PARTITION],
        OFFSET: changes.rows[OFFSET],
        OP: pa.array(changes.ops, pa.int8()),
        BEFORE_HASH: changes.rows[BEFORE_HASH],
    }
    values = (
        pc.if_else(deleted, before, after)
        for before, after in zip(changes.before, changes.after, strict=True)
    )
    names = schema.names[len(own) :]
    rows = pa.table({**own, **dict(zip(names, values, strict=True))}).cast(schema)
    return rows.take(pc.sort_indices(rows, sort_keys=[(VNODE, "ascending"), (OFFSET, "ascending")]))
