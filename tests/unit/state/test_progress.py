from __future__ import annotations

import pickle
from types import MappingProxyType

import pytest

from schemas.job import JobDefinition
from state.values.plan import JobPlan, JobState, Slice
from state.values.progress import (
    Completed,
    IllegalMove,
    InProgress,
    NotStarted,
    Parts,
    Progress,
    advance,
    after_slice,
    covers,
    finish,
    for_lanes,
    is_complete,
    of_parts,
    parts_done,
    rows_read,
)
from tests.kit.tables import table

HALF = InProgress(("m",), 5)
TABLE = table(vnode_count=4)
STATE = JobState(JobDefinition.declare({"name": "copy", "output": "out"}, TABLE), start=1)
BEFORE = MappingProxyType[int, Progress]({0: InProgress((5,), 3), 1: Completed((9,), 7)})
PLAN = JobPlan(STATE, (Slice(0, (5,), None), Slice(2, None, (4,))))


def test_progress_moves_from_nothing_over_rising_positions_to_completion() -> None:
    started = advance(NotStarted(), ("a",), 2)
    further = advance(started, ("b",), 3)
    assert (started, further) == (InProgress(("a",), 2), InProgress(("b",), 5))
    assert finish(further, 1) == Completed(("b",), 6)


def test_what_a_jobs_parts_add_up_to_is_the_same_counted_once_or_each_time() -> None:
    states: dict[int, Progress] = {0: Completed(("z",), 7), 2: HALF, 3: Completed(None, 0)}
    for progress in (states, Parts(states)):
        assert (parts_done(progress), rows_read(progress)) == (2, 12)
        assert not is_complete(progress, 4)
    assert Parts(states) == states


def test_lanes_are_sent_all_parts_of_a_job_that_reads_and_a_few_bytes_of_one_that_is_complete() -> None:
    states: dict[int, Progress] = {part: Completed(("z",), part) for part in range(8_192)}
    lanes = for_lanes(Parts(states), 8_192)
    assert len(pickle.dumps(lanes)) < 200
    assert of_parts(lanes, range(4)) is lanes
    assert list(lanes) == list(states)
    assert is_complete(lanes, 8_192)
    reading = Parts({**states, 5: HALF})
    assert for_lanes(reading, 8_192) == reading
    assert of_parts(reading, range(4, 6)) == {4: states[4], 5: HALF}


def test_an_empty_vnode_completes_without_a_position() -> None:
    assert finish(NotStarted(), 0) == Completed(None, 0)


def test_a_slice_that_reaches_the_end_completes_and_any_other_advances() -> None:
    assert after_slice(HALF, None, 1) == finish(HALF, 1)
    assert after_slice(HALF, ("z",), 1) == advance(HALF, ("z",), 1)


@pytest.mark.parametrize(
    ("progress", "upto", "rows"),
    [
        (HALF, ("m",), 0),
        (HALF, ("a",), 1),
        (InProgress(("\U0001f600",), 0), ("\uffff",), 1),
        (HALF, ("z",), -1),
        (HALF, None, -1),
        (Completed(None, 0), ("a",), 1),
        (Completed(("z",), 9), None, 0),
    ],
    ids=[
        "same",
        "falls",
        "falls in UTF-8",
        "negative",
        "negative at the end",
        "completed",
        "completed twice",
    ],
)
def test_an_illegal_move_is_refused(
    progress: InProgress | Completed, upto: tuple[str] | None, rows: int
) -> None:
    with pytest.raises(IllegalMove):
        after_slice(progress, upto, rows)


@pytest.mark.parametrize(
    ("progress", "seen"),
    [
        (NotStarted(), (False, False, False)),
        (HALF, (True, True, False)),
        (Completed(("a",), 0), (True, True, True)),
        (Completed(None, 0), (True, True, True)),
    ],
)
def test_what_was_read_covers_its_keys_and_completion_covers_all(
    progress: NotStarted | InProgress | Completed, seen: tuple[bool, ...]
) -> None:
    assert tuple(covers(progress, (key,)) for key in ("a", "m", "z")) == seen


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
