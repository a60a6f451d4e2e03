"""Ranges of offsets: history of jobs that read the topic, and parts of a long interval."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from schemas.job import JobDefinition
from schemas.kinds.configs import TopicScan
from schemas.records import Barrier, BarrierKind
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan, JobPlan, JobState, Slice
from streaming.core.offset_ranges import BEGINNING, history_ranges, history_records, part_ends
from tests.kit.tables import table

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
