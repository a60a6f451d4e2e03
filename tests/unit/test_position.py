from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.position import Key, order_key, position_from_text, position_to_text
from schemas.table import Column
from schemas.types import ColumnType, Value
from tests.kit.avro_codec import canonical
from tests.kit.values import key_column_lists, rows_of


def key_column(kind: str) -> Column:
    return Column("k", ColumnType.parse(kind), nullable=False)


TEXTS = [
    ("boolean", True, "true"),
    ("int", -7, "-7"),
    ("bigint", 2**63 - 1, "9223372036854775807"),
    ("string", 'é"\\\n', '"é\\"\\\\\\n"'),
    ("decimal(18,2)", Decimal("-1.50"), '"-1.50"'),
    ("decimal(38,0)", Decimal("9" * 38), f'"{"9" * 38}"'),
    ("decimal(18,9)", Decimal("0E-9"), '"0.000000000"'),
    ("date", dt.date(2026, 1, 31), '"2026-01-31"'),
    ("date", dt.date(1, 1, 1), '"0001-01-01"'),
    ("timestamp", dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), '"2026-01-31T12:00:00.000000Z"'),
    ("timestamp", dt.datetime(7, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC), '"0007-01-01T00:00:00.000001Z"'),
]


@pytest.mark.parametrize(("kind", "value", "text"), TEXTS)
def test_values_have_the_texts_of_the_contract(kind: str, value: Value, text: str) -> None:
    assert position_to_text((value,)) == f"[{text}]"
    assert position_from_text(f"[{text}]", [key_column(kind)]) == (value,)


def test_a_composite_key_is_one_array_in_key_order() -> None:
    columns = [key_column("string"), key_column("bigint")]
    assert position_to_text(("EU", 12)) == '["EU",12]'
    assert position_from_text('["EU", 12]', columns) == ("EU", 12)


@given(key_column_lists().flatmap(lambda columns: st.tuples(st.just(columns), rows_of(columns))))
def test_a_position_reads_back_as_the_same_key(drawn: tuple[tuple[Column, ...], Key]) -> None:
    columns, key = drawn
    key = tuple(canonical(value, column) for value, column in zip(key, columns, strict=True))
    read = position_from_text(position_to_text(key), columns)
    assert read == key
    assert [type(value) for value in read] == [type(value) for value in key]
    assert position_to_text(read) == position_to_text(key)


def test_a_timestamp_of_another_zone_has_the_text_of_its_instant() -> None:
    east = dt.datetime(2026, 1, 31, 14, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert position_to_text((east,)) == '["2026-01-31T12:00:00.000000Z"]'


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", ""),
        ("int", "7"),
        ("int", "[]"),
        ("int", "[1,2]"),
        ("int", "[null]"),
        ("int", '["1"]'),
        ("int", "[true]"),
        ("int", "[1.0]"),
        ("int", "[NaN]"),
        ("int", "[1"),
        pytest.param("int", "[" * 100_000, id="int-deep"),
        pytest.param("bigint", f"[{'9' * 5000}]", id="bigint-long"),
        ("boolean", "[1]"),
        ("string", "[1]"),
        ("string", '["\\ud800"]'),
        ("decimal(18,2)", "[1.5]"),
        ("decimal(18,2)", '["1e2"]'),
        ("decimal(18,2)", '["x"]'),
        ("decimal(18,2)", '["NaN"]'),
        ("decimal(18,2)", '["Infinity"]'),
        ("decimal(18,2)", '[" 1.50"]'),
        ("date", '["20260131"]'),
        ("date", '["2026-W05-6"]'),
        ("date", '["2026-02-30"]'),
        ("timestamp", '["2026-01-31T12:00:00Z"]'),
        ("timestamp", '["2026-01-31T12:00:00.000000"]'),
        ("timestamp", '["2026-01-31T12:00:00.000000+00:00"]'),
        ("timestamp", '["2026-01-31 12:00:00.000000Z"]'),
    ],
)
def test_a_text_that_is_no_position_of_the_key_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        position_from_text(text, [key_column(kind)])
    assert isinstance(caught.value, ValueError)


@given(st.lists(st.text(max_size=4), min_size=2, max_size=2))
def test_strings_are_ordered_by_their_utf8_bytes(texts: list[str]) -> None:
    left, right = texts
    assert (order_key((left, 1)) < order_key((right, 1))) == (left.encode() < right.encode())


def test_a_lone_surrogate_has_no_place_in_the_order() -> None:
    with pytest.raises(UnicodeEncodeError):
        order_key(("\ud800",))
