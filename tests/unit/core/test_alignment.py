from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.errors import Code, InputError
from schemas.records import Barrier, BarrierKind, Pause, VnodeProgress
from state.values.aligned import AlignedBarrier
from streaming.core.alignment import Aligner


def barrier(number: int, *, prev: int | None = None, partitions: int = 2) -> Barrier:
    before = number - 1 if prev is None else prev
    return Barrier(number << 16, before << 16, BarrierKind.CHECKPOINT, partitions, 0)


def fed(*copies: tuple[int, int, Barrier], last: AlignedBarrier | None = None) -> Aligner:
    """An aligner of two partitions that was fed (partition, offset, barrier)."""
    aligner = Aligner("up", 2, last)
    for partition, offset, copy in copies:
        aligner.feed(partition, offset, copy)
    return aligner


def test_a_barrier_is_aligned_once_all_partitions_have_it_and_is_given_once() -> None:
    aligner = fed((0, 3, barrier(1)), (0, 9, barrier(2)))
    assert aligner.take_aligned() == []
    assert [count for _, count in aligner.newest()] == [2, 0]
    aligner.feed(1, 0, barrier(1))
    assert aligner.take_aligned() == [AlignedBarrier(barrier(1), (4, 1))]
    aligner.feed(1, 1, barrier(2))
    assert aligner.take_aligned() == [AlignedBarrier(barrier(2), (10, 2))]
    assert aligner.take_aligned() == []


def test_several_barriers_come_out_in_the_order_of_their_chain() -> None:
    aligner = fed(*((p, n, barrier(n)) for p in (1, 0) for n in range(1, 51)))
    assert [aligned.epoch >> 16 for aligned in aligner.take_aligned()] == list(range(1, 51))


def test_an_overlapping_range_fed_again_changes_nothing() -> None:
    copies = [(0, 3, barrier(1)), (1, 4, barrier(1)), (0, 7, barrier(2))]
    aligner = fed(*copies)
    assert len(aligner.take_aligned()) == 1
    for copy in copies:
        aligner.feed(*copy)
    aligner.feed(1, 8, barrier(2))
    assert aligner.take_aligned() == [AlignedBarrier(barrier(2), (8, 9))]
    assert aligner.take_duplicates(AlignedBarrier(barrier(3), (99, 99))) == ()


def test_it_goes_on_behind_the_barrier_that_a_former_run_came_to() -> None:
    last = AlignedBarrier(barrier(5), (51, 61))
    aligner = fed((0, 50, barrier(5)), (0, 52, barrier(6)), (1, 61, barrier(6)), last=last)
    assert [aligned.epoch >> 16 for aligned in aligner.take_aligned()] == [6]
    with pytest.raises(InputError, match="BARRIER_GAP at up-0@54"):
        aligner.feed(0, 54, barrier(8))


def test_an_output_as_upstream_tells_other_progress_in_each_partition() -> None:
    finished = [replace(barrier(1), progress=(VnodeProgress(vnode, None, True, 0),)) for vnode in (0, 1)]
    assert len(fed((0, 0, finished[0]), (1, 0, finished[1])).take_aligned()) == 1


def test_a_barrier_repeated_at_once_counts_once_and_its_place_is_named_to_the_batch_that_holds_it() -> None:
    aligner = fed((0, 1, barrier(1)), (0, 3, barrier(1)), (1, 0, barrier(1)), (1, 1, barrier(1)))
    first, *rest = aligner.take_aligned()
    assert rest == []
    assert aligner.take_duplicates(first) == ()
    for partition in (0, 1):
        aligner.feed(partition, 7, barrier(2))
    (second,) = aligner.take_aligned()
    assert sorted(aligner.take_duplicates(second)) == [(0, 3), (1, 1)]
    assert aligner.take_duplicates(second) == ()


@pytest.mark.parametrize(
    ("code", "where", "copies"),
    [
        (Code.BARRIER_GAP, "up-0@7", [(0, 3, barrier(1)), (0, 7, barrier(3))]),
        (Code.BARRIER_REGRESSION, "up-0@7", [(0, 3, barrier(2)), (0, 7, barrier(2, prev=3))]),
        (Code.BARRIER_LATE, "up-1@7", [(1, 3, barrier(2)), (1, 5, barrier(3)), (1, 7, barrier(2))]),
        (Code.PARTITIONS_CHANGED, "up-0@3", [(0, 3, barrier(1, partitions=3))]),
        (Code.BARRIER_DUPLICATE_WITH_DATA, "up-0@7", [(0, 3, barrier(1)), (0, 7, barrier(1))]),
    ],
)
def test_a_broken_chain_is_refused_at_its_place(
    code: Code, where: str, copies: list[tuple[int, int, Barrier]]
) -> None:
    aligner = fed(*copies[:-1])
    with pytest.raises(InputError) as caught:
        aligner.feed(*copies[-1])
    assert (caught.value.code, caught.value.where) == (code, where)


@pytest.mark.parametrize(
    "other",
    [
        replace(barrier(1), kind=BarrierKind.INITIAL),
        replace(barrier(1), mutation=Pause(None)),
        barrier(2, prev=0),
        barrier(1, prev=-1),
    ],
    ids=["kind", "mutation", "curr", "prev"],
)
def test_partitions_that_tell_different_barriers_disagree(other: Barrier) -> None:
    aligner = fed((0, 3, barrier(1)), (1, 5, other))
    with pytest.raises(InputError) as caught:
        aligner.take_aligned()
    assert (caught.value.code, caught.value.where) == (Code.BARRIER_DISAGREE, "up-1@5")


