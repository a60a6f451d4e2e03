"""CSV of PostgreSQL as columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from schemas.errors import Code
from schemas.json.debezium_values import TimeMode
from schemas.table import Column
from schemas.types import ColumnType
from streaming.postgres.columns import DatabaseType, EventForms, Unreadable, from_hex, reading_of, rows_of


def columns(*types: tuple[str, str]) -> tuple[list[Column], dict[str, DatabaseType]]:
    """Pairs of a type of the database and one of a declaration, as columns a, b, …; the first is never null."""
    names = "abcdefgh"[: len(types)]
    declared = [
        Column(name, ColumnType.parse(kind), nullable=name != "a")
        for name, (_, kind) in zip(names, types, strict=True)
    ]
    return declared, {name: DatabaseType(found) for name, (found, _) in zip(names, types, strict=True)}


def rows(content: str, *types: tuple[str, str]) -> list[tuple[object, ...]]:
    declared, found = columns(*types)
    readings = {}
    for column in declared:
        reading = reading_of(found[column.name], column.type, EventForms("microseconds"))
        assert reading is not None
        readings[column.name] = reading
    table = rows_of(content.encode(), readings, declared)
    assert table.schema == pa.schema([(column.name, column.type.arrow) for column in declared])
    table.validate(full=True)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_a_null_is_nothing_and_an_empty_text_is_two_quotes() -> None:
    content = '1,""\n2,\n3,"a ""b"", c\n d"\n4,"\\."\n5,NULL\n6, x \n'
    texts = ["", None, 'a "b", c\n d', "\\.", "NULL", " x "]
    assert rows(content, ("int4", "int"), ("text", "string")) == list(enumerate(texts, 1))


def test_a_line_of_one_empty_text_is_a_row() -> None:
    assert rows('""\nb\n', ("text", "string")) == [("",), ("b",)]


def test_every_form_of_a_value() -> None:
    types = [
        ("int8", "bigint"),
        ("bool", "boolean"),
        ("float4", "float"),
        ("float8", "double"),
        ("numeric", "decimal(38,3)"),
        ("bytea", "binary"),
        ("timestamptz", "timestamp"),
        ("timestamp", "timestamp"),
    ]
    content = (
        "9223372036854775807,t,0.1,-Infinity,-12345678901234567890.123,00ff0a,"
        "0001-01-01 00:00:00+00,9999-12-31 23:59:59.999999\n"
        "-1,f,16777216,1e-300,0,,1969-12-31 23:59:59.5+00,1970-01-01 00:00:00.000001\n"
        "0,,,,,,,\n"
    )
    found = rows(content, *types)
    utc = dt.UTC
    assert found == [
        (
            2**63 - 1,
            True,
            pytest.approx(0.1),
            float("-inf"),
            Decimal("-12345678901234567890.123"),
            b"\x00\xff\n",
            dt.datetime(1, 1, 1, tzinfo=utc),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, utc),
        ),
        (
            -1,
            False,
            16_777_216.0,
            1e-300,
            Decimal("0.000"),
            None,
            dt.datetime(1969, 12, 31, 23, 59, 59, 500_000, utc),
            dt.datetime(1970, 1, 1, 0, 0, 0, 1, utc),
        ),
        (0, None, None, None, None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (("numeric", "decimal(5,2)"), "1000"),
        (("numeric", "decimal(5,2)"), "0.001"),
        (("numeric", "decimal(5,2)"), "Infinity"),
        (("date", "date"), "infinity"),
        (("date", "date"), "0001-01-01 BC"),
        (("date", "date"), "10000-01-01"),
        (("timestamp", "timestamp"), "-infinity"),
        (("timestamptz", "timestamp"), "infinity"),
    ],
)
def test_a_value_that_does_not_fit_names_its_column(type_: tuple[str, str], text: str) -> None:
    with pytest.raises(Unreadable) as refused:
        rows(f"1,x,\n2,y,{text}\n", ("int4", "int"), ("text", "string"), type_)
    assert (refused.value.column, refused.value.code) == ("c", Code.VALUE_OUT_OF_RANGE)


def test_a_null_in_the_key_is_no_key() -> None:
    with pytest.raises(Unreadable) as refused:
        rows("1,x\n,y\n", ("numeric", "decimal(5,2)"), ("text", "string"))
    assert (refused.value.column, refused.value.code) == ("a", Code.PK_NULL)


def test_bytes_that_are_no_text_name_their_column() -> None:
    declared, found = columns(("int4", "int"), ("text", "string"))
    readings = {column.name: reading_of(found[column.name], column.type, EventForms()) for column in declared}
    with pytest.raises(Unreadable) as refused:
        rows_of(b"1,\xff\xfe\n", {name: each for name, each in readings.items() if each}, declared)
    assert (refused.value.column, refused.value.code) == ("b", Code.BAD_ENCODING)


def test_lists_are_written_as_events_have_them() -> None:
    types = ("int4", "int"), ("_text", "string")
    content = '1,"[""a"",null,""\\u001f""]"\n2,"[""\U0001f642"",""ü""]"\n3,\n4,"[1,[true]]"\n'
    assert [row[1] for row in rows(content, *types)] == [
        '["a",null,"\\u001F"]',
        '["\\uD83D\\uDE42","ü"]',
        None,
        "[1,[true]]",
    ]


@pytest.mark.parametrize("part", [slice(0, 5), slice(1, 5), slice(2, 3), slice(4, 5), slice(0, 0)])
def test_bytes_of_any_part_of_a_column(part: slice) -> None:
    values = [b"", b"\x00\x01", None, b"\xff", b"abc"]
    texts = pa.array([None if value is None else value.hex() for value in values])
    found = from_hex(texts[part])
    found.validate(full=True)
    assert found.to_pylist() == values[part]


@pytest.mark.parametrize(
    ("found", "declared", "time"),
    [
        ("int8", "int", "microseconds"),
        ("float4", "double", "microseconds"),
        ("numeric", "string", "microseconds"),
        ("interval", "string", "microseconds"),
        ("_float8", "string", "microseconds"),
        ("time", "bigint", None),
        ("time", "bigint", "isostring"),
        ("timestamp", "timestamp", None),
        ("bytea", "string", "microseconds"),
    ],
)
def test_types_whose_events_are_other_values_are_not_read(
    found: str, declared: str, time: TimeMode | None
) -> None:
    assert reading_of(DatabaseType(found), ColumnType.parse(declared), EventForms(time)) is None


@pytest.mark.parametrize(
    ("modifier", "precision"), [(-1, None), ((18 << 16 | 2) + 4, (18, 2)), ((18 << 16 | 0x7FF) + 4, (18, -1))]
)
def test_digits_of_a_numeric(modifier: int, precision: tuple[int, int] | None) -> None:
    """Of numeric, numeric(18,2) and numeric(18,-1)."""
    assert DatabaseType("numeric", modifier=modifier).precision == precision


@pytest.mark.parametrize(
    ("modifier", "declared", "tells_scale", "expression"),
    [
        (-1, "decimal(38,10)", False, "trim_scale(nullif({}, 'NaN'))"),
        ((18 << 16 | 2) + 4, "decimal(18,2)", False, "nullif({}, 'NaN')"),
        ((18 << 16 | 2) + 4, "decimal(20,5)", False, None),
        ((18 << 16 | 2) + 4, "decimal(20,5)", True, "nullif({}, 'NaN')"),
        ((18 << 16 | 2) + 4, "decimal(18,1)", True, "trim_scale(nullif({}, 'NaN'))"),
        ((6 << 16 | 0x7FE) + 4, "decimal(8,0)", False, None),
        ((6 << 16 | 0x7FE) + 4, "decimal(8,0)", True, None),
    ],
)
def test_a_numeric_is_read_at_the_scale_that_its_events_are_read_at(
    modifier: int, declared: str, tells_scale: bool, expression: str | None
) -> None:
    found = DatabaseType("numeric", modifier=modifier)
    reading = reading_of(found, ColumnType.parse(declared), EventForms("microseconds", tells_scale))
    assert (reading and reading.expression) == expression
