from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from schemas.job import JobDefinition
from schemas.position import Key
from schemas.records import Barrier, BarrierKind
from state.plan import AlignedBarrier, Cut, Slice
from state.progress import Completed, InProgress, NotStarted, Progress, after_slice
from streaming.core.planning import CutFunction, choose_barriers, choose_slices
from tests.kit.scene import table

VNODES = 8


def job(output_partitions: int) -> JobDefinition:
    declaration = {"name": "copy", "output": "out", "output_partitions": output_partitions}
    return JobDefinition.declare(declaration, table(vnode_count=VNODES))


def cutter(sizes: Mapping[int, int]) -> CutFunction:
    """Vnodes that hold the keys (1,), (2,), ... up to their size."""

    def cut(vnode: int, after: Key | None, limit: int) -> Cut:
        assert limit >= 1
        read = 0 if after is None else after[0]
        left = sizes.get(vnode, 0) - read
        return Cut(None, left) if left <= limit else Cut((read + limit,), limit)

    return cut


def test_a_budget_of_nothing_reads_nothing() -> None:
    assert choose_slices(job(2), VNODES, {}, 0, cutter({0: 5})).slices == ()


def test_the_walk_takes_the_vnodes_of_a_partition_in_order_and_few_at_a_time() -> None:
    chosen = choose_slices(job(1), VNODES, {}, 7, cutter(dict.fromkeys(range(VNODES), 5)))
    assert chosen.slices == (Slice(0, None, None), Slice(1, None, (2,)))
    assert chosen.rows == 7


def test_a_vnode_in_progress_goes_on_behind_its_position_and_completed_ones_are_left_alone() -> None:
    progress: dict[int, Progress] = {0: Completed((5,), 5), 1: InProgress((2,), 2)}
    chosen = choose_slices(job(1), VNODES, progress, 2, cutter(dict.fromkeys(range(VNODES), 5)))
    assert chosen.slices == (Slice(1, (2,), (4,)),)


def test_empty_vnodes_cost_nothing_and_complete_as_soon_as_the_walk_is_there() -> None:
    chosen = choose_slices(job(1), VNODES, {}, 1, cutter({5: 3}))
    assert [item.vnode for item in chosen.slices] == [0, 1, 2, 3, 4, 5]
    assert chosen.slices[-1].upto == (1,)


def test_partitions_share_a_budget_and_what_one_leaves_the_next_ones_take() -> None:
    sizes = dict.fromkeys(range(VNODES), 100) | {0: 3, 1: 3}
    chosen = choose_slices(job(4), VNODES, {}, 40, cutter(sizes))
    rows = {item.vnode: item.upto for item in chosen.slices}
    assert rows == {0: None, 1: None, 2: (11,), 4: (11,), 6: (12,)}
    assert chosen.rows == 40


def test_a_budget_too_small_for_all_partitions_still_moves_one() -> None:
    chosen = choose_slices(job(8), VNODES, {}, 1, cutter(dict.fromkeys(range(VNODES), 5)))
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
        chosen = choose_slices(job(partitions), VNODES, progress, budget, cut)
        assert chosen.slices, "live traffic starves the snapshot"
        assert chosen.rows <= budget
        assert len({item.vnode for item in chosen.slices}) == len(chosen.slices)
        for item in chosen.slices:
            before = progress.get(item.vnode)
            assert item.after == (None if before is None else before.position)
            progress[item.vnode] = after_slice(before or NotStarted(), item.upto, 0)
    assert choose_slices(job(partitions), VNODES, progress, 1, cut).slices == ()
    assert batches <= sum(sizes.values()) + partitions


def aligned(*offsets: int) -> AlignedBarrier:
    return AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.CHECKPOINT, len(offsets), 0), offsets)


def test_a_batch_takes_whole_intervals_up_to_a_number_of_records() -> None:
    waiting = [aligned(9, 9), aligned(19, 19), aligned(29, 29)]
    assert choose_barriers(waiting, (0, 0), 1_000) == waiting
    assert choose_barriers(waiting, (0, 0), 40) == waiting[:2]
    assert choose_barriers(waiting, (0, 0), 39) == waiting[:1]
    assert choose_barriers(waiting, (10, 10), 40) == waiting


def test_an_interval_larger_than_a_batch_may_be_is_taken_alone() -> None:
    assert len(choose_barriers([aligned(999), aligned(1_000)], (0,), 10)) == 1
