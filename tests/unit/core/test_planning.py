"""Plans of reads: slices within their budgets, and ranges of offsets for jobs that read the topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from schemas.job import JobDefinition
from schemas.kinds.configs import TopicScan
from schemas.position import Key
from schemas.records import Barrier, BarrierKind
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.chunks import KeyRange
from state.values.plan import BatchPlan, JobPlan, JobState, Slice
from state.values.progress import Completed, InProgress, NotStarted, Progress, after_slice
from streaming.core.offset_ranges import BEGINNING, history_ranges, history_records, part_ends
from streaming.core.planning import (
    Amount,
    Cut,
    CutFunction,
    choose_barriers,
    choose_slices,
    of_half_a_minute,
    upto_released,
)
from tests.kit.tables import table

VNODES = 8


def job(output_partitions: int) -> JobDefinition:
    declaration = {"name": "copy", "output": "out", "output_partitions": output_partitions}
    return JobDefinition.declare(declaration, table(vnode_count=VNODES))


def budget_of(count: int) -> Amount:
    """A budget of rows, whatever they weigh."""
    return Amount(count, 1 << 40)


def cutter(sizes: Mapping[int, int], width: int = 1) -> CutFunction:
    """Vnodes that hold the keys (1,), (2,), ... up to their size, in rows of so many bytes."""

    def cut(vnode: int, after: Key | None, limit: Amount) -> Cut:
        assert not limit.is_nothing
        read = 0 if after is None else after[0]
        left = sizes.get(vnode, 0) - read
        fits = max(min(limit.rows, limit.size // width), 1)
        return Cut(None, left, left * width) if left <= fits else Cut((read + fits,), fits, fits * width)

    return cut


def test_a_budget_of_nothing_reads_nothing() -> None:
    assert choose_slices(job(2), {}, budget_of(0), cutter({0: 5})).slices == ()


def test_the_walk_takes_the_vnodes_of_a_partition_in_order_and_few_at_a_time() -> None:
    chosen = choose_slices(job(1), {}, budget_of(7), cutter(dict.fromkeys(range(VNODES), 5)))
    assert chosen.slices == (Slice(0, None, None), Slice(1, None, (2,)))
    assert chosen.amount.rows == 7


def test_a_vnode_in_progress_goes_on_behind_its_position_and_completed_ones_are_left_alone() -> None:
    progress: dict[int, Progress] = {0: Completed((5,), 5), 1: InProgress((2,), 2)}
    chosen = choose_slices(job(1), progress, budget_of(2), cutter(dict.fromkeys(range(VNODES), 5)))
    assert chosen.slices == (Slice(1, (2,), (4,)),)


def test_empty_vnodes_cost_nothing_and_complete_as_soon_as_the_walk_is_there() -> None:
    chosen = choose_slices(job(1), {}, budget_of(1), cutter({5: 3}))
    assert [item.part for item in chosen.slices] == [0, 1, 2, 3, 4, 5]
    assert chosen.slices[-1].upto == (1,)


def test_partitions_share_a_budget_and_what_one_leaves_the_next_ones_take() -> None:
    sizes = dict.fromkeys(range(VNODES), 100) | {0: 3, 1: 3}
    chosen = choose_slices(job(4), {}, budget_of(40), cutter(sizes))
    rows = {item.part: item.upto for item in chosen.slices}
    assert rows == {0: None, 1: None, 2: (11,), 4: (11,), 6: (12,)}
    assert chosen.amount.rows == 40


def test_a_budget_too_small_for_all_partitions_still_moves_one() -> None:
    chosen = choose_slices(job(8), {}, budget_of(1), cutter(dict.fromkeys(range(VNODES), 5)))
    assert chosen.slices == (Slice(0, None, (1,)),)


@given(
    sizes=st.dictionaries(st.integers(0, VNODES - 1), st.integers(0, 30)),
    budgets=st.lists(st.integers(1, 20), min_size=1),
    partitions=st.sampled_from([1, 2, 4, 8]),
)
def test_every_positive_budget_makes_progress_and_is_kept_to_until_all_is_read(
    sizes: dict[int, int], budgets: list[int], partitions: int
) -> None:
    progress: dict[int, Progress] = {}
    cut, batches = cutter(sizes), 0
    while len(progress) < VNODES or not all(isinstance(state, Completed) for state in progress.values()):
        budget = budgets[batches % len(budgets)]
        batches += 1
        chosen = choose_slices(job(partitions), progress, budget_of(budget), cut)
        assert chosen.slices, "live traffic starves the snapshot"
        assert chosen.amount.rows <= budget
        assert len({item.part for item in chosen.slices}) == len(chosen.slices)
        for item in chosen.slices:
            before = progress.get(item.part)
            assert item.after == (None if before is None else before.position)
            progress[item.part] = after_slice(before or NotStarted(), item.upto, 0)
    assert choose_slices(job(partitions), progress, budget_of(1), cut).slices == ()
    assert batches <= sum(sizes.values()) + partitions


@given(
    sizes=st.dictionaries(st.integers(0, VNODES - 1), st.integers(0, 30)),
    width=st.integers(1, 50),
    budget_bytes=st.integers(1, 500),
    partitions=st.sampled_from([1, 2, 4, 8]),
)
def test_a_budget_of_bytes_makes_progress_too_and_is_passed_by_less_than_a_row(
    sizes: dict[int, int], width: int, budget_bytes: int, partitions: int
) -> None:
    progress: dict[int, Progress] = {}
    cut, batches = cutter(sizes, width), 0
    while len(progress) < VNODES or not all(isinstance(state, Completed) for state in progress.values()):
        batches += 1
        chosen = choose_slices(job(partitions), progress, Amount(1_000, budget_bytes), cut)
        assert chosen.slices, "live traffic starves the snapshot"
        assert chosen.amount.size < budget_bytes + width
        for item in chosen.slices:
            before = progress.get(item.part)
            assert item.after == (None if before is None else before.position)
            progress[item.part] = after_slice(before or NotStarted(), item.upto, 0)
    assert batches <= sum(sizes.values()) + partitions


@given(
    sizes=st.dictionaries(st.integers(0, VNODES - 1), st.integers(0, 30)),
    steps=st.lists(st.integers(1, 35), unique=True).map(sorted),
    budget=st.integers(1, 40),
    partitions=st.sampled_from([1, 2, 4, 8]),
)
def test_slices_end_where_the_table_is_released_and_are_there_as_long_as_one_is_to_be_read(
    sizes: dict[int, int], steps: list[int], budget: int, partitions: int
) -> None:
    progress: dict[int, Progress] = {}
    for step in [None, *steps, 0]:
        released = None if step is None else KeyRange(None, (step,) if step else None)
        # The replica has the rows of released keys, and no others.
        there = sizes if step == 0 else {vnode: min(size, step or 0) for vnode, size in sizes.items()}
        cut = upto_released(cutter(there), released)
        while chosen := choose_slices(job(partitions), progress, budget_of(budget), cut).slices:
            for item in chosen:
                assert released is not None
                assert released.upto is None or (item.upto is not None and item.upto <= released.upto)
                before = progress.get(item.part, NotStarted())
                progress[item.part] = after_slice(before, item.upto, 0)
        ends = {state.position for state in progress.values()}
        assert step == 0 or ends == ({(step,)} if step else set())
    assert all(isinstance(progress[vnode], Completed) for vnode in range(VNODES))


def aligned(*ends: int) -> AlignedBarrier:
    return AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.CHECKPOINT, len(ends), 0), ends)


def test_a_batch_takes_whole_intervals_up_to_a_number_of_records() -> None:
    waiting = [aligned(10, 10), aligned(20, 20), aligned(30, 30)]
    assert choose_barriers(waiting, (0, 0), 1_000) == waiting
    assert choose_barriers(waiting, (0, 0), 40) == waiting[:2]
    assert choose_barriers(waiting, (0, 0), 39) == waiting[:1]
    assert choose_barriers(waiting, (10, 10), 40) == waiting


def test_an_interval_larger_than_a_batch_may_be_is_taken_alone() -> None:
    assert len(choose_barriers([aligned(999), aligned(1_000)], (0,), 10)) == 1


def test_barriers_of_half_a_minute_are_at_least_one() -> None:
    def at(*times_ms: int) -> list[AlignedBarrier]:
        return [
            AlignedBarrier(Barrier(number + 1, number, BarrierKind.CHECKPOINT, 1, each), (0,))
            for number, each in enumerate(times_ms)
        ]

    for times_ms, count in (((0, 29_999, 30_000, 5), 2), ((0, 30_000), 1), ((7, 30_006), 2), ((9,), 1)):
        assert of_half_a_minute(at(*times_ms)) == at(*times_ms)[:count]


FIRST = (30, 20)
SLICE = st.builds(
    lambda part, after, length: Slice(
        part,
        None if after is None else (after,),
        None if (after or 0) + length >= FIRST[part] else ((after or 0) + length,),
    ),
    st.integers(0, 1),
    st.none() | st.integers(0, 19),
    st.integers(1, 12),
)


def plan(*slices: Slice) -> BatchPlan:
    """Of a job for each of the slices."""
    definition = JobDefinition.declare(
        {"name": "log", "output": "log", "read": "topic"}, table()
    ).with_partitions(2)
    end = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.CHECKPOINT, 2, 0), (40, 40))
    jobs = tuple(JobPlan(JobState(definition, 1), (item,)) for item in slices)
    return BatchPlan(None, (end,), FIRST, ReplicaVersion(0, 0, 0), 1, jobs)


def held(item: Slice) -> set[tuple[int, int]]:
    end = FIRST[item.part] if item.upto is None else item.upto[0]
    return {(item.part, offset) for offset in range(item.after[0] if item.after else 0, end)}


@given(st.lists(SLICE, max_size=5))
def test_the_ranges_hold_what_the_slices_do_and_each_record_once(slices: list[Slice]) -> None:
    found = [
        (partition, offset)
        for layer in history_ranges(plan(*slices))
        for partition, (first, end) in enumerate(layer)
        for offset in range(max(first, 0), end)
    ]
    assert len(found) == len(set(found)) == history_records(plan(*slices))
    assert set(found) == set().union(*map(held, slices))


def test_a_partition_is_read_from_its_first_record_whichever_that_is() -> None:
    assert history_ranges(plan(Slice(1, None, (5,)))) == [((30, 30), (BEGINNING, 5))]


def test_a_batch_that_sends_nothing_and_jobs_that_read_the_replica_need_no_history() -> None:
    with_slices = plan(Slice(0, None, None))
    assert history_ranges(replace(with_slices, silent=True)) == []
    (job,) = with_slices.jobs
    other = JobDefinition.declare({"name": "copy", "output": "copy"}, table())
    assert history_ranges(with_slices.with_jobs([replace(job, state=JobState(other, 1))])) == []
    assert isinstance(job.state.definition.scan, TopicScan)


PARTITIONS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 120)), min_size=1, max_size=4)


@given(PARTITIONS, st.integers(1, 50))
def test_parts_are_small_and_leave_the_last_record_of_each_partition_to_the_end(
    ranges: list[tuple[int, int]], most: int
) -> None:
    first, end = [low for low, _ in ranges], [low + count for low, count in ranges]
    before = tuple(first)
    for until in part_ends(first, end, most):
        assert 1 <= sum(until) - sum(before) <= most + len(ranges)
        assert all(a <= b for a, b in zip(before, until, strict=True))
        assert all(b < stop or b == low for b, stop, low in zip(until, end, first, strict=True))
        before = until
    assert sum(end) - sum(before) <= most + len(ranges)
