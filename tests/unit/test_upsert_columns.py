"""Rows of `upsert` and `append` in JSON by whole columns, under what a configuration says of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from schemas.errors import Code
from schemas.formats.append import AppendFormat
from schemas.formats.upsert import UpsertFormat
from schemas.records import Op
from schemas.table import TableSchema, declare
from tests.kit.two_ways import agree, one_by_one, results, results_alone

WRAPPED = {"type": "decimal(20,0)", "unsigned": "wrapped"}
KEY = b'{"id":7}'
BIG = Decimal(2**64 - 1)


def table(**columns: Any) -> TableSchema:
    return declare({"name": "t", "columns": {"id": "bigint"} | columns, "primary_key": ["id"]})


def rows(of: TableSchema, values: Sequence[Any], **how: Any) -> list[Any]:
    """Of records that are read by columns as the reference decoder reads them: the rows after, or ops."""
    format_ = UpsertFormat(**how)
    found = [(KEY, None if each is None else json.dumps(each).encode()) for each in values]
    assert agree(format_, of, found)
    changes = [each.change for each in one_by_one(format_, of, found)]
    return [None if change is None or change.op is Op.DELETE else change.after for change in changes]


def test_rows_that_are_deleted_are_kept_apart() -> None:
    of = table(v="string")
    said = ["true", "false", None]
    values = [{"v": "x", "__deleted": each} for each in said]
    assert rows(of, [*values, {"v": "y"}, None, values[0]]) == [
        None,
        (7, "x"),
        (7, "x"),
        (7, "y"),
        None,
        None,
    ]
    assert rows(of, [{"v": "x", "__deleted": "yes"}], deleted_field=None) == [(7, "x")]


@pytest.mark.parametrize("deleted", ["yes", 1, {"a": 1}])
def test_a_row_that_says_neither_is_invalid(deleted: object) -> None:
    record = KEY, json.dumps({"v": "x", "__deleted": deleted}).encode()
    assert results(UpsertFormat(), table(v="string"), [record]) == [Code.JSON_MALFORMED]


def test_booleans_say_that_rows_are_deleted_as_well() -> None:
    assert rows(table(v="string"), [{"v": "x", "__deleted": each} for each in (True, False)]) == [
        None,
        (7, "x"),
    ]


def test_wrapped_numbers_are_unwrapped_in_rows_and_keys() -> None:
    assert rows(table(u=WRAPPED), [{"u": -1}, {"u": 5}]) == [(7, BIG), (7, Decimal(5))]
    own = table(id=WRAPPED)
    for form, key in (("record", b'{"id":-1}'), ("json", b"-1"), ("text", b"-1")):
        format_ = UpsertFormat(key=form)  # type: ignore[arg-type]
        assert agree(format_, own, [(key, None), (key, None)])
        [change] = [each.change for each in one_by_one(format_, own, [(key, b'{"x":1}')])]
        assert change is not None
        assert change.after == (BIG,)


def test_columns_are_read_by_their_names_in_records() -> None:
    of = table(size={"type": "int", "field": "größe"}, n={"type": "decimal(9,2)", "field": "a b"})
    assert rows(of, [{"größe": 1, "a b": "1.50"}, {"größe": 2, "n": 2}]) == [
        (7, 1, Decimal("1.50")),
        (7, 2, None),
    ]


FRAME = {"schema": {"type": "struct", "fields": [{"field": "v", "type": "string"}]}, "payload": {"v": "x"}}


@pytest.mark.parametrize("frame", [FRAME, dict(reversed(FRAME.items())), {**FRAME, "payload": None}])
def test_a_frame_is_no_row_of_nulls(frame: dict[str, Any]) -> None:
    value = json.dumps(frame).encode()
    appended = declare({"name": "t", "columns": {"v": "string"}}, has_key=False)
    for format_, of, key in ((UpsertFormat(), table(v="string"), KEY), (AppendFormat(), appended, None)):
        records = [(key, value), (key, b'{"v":"y","payload":1}'), (key, value)]
        assert results(format_, of, records) == results_alone(format_, of, records)
        assert "'x'" in results(format_, of, records)[0] or frame["payload"] is None
