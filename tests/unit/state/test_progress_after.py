"""What a plan makes of the progress of a job, before and after its slices were read."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from schemas.job import JobDefinition
from state.values.plan import JobPlan, JobState, Slice
from state.values.progress import Completed, IllegalMove, InProgress, Progress
from tests.kit.tables import table

TABLE = table(vnode_count=4)
STATE = JobState(JobDefinition.declare({"name": "copy", "output": "out"}, TABLE), start=1)
BEFORE = MappingProxyType[int, Progress]({0: InProgress((5,), 3), 1: Completed((9,), 7)})
PLAN = JobPlan(STATE, (Slice(0, (5,), None), Slice(2, None, (4,))))


def test_rows_count_for_the_vnodes_that_were_read_and_what_was_before_stays() -> None:
    assert PLAN.progress_after(BEFORE, {0: 2, 2: 1}) == {
        0: Completed((5,), 5),
        1: Completed((9,), 7),
        2: InProgress((4,), 1),
    }
    assert BEFORE[0] == InProgress((5,), 3)


def test_positions_follow_from_the_plan_alone() -> None:
    known, counted = PLAN.progress_after(BEFORE), PLAN.progress_after(BEFORE, {0: 2, 2: 1})
    assert [(type(state), state.position) for state in known.values()] == [
        (type(state), state.position) for state in counted.values()
    ]


def test_a_plan_without_slices_moves_nothing() -> None:
    assert JobPlan(STATE).progress_after(BEFORE, {}) is BEFORE


def test_a_lane_has_the_slices_of_its_vnodes() -> None:
    assert PLAN.of_parts(range(1, 3)).slices == PLAN.slices[1:]


def test_a_slice_that_nobody_counted_or_that_was_read_before_is_refused() -> None:
    with pytest.raises(KeyError):
        PLAN.progress_after(BEFORE, {0: 2})
    with pytest.raises(IllegalMove):
        PLAN.progress_after(PLAN.progress_after(BEFORE))
