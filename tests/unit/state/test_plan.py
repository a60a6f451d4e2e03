from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.avro.codec import encode_barrier
from schemas.errors import Code
from schemas.job import JobDefinition
from schemas.position import Key
from schemas.records import (
    Add,
    Barrier,
    BarrierKind,
    Drop,
    Lanes,
    Mutation,
    Other,
    Pause,
    Resume,
    Stop,
    Throttle,
)
from schemas.table import TableSchema, declare
from state.values.plan import AlignedBarrier, BatchPlan, JobPlan, JobState, Parked, ReplicaVersion, Slice
from tests.kit.values import KEY_TYPES, values_of

EPOCHS = st.integers(1, 2**46).map(lambda n: n << 16)
OFFSETS = st.integers(0, 2**62)
FIRST = Barrier(1 << 16, 0, BarrierKind.INITIAL, 2, 0)
SECOND = Barrier(2 << 16, 1 << 16, BarrierKind.CHECKPOINT, 2, 0)
TEXT = st.text(max_size=20)
MUTATIONS: st.SearchStrategy[Mutation | None] = st.one_of(
    st.none(),
    st.builds(Add, TEXT),
    st.builds(Drop, TEXT),
    st.builds(Pause, st.none() | TEXT),
    st.builds(Resume, st.none() | TEXT),
    st.builds(Throttle, TEXT, st.none() | st.integers(0, 2**62)),
    st.just(Stop()),
    st.builds(Lanes, st.integers(1, 2**31)),
    st.builds(Other, st.sampled_from(["Alter", "Later"]), st.just('{"c": 1}')),
)


def table() -> TableSchema:
    """A table whose key has a column of every type that a key may have."""
    columns = {f"k{number}": str(kind) for number, kind in enumerate(KEY_TYPES)}
    return declare({"name": "t", "columns": columns | {"n": "int"}, "primary_key": list(columns)})


TABLE = table()
KEYS: st.SearchStrategy[Key] = st.tuples(*(values_of(kind) for kind in KEY_TYPES))


@st.composite
def aligned(draw: st.DrawFn, partitions: int) -> AlignedBarrier:
    ends = draw(st.lists(OFFSETS, min_size=partitions, max_size=partitions))
    kind, mutation = draw(st.sampled_from(BarrierKind)), draw(MUTATIONS)
    barrier = Barrier(draw(EPOCHS), 0, kind, partitions, 5, mutation)
    return AlignedBarrier(barrier, tuple(ends), in_data=draw(st.booleans()))


@st.composite
def job_plans(draw: st.DrawFn) -> JobPlan:
    declaration: dict[str, Any] = {"name": "copy", "output": "out", "columns": ["n"], "filter": "n > 1"}
    state = JobState(
        JobDefinition.declare(declaration, TABLE),
        draw(EPOCHS),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.none() | st.integers(0, 2**62)),
    )
    slices = st.builds(Slice, st.integers(0, 63), st.none() | KEYS, st.none() | KEYS)
    return JobPlan(state, tuple(draw(st.lists(slices, max_size=2))))


PARKED = st.builds(Parked, st.integers(0, 2), OFFSETS, st.sampled_from(Code), st.integers(0, 63))


@st.composite
def plans(draw: st.DrawFn) -> BatchPlan:
    partitions = draw(st.integers(1, 3))
    return BatchPlan(
        draw(st.none() | aligned(partitions)),
        tuple(draw(st.lists(aligned(partitions), min_size=1, max_size=2))),
        tuple(draw(st.lists(OFFSETS, min_size=partitions, max_size=partitions))),
        ReplicaVersion(draw(OFFSETS), draw(OFFSETS), draw(EPOCHS)),
        draw(st.integers(1, 64)),
        tuple(draw(st.lists(job_plans(), max_size=1))),
        tuple(draw(st.lists(st.tuples(st.integers(0, 2), OFFSETS), max_size=2))),
        tuple(draw(st.lists(PARKED, max_size=2))),
    )


@given(plans())
def test_a_plan_comes_back_from_its_json_as_it_was(plan: BatchPlan) -> None:
    assert BatchPlan.from_json(plan.to_json(), TABLE) == plan


def test_a_plan_of_a_version_that_did_not_park_can_be_gone_on_with() -> None:
    plan = BatchPlan(None, (), (0,), ReplicaVersion(0, 0, 0), 1)
    raw = json.loads(plan.to_json())
    del raw["parked"]
    assert BatchPlan.from_json(json.dumps(raw), TABLE) == plan


@given(plans())
def test_a_plan_of_a_version_that_wrote_the_offsets_of_barriers_is_the_same_batch(plan: BatchPlan) -> None:
    raw = json.loads(plan.to_json())
    for barrier in (*raw["barriers"], *([raw["start"]] if raw["start"] else [])):
        barrier["offsets"] = [end - 1 for end in barrier.pop("ends")]
        del barrier["in_data"]
    start = None if plan.start is None else replace(plan.start, in_data=True)
    barriers = tuple(replace(each, in_data=True) for each in plan.barriers)
    assert BatchPlan.from_json(json.dumps(raw), TABLE) == replace(plan, start=start, barriers=barriers)


def test_a_plan_that_a_former_version_left_open_is_gone_on_with() -> None:
    """As it was written, with barriers whose own records are at the offsets 4 and 7, then 9 and 9."""
    barriers = [
        {"curr": "65536", "avro": encode_barrier(FIRST).hex(), "offsets": [4, 7]},
        {"curr": "131072", "avro": encode_barrier(SECOND).hex(), "offsets": [9, 9]},
    ]
    text = json.dumps(
        {
            "start": barriers[0],
            "barriers": barriers[1:],
            "first_offsets": [5, 8],
            "replica": {"base": 0, "log": 1, "folded": 0},
            "lanes": 2,
            "jobs": [],
            "skipped": [[1, 8]],
        }
    )
    plan = BatchPlan.from_json(text, TABLE)
    assert plan.start == AlignedBarrier(FIRST, (5, 8))
    assert (plan.end, plan.end_offsets) == (AlignedBarrier(SECOND, (10, 10)), (10, 10))
    assert BatchPlan.from_json(plan.to_json(), TABLE) == plan


def test_why_a_job_is_paused_comes_back_and_is_not_asked_of_older_plans() -> None:
    definition = JobDefinition.declare({"name": "a", "output": "b"}, TABLE)
    state = JobState(definition, 7, opened=True, paused=True, paused_by="RECORD_TOO_LARGE at the row [1]")
    assert JobState.from_dict(json.loads(json.dumps(state.to_dict())), TABLE) == state
    assert "paused_by" not in JobState(definition, 7).to_dict()