def test_the_first_barrier_may_follow_any_other_since_what_was_before_it_is_not_known() -> None:
    assert len(fed((0, 0, barrier(7)), (1, 0, barrier(7))).take_aligned()) == 1


def test_partitions_that_are_read_from_their_first_record_can_not_lack_a_barrier() -> None:
    copies = [(0, 3, barrier(2)), (1, 3, barrier(1)), (1, 5, barrier(2))]

    def aligner(*begins: int) -> Aligner:
        made = Aligner("up", 2, None, begins=begins)
        for partition, offset, copy in copies:
            made.feed(partition, offset, copy)
        return made

    assert [each.ends for each in aligner(2, 0).take_aligned()] == [(4, 6)]
    for begins in ((), (0, 2)):
        with pytest.raises(InputError, match="BARRIER_DISAGREE"):
            aligner(*begins).take_aligned()


def beside(
    *copies: tuple[int, int, Barrier], last: AlignedBarrier | None, trimmed: tuple[int, ...] = (0, 1)
) -> Aligner:
    """An aligner of a barrier topic that was fed (partition, end, barrier); offsets are those left there."""
    aligner = Aligner("up.barriers", 2, last, in_data=False)
    aligner.mark_trimmed(trimmed)
    offsets = [7, 7]
    for partition, end, copy in copies:
        aligner.feed_beside(partition, offsets[partition], copy, end)
        offsets[partition] += 2
    return aligner


def test_intervals_before_the_oldest_barrier_are_one_that_goes_on_from_the_last() -> None:
    copies = [(p, 10 * n, barrier(n)) for n in (5, 6, 7) for p in (0, 1)]
    last = AlignedBarrier(barrier(2), (3, 3), in_data=False)
    aligner = beside(*copies, last=last)
    assert aligner.take_aligned() == [
        AlignedBarrier(barrier(5, prev=2), (50, 50), in_data=False),
        AlignedBarrier(barrier(6), (60, 60), in_data=False),
        AlignedBarrier(barrier(7), (70, 70), in_data=False),
    ]


@pytest.mark.parametrize("last", [None, AlignedBarrier(barrier(2), (3, 3), in_data=False)])
def test_partitions_that_were_trimmed_apart_begin_with_the_first_barrier_that_all_have(
    last: AlignedBarrier | None,
) -> None:
    aligner = beside((0, 50, barrier(5)), (0, 60, barrier(6)), last=last)
    assert aligner.take_aligned() == []
    aligner.feed_beside(1, 7, barrier(6), 61)
    aligner.feed_beside(1, 9, barrier(7), 71)
    [found] = aligner.take_aligned()
    assert (found.epoch, found.ends, found.barrier.prev >> 16) == (
        6 << 16,
        (60, 61),
        5 if last is None else 2,
    )


def test_a_gap_is_one_where_nothing_was_trimmed_and_behind_the_oldest_barrier() -> None:
    last = AlignedBarrier(barrier(2), (3, 3), in_data=False)
    with pytest.raises(InputError) as caught:
        beside((0, 50, barrier(5)), last=last, trimmed=(1,))
    assert caught.value.code is Code.BARRIER_GAP
    with pytest.raises(InputError) as caught:
        beside((0, 50, barrier(5)), (0, 70, barrier(7)), last=last)
    assert caught.value.code is Code.BARRIER_GAP


def grown(last: AlignedBarrier | None, *copies: tuple[int, int, Barrier]) -> Aligner:
    """An aligner of a topic that has four partitions by now."""
    aligner = Aligner("up", 4, last)
    for partition, offset, copy in copies:
        aligner.feed(partition, offset, copy)
    return aligner


@pytest.mark.parametrize(
    "last", [None, AlignedBarrier(barrier(5), (51, 61)), AlignedBarrier(barrier(5), (51, 61, 0, 0))]
)
def test_partitions_that_are_added_are_there_from_the_barrier_on_that_says_so(
    last: AlignedBarrier | None,
) -> None:
    more = barrier(7, partitions=4)
    aligner = grown(
        last, (2, 4, more), *((p, 70, barrier(6)) for p in (1, 0)), *((p, 80, more) for p in (1, 0))
    )
    assert aligner.take_aligned() == [AlignedBarrier(barrier(6), (71, 71, 0, 0))]
    aligner.feed(3, 0, more)
    assert aligner.take_aligned() == [AlignedBarrier(more, (81, 81, 5, 1))]


@pytest.mark.parametrize(
    ("code", "copies"),
    [
        (Code.PARTITIONS_CHANGED, [(0, 70, barrier(6, partitions=5))]),  # more than there are: perhaps by now
        (Code.PARTITIONS_CHANGED, [(0, 70, barrier(6, partitions=1))]),
        (Code.PARTITIONS_CHANGED, [(3, 0, barrier(6, partitions=3))]),
        (
            Code.BARRIER_DISAGREE,
            [(0, 70, barrier(6, partitions=3)), (1, 70, barrier(6)), (2, 0, barrier(6, partitions=3))],
        ),
        (
            Code.BARRIER_DISAGREE,
            [*((p, 70, barrier(6, partitions=3)) for p in (0, 1)), (2, 0, barrier(7, partitions=3))],
        ),
    ],
)
def test_barriers_that_are_not_those_of_partitions_that_were_added_are_refused(
    code: Code, copies: list[tuple[int, int, Barrier]]
) -> None:
    with pytest.raises(InputError) as caught:
        grown(AlignedBarrier(barrier(5), (51, 61)), *copies).take_aligned()
    assert caught.value.code is code
