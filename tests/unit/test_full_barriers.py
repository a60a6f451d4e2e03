"""Full barriers: which are, what is in them, and how long they may get."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from schemas.job import JobDefinition
from schemas.json.barriers import encode_beside
from schemas.kinds.full_barriers import PERIOD_MS, barrier_topic_bytes, begins_period
from schemas.kinds.lanes import parts_of
from schemas.position import Key
from schemas.records import Barrier, BarrierKind, VnodeProgress
from schemas.settings.limits import HEADROOM_BYTES, Limits
from schemas.table import TableSchema, declare
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan, JobPlan, JobState, Slice
from state.values.progress import Completed, InProgress, Progress
from streaming.lane.task import LaneJob

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
