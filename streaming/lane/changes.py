"""The changes of a lane, brought into order: by interval, then by upstream partition and offset.

Rows come out of the shuffle in any order. Every key lives in one upstream partition, so this order keeps the
changes of each key in theirs (`moved_in_order` where that is not so), and intervals cut the rows into contiguous
runs. The barriers' own records, those that say nothing of the table, and those that the plan leaves out are dropped
here. Invalid records keep their position: see `streaming.lane.faults`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.chunks import whole
from schemas.codec.log_positions import positions_in
from schemas.codec.logs import LogPosition
from schemas.records import NO_DATA, Op
from schemas.table import TableSchema
from state.columns import BEFORE_HASH, EPOCH, NO_PLACE, OFFSET, OP, PARTITION, VNODE
from state.values.plan import BatchPlan
from streaming.core.offset_ranges import readers
from streaming.core.planning import markers_of
from streaming.source.decoded import AFTER, BEFORE, KEY, MARKED, POSITION, TIME, Changes, numpy_of
from streaming.source.records import Bools


def order_changes(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, plan: BatchPlan, table: TableSchema
) -> Changes:
    """All changes of a lane in order, unchecked."""
    rows = pa.Table.from_batches(list(batches), schema=schema)
    interval = _interval(rows, plan)
    no_data = np.asarray(pc.equal(rows[OP], NO_DATA).fill_null(False), dtype=np.bool_)
    wanted = np.flatnonzero(~_markers(rows, plan) & ~_skipped(rows, plan) & ~no_data)
    places = (numpy_of(rows, OFFSET)[wanted], numpy_of(rows, PARTITION)[wanted])
    order = wanted[np.lexsort((*places, interval[wanted]))]
    rows = rows.take(pa.array(order)).combine_chunks()
    return _changes(rows, interval[order], table)


def unplanned_changes(records: pa.RecordBatch, table: TableSchema) -> Changes:
    """The changes among decoded records that no plan is about, in their order and of one interval, unchecked."""
    rows = pa.Table.from_batches([records])
    no_data = pc.equal(rows[OP], NO_DATA).fill_null(False)
    rows = rows.filter(pc.invert(no_data)).combine_chunks()
    return _changes(rows, np.zeros(len(rows), dtype=np.int64), table)


def count_no_data(batches: Iterable[pa.RecordBatch], plan: BatchPlan, vnodes: range) -> int:
    """Records of the plan's own intervals that say nothing of the table.

    Where records come to two lanes, they count in that of their vnode.
    """
    first, count = np.asarray(plan.first_offsets), 0
    for batch in batches:
        said = pc.equal(batch[OP], NO_DATA).fill_null(False).to_numpy(zero_copy_only=False)
        partition, offset = (batch[name].to_numpy() for name in (PARTITION, OFFSET))
        said &= offset >= first[partition]
        if readers(plan):
            numbers = batch[VNODE].fill_null(0).to_numpy()
            said &= (numbers >= vnodes.start) & (numbers < vnodes.stop)
        count += int(np.count_nonzero(said))
    return count


def _interval(rows: pa.Table, plan: BatchPlan) -> npt.NDArray[np.int64]:
    """Interval of each row: how many intervals end before it in its partition."""
    partition, offset = numpy_of(rows, PARTITION), numpy_of(rows, OFFSET)
    interval = np.empty(len(offset), dtype=np.int64)
    for number in range(len(plan.first_offsets)):
        mine = partition == number
        ends = [aligned.ends[number] for aligned in plan.barriers]
        interval[mine] = np.searchsorted(ends, offset[mine], side="right")
    return interval


def _markers(rows: pa.Table, plan: BatchPlan) -> Bools:
    """The markers of the plan's barriers that stand in the data.

    Such a record is marked, has no key, and is the last one before an end. A record with another mark is invalid:
    if it were dropped as well, a change with a stray mark would be lost.
    """
    markers = np.zeros(rows.num_rows, dtype=np.bool_)
    marked = np.flatnonzero(pc.and_not(pc.equal(rows[OP], MARKED), pc.is_valid(rows[KEY])).fill_null(False))
    places = zip(numpy_of(rows, PARTITION)[marked], numpy_of(rows, OFFSET)[marked], strict=True)
    known = markers_of(plan)
    markers[marked] = [place in known for place in places]
    return markers


def _skipped(rows: pa.Table, plan: BatchPlan) -> Bools:
    partitions, offsets = numpy_of(rows, PARTITION), numpy_of(rows, OFFSET)
    skipped = np.zeros(rows.num_rows, dtype=np.bool_)
    for number in {partition for partition, _ in plan.skipped}:
        theirs = [offset for partition, offset in plan.skipped if partition == number]
        skipped |= (partitions == number) & np.isin(offsets, theirs)
    return skipped


def _changes(rows: pa.Table, interval: npt.NDArray[np.int64], table: TableSchema) -> Changes:
    before, after = (whole(rows[name]).flatten() for name in (BEFORE, AFTER))
    ops = pc.fill_null(rows[OP].combine_chunks(), -1)
    deleted = pc.equal(ops, Op.DELETE.value)
    keys = tuple(pc.if_else(deleted, before[i], after[i]) for i in table.key_indices)
    return Changes(
        interval=interval,
        vnodes=pc.fill_null(rows[VNODE].combine_chunks(), 0).to_numpy(),
        ops=ops.to_numpy(),
        before=tuple(before),
        after=tuple(after),
        keys=keys,
        rows=rows,
    )


def moved_in_order(changes: Changes, since: int, keys: pa.Array) -> Changes:
    """The changes, those of keys that come from several partitions in order, from the interval `since` on.

    `keys` are the encoded ones, without nulls. Changes come by interval, partition and offset.

    They are taken by interval, so only those of one interval have to be compared. Those of each partition stay in
    theirs; of the next ones of two partitions the one with the lower position goes first, where both have one in the
    same log; else the one with the earlier timestamp, then that of the lower partition.
    """
    begin = int(np.searchsorted(changes.interval, since))
    codes = keys[begin:].dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    groups = codes * (int(changes.interval.max(initial=0)) + 1) + changes.interval[begin:]
    by_group = np.argsort(groups, kind="stable")
    same = groups[by_group][1:] == groups[by_group][:-1]
    partitions = changes.partitions
    moves = same & (np.diff(partitions[begin:][by_group]) != 0)
    if not moves.any():
        return changes
    bounds = np.flatnonzero(np.concatenate(([True], ~same, [True])))
    order = np.arange(len(changes))
    for group in np.unique(np.searchsorted(bounds, np.flatnonzero(moves), side="right") - 1).tolist():
        rows = begin + by_group[bounds[group] : bounds[group + 1]]
        order[rows] = list(_merged(changes, rows, partitions[rows]))
    return changes.taken(order)


def _merged(
    changes: Changes, rows: npt.NDArray[np.int64], partitions: npt.NDArray[np.int32]
) -> Iterable[int]:
    """The rows of one key, which come partition by partition, in order."""
    own = changes.rows.take(pa.array(rows))
    positions: Sequence[LogPosition | None] = [None] * len(rows)
    if POSITION in own.column_names:
        positions = list(positions_in(own[POSITION].combine_chunks()))
    times: list[int] = own[TIME].to_pylist()

    def is_before(one: int, other: int) -> bool:
        here, there = positions[one], positions[other]
        if here and there and here.log == there.log and here.position and there.position:
            if here.log.is_lower(here.position, there.position):
                return True
            if here.log.is_lower(there.position, here.position):
                return False
        return times[one] < times[other]

    starts = np.flatnonzero(np.concatenate(([True], np.diff(partitions) != 0)))
    queues = [list(queue) for queue in np.split(np.arange(len(rows)), starts[1:])]
    while queues:
        first = queues[0]
        for other in queues[1:]:
            if is_before(other[0], first[0]):
                first = other
        yield int(rows[first.pop(0)])
        queues = [queue for queue in queues if queue]


def log_rows(
    changes: Changes, plan: BatchPlan, schema: pa.Schema, moves_from: int | None = None, first: int = 0
) -> pa.Table:
    """The changes as rows of the replica's log, by vnode and offset, so that readers of a vnode skip the rest.

    From the interval `moves_from` on no offset orders the changes of a key: the number of each does, from `first` on.
    """
    epochs = np.array([aligned.epoch for aligned in plan.barriers], dtype=np.int64)
    deleted = pa.array(changes.ops == Op.DELETE)
    partitions, offsets = changes.rows[PARTITION], changes.rows[OFFSET]
    if moves_from is not None:
        moves = pa.array(changes.interval >= moves_from)
        partitions = pc.if_else(moves, pa.scalar(NO_PLACE, pa.int32()), partitions)
        offsets = pc.if_else(moves, pa.array(np.arange(first, first + len(changes))), offsets)
    own = {
        VNODE: pa.array(changes.vnodes, pa.int32()),
        EPOCH: pa.array(epochs[changes.interval]),
        PARTITION: partitions,
        OFFSET: offsets,
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
