"""Visibility: which live changes of an interval belong in a job's output, and as what.

In the contract: docs/contract.md#the-law. Two questions, both decided on whole columns:

1. Has the snapshot read passed the key? Decided per part with the *new* positions (those that this batch's
   slices reach), since the snapshot rows of the interval are sent first. A part at +∞ shows everything, also
   what was inserted after its last key. Hidden changes are not lost: they are in the log, and the slice
   that reaches their key reads them there.
2. What does the filter see? A change that is half visible becomes the op of its visible image:

       before passes   after passes    INSERT    UPDATE    DELETE
       yes             yes                       UPDATE
       yes             no                        DELETE    DELETE
       no              yes             INSERT    INSERT
       no              no              -         -         -
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.records import Op
from state.values.arrays import at_most
from state.values.progress import AllDone, Completed, InProgress, Progress

Mask = npt.NDArray[np.bool_]
HIDDEN = -1
"""Op of a change that is not sent."""

_BY_IMAGES = np.array([HIDDEN, Op.INSERT, Op.DELETE, Op.UPDATE], dtype=np.int8)
"""Op by 2 * before passes + after passes; a missing image never passes."""


def covered(
    parts: npt.NDArray[np.int32],
    positions: Sequence[pa.Array],
    progress: Mapping[int, Progress],
    part_count: int,
) -> Mask:
    """The mask of the n changes whose keys the snapshot read has passed.

    Shapes: parts n, each array of `positions` n: one for each column of a position, of the replica the key columns.
    `progress` lists the started parts.
    """
    if isinstance(progress, AllDone):
        return np.ones(len(parts), dtype=np.bool_)
    done = np.zeros(part_count, dtype=np.bool_)
    partial: list[tuple[int, InProgress]] = []
    for part, state in progress.items():
        if isinstance(state, Completed):
            done[part] = True
        elif isinstance(state, InProgress):
            partial.append((part, state))
    result: Mask = done[parts]
    for part, state in partial:
        rows = np.flatnonzero(parts == part)
        if len(rows):
            taken = [column.take(pa.array(rows)) for column in positions]
            result[rows] = at_most(taken, state.position)
    return result


def visible_ops(ops: npt.NDArray[np.int8], before_passes: Mask, after_passes: Mask) -> npt.NDArray[np.int8]:
    """The op to send for each change, HIDDEN for none.

    `before_passes` counts only where the change has a `before`, likewise `after`: the op decides which images it has.
    """
    has_before, has_after = ops != Op.INSERT, ops != Op.DELETE
    images = 2 * (has_before & before_passes).astype(np.int8) + (has_after & after_passes)
    result: npt.NDArray[np.int8] = _BY_IMAGES[images]
    return result


def keyed(
    ops: npt.NDArray[np.int8], keys: Iterable[tuple[pa.Array, pa.Array]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
    """The changes to send by a key that UPDATEs may move: each by its index, and as what.

    `ops` are those of n changes that are sent, `keys` the values of each further key column before and after them. An
    UPDATE that moves the key is two: DELETE of the old one, and behind it INSERT of the new one.
    """
    moved = np.zeros(len(ops), dtype=np.bool_)
    for before, after in keys:
        moved |= _differing(before, after)
    moved &= ops == Op.UPDATE
    index = np.repeat(np.arange(len(ops)), 1 + moved)
    second = np.diff(index, prepend=np.int64(-1)) == 0
    sent = np.where(moved[index], np.where(second, Op.INSERT, Op.DELETE), ops[index])
    return index, sent.astype(np.int8)


def _differing(left: pa.Array, right: pa.Array) -> Mask:
    """True where two values are not the same; null is the same as null."""
    either_null = pc.not_equal(left.is_null(), right.is_null())
    differing = pc.or_(pc.not_equal(left, right).fill_null(False), either_null)
    return np.asarray(differing, dtype=np.bool_)
