from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan, JobPlan, JobState, Parked, Slice
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
    return JobPlan(
        state, tuple(draw(st.lists(slices, max_size=2))), gains_from=draw(st.none() | st.integers(0, 9))
    )


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
        moved_at=draw(st.just(0) | EPOCHS),
    )


@given(plans())
def test_a_plan_comes_back_from_its_json_as_it_was(plan: BatchPlan) -> None:
    assert BatchPlan.from_json(plan.to_json(), TABLE) == plan


def test_why_a_job_is_paused_comes_back_and_is_not_asked_of_older_plans() -> None:
    definition = JobDefinition.declare({"name": "a", "output": "b"}, TABLE)
    state = JobState(definition, 7, opened=True, paused=True, paused_by="RECORD_TOO_LARGE at the row [1]")
    assert JobState.from_dict(json.loads(json.dumps(state.to_dict())), TABLE) == state
    assert "paused_by" not in JobState(definition, 7).to_dict()


def grown(*counts: int, start: int | None = None, moved_at: int = 0) -> BatchPlan:
    """A plan over barriers for so many partitions each, at epochs from 1 on."""
    own = [
        AlignedBarrier(Barrier(n << 16, 0, BarrierKind.BARRIER, count, 0), (0,) * 9)
        for n, count in enumerate((start or counts[0], *counts))
    ]
    first = None if start is None else own[0]
    return BatchPlan(first, tuple(own[1:]), (0,) * 9, ReplicaVersion(0, 0, 0), 1, moved_at=moved_at)


@pytest.mark.parametrize(
    ("plan", "rises", "moves_from", "moved_after"),
    [
        (grown(2, 2, start=2), (), None, 0),
        (grown(2, 2), (), None, 0),  # the first barrier of all is for all that there are
        (grown(2, 3, 3, 5, start=2), (1, 3), 1, 4),
        (grown(3, start=2), (0,), 0, 1),
        (grown(3, 3, start=3, moved_at=7 << 16), (), 0, 7),
        (grown(3, 4, moved_at=0), (1,), 1, 2),
    ],
)
def test_keys_may_move_from_the_first_barrier_on_that_has_more_partitions(
    plan: BatchPlan, rises: tuple[int, ...], moves_from: int | None, moved_after: int
) -> None:
    assert (plan.rises, plan.moves_from, plan.moved_after >> 16) == (rises, moves_from, moved_after)
