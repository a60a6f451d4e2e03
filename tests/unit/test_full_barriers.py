"""Full barriers, and topics up to a barrier that all partitions have."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from schemas.errors import Code, TopicError
from schemas.job import JobDefinition
from schemas.json.barriers import encode_beside
from schemas.kinds.full_barriers import PERIOD_MS, barrier_topic_bytes, begins_period
from schemas.kinds.lanes import parts_of
from schemas.position import Key
from schemas.records import Barrier, BarrierKind, Change, Op, VnodeProgress
from schemas.settings.limits import HEADROOM_BYTES, Limits
from schemas.table import TableSchema, declare
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan, JobPlan, JobState, Slice
from state.values.progress import Completed, InProgress, Progress
from streaming.lane.task import LaneJob
from streaming.reading.topic import Complete, Record

LONG_AGO_MS = 1_700_000_000_000 // PERIOD_MS * PERIOD_MS
BIGINT = declare({"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"], "vnode_count": 8})
TEXT = declare({"name": "t", "columns": {"id": "string"}, "primary_key": ["id"], "vnode_count": 8})


def at(number: int, ms: int) -> Barrier:
    return Barrier(number << 16, (number - 1) << 16, BarrierKind.CHECKPOINT, 1, LONG_AGO_MS + ms)


def plan_of(*times_ms: int) -> BatchPlan:
    start, *rest = (AlignedBarrier(at(n, ms), (0,)) for n, ms in enumerate(times_ms, 1))
    return BatchPlan(start, tuple(rest), (0,), ReplicaVersion(0, 0, 0), 1)


def test_the_first_barrier_of_each_half_hour_is_full_however_intervals_are_put_into_batches() -> None:
    times_ms = [0, 1, PERIOD_MS - 1, PERIOD_MS, PERIOD_MS + 1, 3 * PERIOD_MS, 3 * PERIOD_MS - 5]
    whole = plan_of(*times_ms)
    full = [whole.is_full(number) for number in range(len(times_ms) - 1)]
    assert full == [False, False, True, False, True, True]
    assert full == [plan_of(*pair).is_full(0) for pair in pairwise(times_ms)]
    assert whole.has_full
    assert not plan_of(0, 5).has_full
    assert not begins_period(at(1, 0), at(2, PERIOD_MS - 1))


def test_the_first_batch_of_a_state_has_none() -> None:
    whole = plan_of(0, PERIOD_MS)
    assert not BatchPlan(None, whole.barriers, (0,), whole.replica, 1).has_full


def lane_job(
    table: TableSchema, before: dict[int, Progress], slices: tuple[Slice, ...] = (), **over: Any
) -> LaneJob:
    declared = {"name": "copy", "output": "copy", "format": "upsert", "output_partitions": 2, **over}
    plan = JobPlan(JobState(JobDefinition.declare(declared, table), 1), slices)
    return LaneJob(plan, table, None, before, (0, 1), None)  # type: ignore[arg-type]


def progress_in(barrier: Barrier | None) -> list[tuple[int, str | None, bool, int]]:
    assert barrier is not None
    return [(each.vnode, each.position, each.finished, each.row_count) for each in barrier.progress]


def test_a_full_barrier_lists_every_vnode_of_its_partition_also_one_that_was_not_started() -> None:
    before: dict[int, Progress] = {0: Completed((9,), 3), 1: InProgress((4,), 2), 5: Completed(None, 0)}
    job = lane_job(BIGINT, before, (Slice(1, (4,), (7,)), Slice(2, None, None)))
    after = job.plan.progress_after(before, {1: 5, 2: 1})
    first, second = (job.full_barrier(at(2, 0), partition, after) for partition in (0, 1))
    assert progress_in(first) == [
        (0, "[9]", True, 3),
        (1, "[7]", False, 7),
        (2, None, True, 1),
        (3, None, False, 0),
    ]
    assert progress_in(second) == [
        (4, None, False, 0),
        (5, None, True, 0),
        (6, None, False, 0),
        (7, None, False, 0),
    ]
    assert first is not None
    assert first.full
    assert not job.barrier(first, 0, {}).full


def test_parts_of_a_partition_are_those_that_live_there() -> None:
    for vnodes, partitions in ((8, 2), (7, 3), (64, 5), (3, 3)):
        table = declare(
            {"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"], "vnode_count": vnodes}
        )
        job = JobDefinition.declare({"name": "j", "output": "o", "output_partitions": partitions}, table)
        for partition in range(partitions):
            wanted = [part for part in range(vnodes) if job.partition_of(part) == partition]
            assert list(parts_of(job, partition)) == wanted


KEYS: list[tuple[TableSchema, Key]] = [
    (BIGINT, (-(2**63),)),
    (TEXT, ("x" * 2_000,)),
    (TEXT, ("\x01" * 285,)),
    (TEXT, ('"' * 500,)),
]


@pytest.mark.parametrize(("table", "key"), KEYS, ids=["number", "text", "control characters", "quotes"])
def test_the_longest_positions_fit_into_what_the_topic_takes(table: TableSchema, key: Key) -> None:
    many = declare({**table.to_dict(), "vnode_count": 4_096})
    job = lane_job(many, {}, output_partitions=2)
    full = job.full_barrier(at(2, 0), 1, dict.fromkeys(range(4_096), InProgress(key, 2**63 - 1)))
    assert full is not None
    size = len(encode_beside(full, 2**63 - 1)) + HEADROOM_BYTES
    assert size <= barrier_topic_bytes(job.definition, many.key_columns, Limits())


def test_a_full_barrier_that_its_topic_would_not_take_is_none() -> None:
    job = lane_job(TEXT, {})
    long: dict[int, Progress] = dict.fromkeys(range(8), InProgress(("x" * 300_000,), 1))
    assert job.full_barrier(at(2, 0), 0, long) is None
    assert job.barrier(at(2, 0), 0, {0: long[0]}).progress == (
        VnodeProgress(0, f'["{"x" * 300_000}"]', False, 1),
    )


def test_a_topic_of_few_vnodes_needs_no_more_than_a_record() -> None:
    job = lane_job(BIGINT, {}).definition
    assert barrier_topic_bytes(job, BIGINT.key_columns, Limits()) == Limits().message_bytes


def change(partition: int, key: int) -> Record:
    return Record(f"{partition}", partition, 0, (key,), Change(Op.INSERT, None, (key,)))


def barrier(partition: int, epoch: int, partitions: int = 2) -> Record:
    body = Barrier(epoch, epoch - 1, BarrierKind.CHECKPOINT, partitions, 0)
    return Record(f"{partition}", partition, epoch, None, body)


def keys_upto(complete: Complete, records: list[Record]) -> dict[int, list[object]]:
    """By the barrier that they were given with, the keys of changes."""
    found: dict[int, list[object]] = {}
    for record in records:
        given = [each.key for each in complete.add(record) if each.key is not None]
        if given:
            found[complete.epoch] = sorted(key[0] for key in given)
    return found


def test_partitions_that_were_trimmed_apart_are_joined_up_to_the_first_barrier_of_all() -> None:
    records = [
        change(0, 1),
        barrier(0, 5),
        change(0, 2),
        barrier(0, 6),
        change(0, 3),
        barrier(0, 7),
        change(1, 11),
        change(1, 12),
        barrier(1, 7),
        change(1, 13),
        barrier(1, 8),
        change(0, 4),
        barrier(0, 8),
    ]
    complete = Complete(2)
    assert keys_upto(complete, records) == {7: [1, 2, 3, 11, 12], 8: [4, 13]}


def test_what_is_behind_the_barrier_that_was_asked_for_is_not_given() -> None:
    records = [
        change(0, 1),
        barrier(0, 1),
        change(1, 2),
        barrier(1, 1),
        change(0, 3),
        barrier(0, 2),
        barrier(1, 2),
    ]
    assert keys_upto(Complete(2, until=1), records) == {1: [1, 2]}


def test_a_partition_that_is_added_is_waited_for_from_the_barrier_on_that_says_so() -> None:
    records = [change(2, 21), *(each for p in (0, 1) for each in (change(p, p), barrier(p, 1)))]
    records += [each for p in (0, 1) for each in (change(p, 10 + p), barrier(p, 2, 3))]
    complete = Complete(3)
    assert keys_upto(complete, records) == {1: [0, 1]}
    assert keys_upto(complete, [barrier(2, 2, 3)]) == {2: [10, 11, 21]}
    with pytest.raises(TopicError) as caught:
        keys_upto(complete, [barrier(0, 3, 4)])
    assert caught.value.code is Code.PARTITIONS_CHANGED
