"""Planning a batch: which barriers it takes, and which slices each job reads.

Everything here is decided before the first effect and written to the journal. The walk is fixed: each output
partition takes its vnodes in order, one after another, so that few vnodes are in progress at a time, whole vnodes
complete early, and all lanes stay busy. A partition's share of the budget is what is left divided by the partitions
that still have vnodes to read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from schemas.job import JobDefinition
from schemas.position import Key
from state.values.plan import AlignedBarrier, Amount, Cut, Slice
from state.values.progress import Completed, NotStarted, Progress

CutFunction = Callable[[int, Key | None, Amount], Cut]
"""(vnode, after, limit) -> where a slice of about `limit` ends, which has at least one row if there is one."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Slices of one job for one batch; how much they read is an estimate."""

    slices: tuple[Slice, ...]
    amount: Amount


NOTHING = Chosen((), Amount(0, 0))


def choose_slices(
    job: JobDefinition, vnode_count: int, progress: Mapping[int, Progress], budget: Amount, cut: CutFunction
) -> Chosen:
    """The slices that the budget pays for: at least one unless it is 0 rows or nothing is left to read.

    `progress` lists the vnodes that were started; others are NotStarted. Empty vnodes cost nothing, and complete
    as soon as the walk reaches them.
    """
    if budget.rows <= 0:
        return NOTHING
    waiting = _unfinished_by_partition(job, vnode_count, progress)
    slices: list[Slice] = []
    left = budget
    for index, vnodes in enumerate(waiting):
        share = left // (len(waiting) - index)
        if share.is_nothing and slices:
            continue
        taken = _walk(vnodes, progress, Amount(max(share.rows, 1), max(share.size, 1)), cut)
        slices += taken.slices
        left -= taken.amount
    return Chosen(tuple(slices), budget - left)


def _unfinished_by_partition(
    job: JobDefinition, vnode_count: int, progress: Mapping[int, Progress]
) -> list[list[int]]:
    by_partition: dict[int, list[int]] = {}
    for vnode in range(vnode_count):
        if not isinstance(progress.get(vnode), Completed):
            by_partition.setdefault(job.partition_of(vnode), []).append(vnode)
    return list(by_partition.values())


def _walk(
    vnodes: Sequence[int], progress: Mapping[int, Progress], budget: Amount, cut: CutFunction
) -> Chosen:
    slices: list[Slice] = []
    left = budget
    for vnode in vnodes:
        if left.is_nothing:
            break
        after = progress.get(vnode, NotStarted()).position
        end = cut(vnode, after, left)
        slices.append(Slice(vnode, after, end.upto))
        left -= end.amount
    return Chosen(tuple(slices), budget - left)


def choose_barriers(
    aligned: Sequence[AlignedBarrier], first_offsets: Sequence[int], max_records: int
) -> Sequence[AlignedBarrier]:
    """The barriers of the next batch: as many whole intervals as fit in `max_records`, at least one.

    After a long pause many intervals wait; a bounded batch keeps memory flat and is all that a crash repeats.
    """
    count = 1
    while count < len(aligned):
        ends = aligned[count].ends
        if sum(end - first for end, first in zip(ends, first_offsets, strict=True)) > max_records:
            break
        count += 1
    return aligned[:count]
