"""Columns that the newest rows lack, and fields that are not declared: what is counted, logged and shown."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from schemas.formats.row_names import LOST_AFTER, MOST_UNDECLARED, FieldHistory, FieldsSeen
from schemas.table import TableSchema, declare
from streaming.control.service_api import _parsed
from streaming.source.direct_read import _log_changes


def table(**columns: Any) -> TableSchema:
    return declare({"name": "t", "columns": {"id": "bigint"} | columns, "primary_key": ["id"]})


OF = table(a="int", b={"type": "int", "field": "B"}, late={"type": "int", "fill": None})


def history(*rows: tuple[set[str], int]) -> FieldHistory:
    found = FieldHistory(OF)
    for names, times in rows:
        for _ in range(times):
            found.add(names)
    return found


def test_a_column_is_lost_when_no_row_of_so_many_had_it() -> None:
    found = history(({"a", "B"}, 1), ({"a"}, LOST_AFTER - 1))
    assert found.seen()[1:3] == ((), ())
    found.add({"a"})
    assert found.seen()[1:3] == (("b",), ())
    found.add({"a", "B"})
    assert found.seen()[1:3] == ((), ())


def test_a_column_that_was_never_there_is_named_unless_rows_may_lack_it() -> None:
    found = history(({"b"}, LOST_AFTER))
    assert found.seen() == FieldsSeen(LOST_AFTER, (), ("a", "b"), ("b",))
    late = history(({"a", "B", "late"}, 1), ({"a", "B"}, LOST_AFTER))
    assert late.seen().lost == ("late",)


def test_names_that_are_not_declared_are_kept_up_to_a_limit() -> None:
    found = FieldHistory(OF)
    found.add(f"x{number:04}" for number in range(MOST_UNDECLARED))
    assert (len(found.seen().undeclared), found.seen().more) == (MOST_UNDECLARED, False)
    found.add({"y"})
    assert (len(found.seen().undeclared), found.seen().more) == (MOST_UNDECLARED, True)


@pytest.mark.parametrize(
    ("before", "now", "events"),
    [
        (FieldsSeen(), FieldsSeen(9, ("a",), ("b",)), ["column_lost", "column_never_seen"]),
        (FieldsSeen(9, ("a",), ("b",)), FieldsSeen(10, ("a",), ("b",)), []),
        (FieldsSeen(9, ("a",), ("b",)), FieldsSeen(10), ["column_is_there", "column_is_there"]),
        (FieldsSeen(), FieldsSeen(1, (), (), ("x", "y")), ["fields_not_declared"]),
        (FieldsSeen(1, (), (), ("x",)), FieldsSeen(2, (), (), ("x",)), []),
        (FieldsSeen(1, (), (), ("x",)), FieldsSeen(2, (), (), ("x",), more=True), ["fields_not_declared"]),
    ],
)
def test_each_change_is_one_line_of_the_log(before: FieldsSeen, now: FieldsSeen, events: list[str]) -> None:
    with capture_logs() as lines:
        _log_changes("up", before, now)
    assert [line["event"] for line in lines] == events


def test_the_status_of_a_command_has_it_as_a_trouble() -> None:
    status = {"reason": None, "condition": "serving", "ready": True, "batch_age_s": 1.0}
    fields = {"lost": ["a"], "never": ["b"], "undeclared": ["x"], "more": False, "rows": 1}
    assert (
        _parsed(status | {"fields": fields})
        .troubles[0]
        .startswith("none of the newest rows has column a, b;")
    )
    assert _parsed(status | {"fields": fields}).undeclared == ("x",)
    assert _parsed(status).troubles == ()
