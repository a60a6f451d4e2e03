from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from schemas.job import JobDefinition
from schemas.position import Key
from schemas.records import Barrier, BarrierKind
from state.values.aligned import AlignedBarrier
from state.values.plan import JobPlan, JobState
from state.values.progress import Completed, Progress
from streaming.core.batch_size import FIRST_ROWS, MAX_BATCH_RECORDS, MIN_ROWS, BatchSizer
from streaming.core.planning import Amount, Cut
from tests.kit.tables import table

VNODES = 8
BARRIER = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.CHECKPOINT, 1, 0), (10,))
ALL_READ: Mapping[int, Progress] = {vnode: Completed((1,), 1) for vnode in range(VNODES)}


def job(name: str) -> JobState:
    declaration = {"name": name, "output": name, "latency_budget": "2s"}
    return JobState(JobDefinition.declare(declaration, table(vnode_count=VNODES)), start=1)


def batch_sizer(held_bytes: int = 1 << 40, rate_limit: int | None = None) -> BatchSizer:
    return BatchSizer(held_bytes, rate_limit)


def plans(
    batch_sizer: BatchSizer,
    *jobs: JobState,
    progress: Mapping[str, Mapping[int, Progress]],
    now_ms: int = 1_000,
) -> tuple[JobPlan, ...]:
    def cut(vnode: int, after: Key | None, limit: Amount) -> Cut:
        return Cut((limit.rows,), limit.rows)  # as if vnodes had no end: a slice's position is what it reads

    return batch_sizer.plan_jobs(jobs, progress, BARRIER, lambda job: cut, now_ms=now_ms)


def read_by(plan: JobPlan) -> int:
    return sum(int(item.upto[0]) for item in plan.slices if item.upto is not None)


def learned(batch_sizer: BatchSizer, rows: Mapping[str, int], *, read_ms: float) -> None:
    batch_sizer.learn_batch(changes=0, held_bytes=0, rows=rows, read_ms=read_ms, took_ms=read_ms)


def test_a_job_that_has_read_all_gets_nothing_and_takes_no_share_of_the_others() -> None:
    alone, beside = batch_sizer(), batch_sizer()
    for each in (alone, beside):
        plans(each, job("a"), progress={})
        learned(each, {"a": FIRST_ROWS}, read_ms=1_000)
    (expected,) = plans(alone, job("a"), progress={})
    done, reading = plans(beside, job("done"), job("a"), progress={"done": ALL_READ})
    assert done.slices == ()
    assert read_by(reading) == read_by(expected) > 0


@pytest.mark.parametrize("held_back", [{"paused": True}, {"rate_limit": 0}])
def test_jobs_that_read_at_once_share_the_time_and_one_that_may_not_read_has_no_part_in_it(
    held_back: dict[str, Any],
) -> None:
    shared, alone = batch_sizer(), batch_sizer()
    for each in (shared, alone):
        plans(each, job("a"), progress={})
        learned(each, {"a": FIRST_ROWS}, read_ms=1_000)
    (both, _) = plans(shared, job("a"), job("b"), progress={})
    (one, held) = plans(alone, job("a"), replace(job("b"), **held_back), progress={})
    assert held.slices == ()
    assert read_by(both) < read_by(one)


def test_a_job_that_is_made_anew_begins_as_one_that_nothing_is_known_of() -> None:
    known = batch_sizer()
    plans(known, job("a"), progress={})
    learned(known, {"a": MIN_ROWS}, read_ms=60_000)
    assert read_by(plans(known, job("a"), progress={})[0]) <= MIN_ROWS + VNODES
    known.forget("a")
    assert read_by(plans(known, job("a"), progress={})[0]) == FIRST_ROWS


def test_a_batch_of_several_intervals_takes_fewer_records_the_larger_they_are() -> None:
    held = batch_sizer(held_bytes=1_000_000)
    assert held.most_records(1) == 1_000
    held.learn_batch(changes=10, held_bytes=50_000, rows={}, read_ms=0, took_ms=100)
    assert held.most_records(1) == 100
    held.learn_batch(changes=0, held_bytes=0, rows={}, read_ms=0, took_ms=100)
    assert held.most_records(1) == 100
    assert batch_sizer().most_records(1) == MAX_BATCH_RECORDS


def read_in_turns(sizer: BatchSizer, jobs: tuple[JobState, ...], turns: int) -> Counter[str]:
    """Rows by job, of a batch a second."""
    read = Counter[str]()
    for turn in range(turns):
        rows = {
            plan.state.name: read_by(plan)
            for plan in plans(sizer, *jobs, progress={}, now_ms=(turn + 1) * 1_000)
        }
        read.update(rows)
        learned(sizer, rows, read_ms=100)
    return read


def test_a_limit_of_all_jobs_is_shared_evenly_whatever_their_number() -> None:
    one = read_in_turns(batch_sizer(rate_limit=3_000), (job("a"),), turns=20)
    three = read_in_turns(batch_sizer(rate_limit=3_000), (job("a"), job("b"), job("c")), turns=20)
    assert one.total() == three.total() == 20 * 3_000
    assert set(three.values()) == {20 * 1_000}


def test_what_one_job_leaves_of_the_limit_the_others_have() -> None:
    held = replace(job("held"), rate_limit=30)
    read = read_in_turns(batch_sizer(rate_limit=300), (held, job("a"), job("b")), turns=30)
    assert read["held"] <= 30 * 30
    assert read.total() == pytest.approx(30 * 300, rel=0.1)
    assert read["a"] == pytest.approx(read["b"], rel=0.3)


def test_a_limit_below_a_row_a_job_reaches_all_of_them_in_turns() -> None:
    read = read_in_turns(batch_sizer(rate_limit=1), (job("a"), job("b"), job("c")), turns=30)
    assert read.total() == 30
    assert min(read.values()) >= 9


def test_no_limit_of_all_jobs_changes_nothing() -> None:
    free, wide = batch_sizer(), batch_sizer(rate_limit=1 << 40)
    jobs = (job("a"), job("b"))
    assert read_in_turns(free, jobs, turns=5) == read_in_turns(wide, jobs, turns=5)
