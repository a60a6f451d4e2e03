from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Op
from state.values.progress import Completed, InProgress, NotStarted, Progress, covers, for_lanes
from streaming.core.visibility import HIDDEN, covered, keyed, visible_ops

VNODES = 4
DONE = Completed(None, 1)
keys = st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "\uffff", "\U0001f600"]))
states: st.SearchStrategy[Progress] = st.one_of(
    st.just(NotStarted()),
    st.builds(InProgress, keys, st.just(0)),
    st.builds(Completed, st.none() | keys, st.just(0)),
)


@given(
    changes=st.lists(st.tuples(st.integers(0, VNODES - 1), keys)),
    progress=st.dictionaries(st.integers(0, VNODES - 1), states)
    | st.just(dict.fromkeys(range(VNODES), DONE)),
)
def test_each_change_is_covered_as_its_own_vnode_says(
    changes: list[tuple[int, tuple[int, str]]], progress: dict[int, Progress]
) -> None:
    vnodes = np.array([vnode for vnode, _ in changes], dtype=np.int32)
    columns = [
        pa.array([key[0] for _, key in changes], pa.int32()),
        pa.array([key[1] for _, key in changes], pa.string()),
    ]
    slow = [covers(progress.get(vnode, NotStarted()), key) for vnode, key in changes]
    for known in (progress, for_lanes(progress, VNODES)):
        assert covered(vnodes, columns, known, VNODES).tolist() == slow


KEY_VALUES = st.lists(st.sampled_from([None, "", "a", "b"]), min_size=2, max_size=2).map(tuple)
KEYED = st.lists(st.tuples(st.sampled_from(Op), KEY_VALUES, KEY_VALUES), max_size=8)


def moves(changes: list[Any]) -> list[tuple[int, Op]]:
    """Slow and plain: each change by its index, and as what it is sent."""
    sent = list[tuple[int, Op]]()
    for number, (op, before, after) in enumerate(changes):
        is_moved = op is Op.UPDATE and before != after
        sent += [(number, Op.DELETE), (number, Op.INSERT)] if is_moved else [(number, op)]
    return sent


@given(KEYED)
def test_an_update_that_moves_the_key_is_a_delete_and_then_an_insert(
    changes: list[Any],
) -> None:
    ops = np.array([op for op, _, _ in changes], dtype=np.int8)
    halves = ([[change[half][at] for change in changes] for at in range(2)] for half in (1, 2))
    before, after = ([pa.array(each, pa.string()) for each in half] for half in halves)
    index, sent = keyed(ops, zip(before, after, strict=True))
    assert list(zip(index.tolist(), sent.tolist(), strict=True)) == moves(changes)
    assert sent.dtype == np.int8


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("op", Op)
def test_a_change_is_shown_as_what_its_visible_halves_make_it(op: Op, before: bool, after: bool) -> None:
    had, has = op is not Op.INSERT and before, op is not Op.DELETE and after
    shown = {(0, 0): HIDDEN, (0, 1): Op.INSERT, (1, 0): Op.DELETE, (1, 1): Op.UPDATE}[had, has]
    ops = np.array([op], dtype=np.int8)
    assert visible_ops(ops, np.array([before]), np.array([after])).tolist() == [shown]
