"""The changes of a key that come from several partitions, as where an upstream has gained some: their order.

They are taken by interval, so only those of one interval have to be compared. Those of each partition stay in theirs;
of the next ones of two partitions the one with the lower position goes first, where both have one in the same log; else
the one with the earlier timestamp, then that of the lower partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.codec.log_positions import positions_in
from schemas.codec.logs import LogPosition
from streaming.lane.changes import Changes
from streaming.source.decoded import POSITION, TIME

_Rows = npt.NDArray[np.int64]


def moved_in_order(changes: Changes, since: int, keys: pa.Array) -> Changes:
    """The changes, of which those of such keys take the places of all of them, from the interval `since` on.

    `keys` are the encoded ones, without nulls. Changes come by interval, partition and offset.
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


def _merged(changes: Changes, rows: _Rows, partitions: npt.NDArray[np.int32]) -> Iterable[int]:
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
