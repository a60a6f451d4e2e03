"""Planning a batch: which barriers it takes, and which slices each job reads.

Everything here is decided before the first effect and written to the journal. The walk is fixed: each output
partition takes its parts in order, one after another, so that few parts are in progress at a time, whole parts
complete early, and all lanes stay busy. A partition's share of the budget is what is left divided by the partitions
that still have parts to read. Where the replica is read, a part is a vnode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from schemas.job import JobDefinition
from schemas.position import Key, order_key
from schemas.records import RecordId
from state.values.aligned import AlignedBarrier
from state.values.chunks import KeyRange
from state.values.plan import BatchPlan, Slice
from state.values.progress import Completed, NotStarted, Progress, is_complete


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount of data: rows, and their bytes as Arrow columns."""

    rows: int
    size: int

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.rows + other.rows, self.size + other.size)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.rows - other.rows, self.size - other.size)

    def __floordiv__(self, parts: int) -> Amount:
        return Amount(self.rows // parts, self.size // parts)

    def fits(self, most: Amount) -> bool:
        """True if neither rows nor size exceed `most`."""
        return self.rows <= most.rows and self.size <= most.size

    @property
    def is_nothing(self) -> bool:
        """True if no row fits in it."""
        return self.rows <= 0 or self.size <= 0


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a slice: `upto` None is the part's end.

    `rows` and `size` (Arrow bytes) are estimates: log rows may differ, and sizes are averages of whole files.
    """

    upto: Key | None
    rows: int
    size: int = 0

    @property
    def amount(self) -> Amount:
        return Amount(self.rows, self.size)


_HALF_A_MINUTE_MS = 30_000
CutFunction = Callable[[int, Key | None, Amount], Cut | None]
"""(part, after, limit) -> the end of a slice of about `limit`, which has at least one row if there is one.

None: behind `after` there is nothing that may be read yet.
"""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Slices of one job for one batch; how much they read is an estimate."""

    slices: tuple[Slice, ...]
    amount: Amount


NOTHING = Chosen((), Amount(0, 0))


def choose_slices(
    job: JobDefinition, progress: Mapping[int, Progress], budget: Amount, cut: CutFunction
) -> Chosen:
    """The slices within the budget: at least one unless it is 0 rows or nothing is left that may be read.

    `progress` lists the started parts; others are NotStarted. Empty parts cost nothing, and complete as soon as the
    walk reaches them.
    """
    if budget.rows <= 0 or is_complete(progress, job.part_count):
        return NOTHING
    waiting = _unfinished_by_partition(job, progress)
    slices: list[Slice] = []
    left = budget
    for index, parts in enumerate(waiting):
        share = left // (len(waiting) - index)
        if share.is_nothing and slices:
            continue
        taken = _walk(parts, progress, Amount(max(share.rows, 1), max(share.size, 1)), cut)
        slices += taken.slices
        left -= taken.amount
    return Chosen(tuple(slices), budget - left)


def upto_released(cut: CutFunction, released: KeyRange | None) -> CutFunction:
    """Cuts within the keys that are released so far, `released` (from −∞ on; None: none).

    Rows behind them are not there yet, so a part that seems to be at its end is only at the end of these keys, and is
    not completed before the whole table is released.
    """
    if released is not None and released.upto is None:
        return cut

    def within(part: int, after: Key | None, limit: Amount) -> Cut | None:
        if released is None or (after is not None and not _is_below(after, released.upto)):
            return None
        end = cut(part, after, limit)
        if end is None or (end.upto is not None and _is_below(end.upto, released.upto)):
            return end
        return replace(end, upto=released.upto)

    return within


def _is_below(key: Key, other: Key | None) -> bool:
    return other is None or order_key(key) < order_key(other)


def _unfinished_by_partition(job: JobDefinition, progress: Mapping[int, Progress]) -> list[list[int]]:
    by_partition: dict[int, list[int]] = {}
    for part in range(job.part_count):
        if not isinstance(progress.get(part), Completed):
            by_partition.setdefault(job.partition_of(part), []).append(part)
    return list(by_partition.values())


def _walk(parts: Sequence[int], progress: Mapping[int, Progress], budget: Amount, cut: CutFunction) -> Chosen:
    slices: list[Slice] = []
    left = budget
    for part in parts:
        if left.is_nothing:
            break
        after = progress.get(part, NotStarted()).position
        end = cut(part, after, left)
        if end is None:
            continue
        slices.append(Slice(part, after, end.upto))
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


def of_half_a_minute(barriers: Sequence[AlignedBarrier]) -> Sequence[AlignedBarrier]:
    """The first of these barriers, as long as they were injected within half a minute.

    A lane may find a new column once others have sent their part of the batch, whose partitions learn of it by the
    barriers of the next one. So that is within a minute.
    """
    since_ms = barriers[0].barrier.injected_at_ms
    return [*takewhile(lambda each: each.barrier.injected_at_ms - since_ms < _HALF_A_MINUTE_MS, barriers)]


def markers_of(plan: BatchPlan) -> frozenset[RecordId]:
    """(partition, offset) of the barriers' own records in the data: each is the last record before an end."""
    in_data = (aligned.ends for aligned in plan.barriers if aligned.in_data)
    return frozenset((number, end - 1) for ends in in_data for number, end in enumerate(ends))
