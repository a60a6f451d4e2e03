from __future__ import annotations

import pytest

from state.values.progress import (
    Completed,
    IllegalMove,
    InProgress,
    NotStarted,
    advance,
    after_slice,
    covers,
    finish,
)

HALF = InProgress(("m",), 5)


def test_progress_moves_from_nothing_over_rising_positions_to_completion() -> None:
    started = advance(NotStarted(), ("a",), 2)
    further = advance(started, ("b",), 3)
    assert (started, further) == (InProgress(("a",), 2), InProgress(("b",), 5))
    assert finish(further, 1) == Completed(("b",), 6)


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
