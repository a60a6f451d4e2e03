"""Folding changes, and values as text."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from schemas.errors import Code, InputError
from schemas.records import Barrier, BarrierKind, Change, Op, VnodeProgress
from streaming.reading.topic import Record, TableFold, Tally, plain

OLD, NEW = (1, "old"), (1, "new")


def fold(*changes: Change) -> TableFold:
    table = TableFold()
    for change in changes:
        table.apply((1,), change, "t-0@1")
    return table


def test_changes_add_up_to_the_rows_that_are_there() -> None:
    insert, update, delete = (
        Change(Op.INSERT, None, OLD),
        Change(Op.UPDATE, OLD, NEW),
        Change(Op.DELETE, NEW, None),
    )
    assert fold(insert).rows == {(1,): OLD}
    assert fold(insert, update).rows == {(1,): NEW}
    assert fold(insert, update, delete).rows == {}
    assert fold(insert, update, delete, insert).rows == {(1,): OLD}


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        (Code.INSERT_EXISTING_KEY, [Change(Op.INSERT, None, OLD), Change(Op.INSERT, None, OLD)]),
        (Code.DELETE_MISSING_KEY, [Change(Op.DELETE, OLD, None)]),
        (Code.DELETE_MISSING_KEY, [Change(Op.UPDATE, OLD, NEW)]),
        (Code.OLD_ROW_MISMATCH, [Change(Op.INSERT, None, OLD), Change(Op.UPDATE, NEW, OLD)]),
        (Code.OLD_ROW_MISMATCH, [Change(Op.INSERT, None, OLD), Change(Op.DELETE, NEW, None)]),
    ],
)
def test_a_change_that_does_not_fit_is_named_with_its_place(code: Code, changes: list[Change]) -> None:
    with pytest.raises(InputError) as caught:
        fold(*changes)
    assert (caught.value.code, caught.value.where) == (code, "t-0@1")


def test_a_row_with_nan_is_equal_to_itself() -> None:
    nan = (1, float("nan"))
    assert fold(Change(Op.INSERT, None, nan), Change(Op.DELETE, (1, float("nan")), None)).rows == {}


def test_a_tally_knows_which_vnodes_have_finished() -> None:
    progress = (VnodeProgress(3, "[1]", False, 1), VnodeProgress(5, None, True, 0))
    barrier = Barrier(2, 1, BarrierKind.CHECKPOINT, 1, 0, progress=progress)
    tally = Tally()
    tally.add(Record("t-0@0", 0, 2, None, barrier))
    tally.add(Record("t-0@1", 0, 2, (1,), Change(Op.INSERT, None, OLD)))
    assert tally.counts == {"barriers": 1, "inserts": 1}
    assert (tally.finished, tally.epochs) == ({5}, {0: 2})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1E+2"), "100"),
        (dt.date(2026, 1, 31), "2026-01-31"),
        (dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), "2026-01-31T12:00:00.000000Z"),
        (b"\x00\xff", "AP8="),
        (7, 7),
        (None, None),
    ],
)
def test_values_have_a_plain_form(value: object, text: object) -> None:
    assert plain(value) == text
