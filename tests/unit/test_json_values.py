"""JSON as values of columns: each form that is read, each that is refused and with which code."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec.json import text as json_text
from schemas.errors import Code
from schemas.json.tokens import MAX_DEPTH, MAX_NAME, MAX_NUMBER, Fields, JsonError, Token
from schemas.json.values import plain_token, read_by, upstream_reader
from schemas.table import Column
from schemas.types import ColumnType


def column(kind: str) -> Column:
    return Column("c", ColumnType.parse(kind), nullable=True)


def read_object(data: bytes) -> Fields:
    return json_text.read_object(json_text.text_of(data))


def read_value(data: bytes) -> Token:
    return json_text.read_value(json_text.text_of(data))


def value(json: str, kind: str) -> Any:
    [(_, token)] = read_object(f'{{"c":{json}}}'.encode())
    return read_by(upstream_reader(column(kind), "refuse"), token, column(kind))


def plain_value(text: str, kind: str) -> Any:
    return read_by(upstream_reader(column(kind), "refuse"), plain_token(text, column(kind)), column(kind))


UTC = dt.UTC
LARGEST_SINGLE = 2.0**128 - 2.0**104


@pytest.mark.parametrize(
    ("kind", "json", "expected"),
    [
        ("boolean", "true", True),
        ("int", "-2147483648", -(2**31)),
        ("int", "-0", 0),
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("double", "5", 5.0),
        ("double", "-1.5E+3", -1500.0),
        ("double", '"Infinity"', math.inf),
        ("double", '"-Infinity"', -math.inf),
        ("float", "0.1", 0.10000000149011612),
        ("float", "1.00000017881393432617187499", 1.0000001192092896),
        ("float", "1.00000017881393432617187500", 1.0000002384185791),
        ("float", "9007199791611905", 9007200328482816.0),
        ("float", "3.4028235677973366e38", LARGEST_SINGLE),
        ("decimal(18,2)", "12.50", Decimal("12.50")),
        ("decimal(18,2)", '"12.5"', Decimal("12.50")),
        ("decimal(18,2)", "1E+3", Decimal("1000.00")),
        ("decimal(18,2)", "1.500000000000000000000000000000000000000000", Decimal("1.50")),
        ("decimal(38,0)", "99999999999999999999999999999999999999", Decimal("9" * 38)),
        ("decimal(5,2)", "-0.0", Decimal("0.00")),
        ("string", r'"\u00e9\ud83d\ude00\/"', "é😀/"),
        ("string", '""', ""),
        ("string", "123456789012345678901234567890", "123456789012345678901234567890"),
        ("string", "-0", "-0"),
            ("string", "1.50", "1.50"),
            ("string", "[1.50,-0.0,1E+3]", "[1.50,-0.0,1E+3]"),
        ("string", "false", "false"),
        ("string", r'{ "a" : [1, -0, null, "\u00e9\n\u0001\/😀"] }', r'{"a":[1,-0,null,"é\n\u0001/\uD83D\uDE00"]}'),
        ("string", "[]", "[]"),
        ("binary", '"AP8="', b"\x00\xff"),
        ("binary", '""', b""),
        ("date", '"0001-01-01"', dt.date.min),
        ("date", '"2024-02-29"', dt.date(2024, 2, 29)),
        ("timestamp", '"2026-01-31T12:00:00Z"', dt.datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("timestamp", '"2026-01-31T12:00:00.5-00:30"', dt.datetime(2026, 1, 31, 12, 30, 0, 500000, UTC)),
        ("timestamp", '"9999-12-31T23:59:59.999999+18:00"', dt.datetime(9999, 12, 31, 5, 59, 59, 999999, UTC)),
        *[(kind, "null", None) for kind in ("boolean", "int", "float", "decimal(1,0)", "string", "binary", "date")],
    ],
)  # fmt: skip
def test_a_form_of_the_type_is_its_value(kind: str, json: str, expected: object) -> None:
    found = value(json, kind)
    assert (type(found), str(found)) == (type(expected), str(expected))
    if isinstance(found, dt.datetime):
        assert found.utcoffset() == dt.timedelta()


def test_not_a_number_is_one() -> None:
    assert math.isnan(value('"NaN"', "float"))
    assert math.copysign(1, value("-0.0", "double")) == -1


@pytest.mark.parametrize(
    ("kind", "json"),
    [
        ("boolean", '"true"'),
        ("boolean", "1"),
        ("int", '"1"'),
        ("int", "1.0"),
        ("int", "1e3"),
        ("double", '"1.5"'),
        ("double", '"INF"'),
        ("double", "true"),
        ("decimal(18,2)", '"1,000"'),
        ("decimal(18,2)", '" 1"'),
        ("decimal(18,2)", '"+1"'),
        ("decimal(18,2)", '".5"'),
        ("decimal(18,2)", '"NaN"'),
        ("decimal(18,2)", '"\u0661"'),
        ("decimal(18,2)", "{}"),
        ("binary", '"QR=="'),
        ("binary", '"QQ"'),
        ("binary", '"Q Q=="'),
        ("binary", '"QUJ_"'),
        ("binary", '"é"'),
        ("binary", "1234"),
        ("date", '"2026-1-1"'),
        ("date", '"20260101"'),
        ("date", '"+2026-01-01"'),
        ("date", "20260101"),
        ("timestamp", '"2026-01-31T12:00:00"'),
        ("timestamp", '"2026-01-31 12:00:00Z"'),
        ("timestamp", '"2026-01-31T12:00Z"'),
        ("timestamp", '"2026-01-31T12:00:00.1234567890Z"'),
        ("timestamp", '"2026-01-31T12:00:00.Z"'),
        ("timestamp", '"+2026-01-31T12:00:00Z"'),
        ("timestamp", '"226-01-31T12:00:00Z"'),
        ("timestamp", '"2026-01-31T12:00:00+0100"'),
        ("timestamp", "1769860800"),
    ],
)
def test_another_form_is_malformed_and_the_column_is_named_without_the_value(kind: str, json: str) -> None:
    with pytest.raises(JsonError) as caught:
        value(json, kind)
    assert (caught.value.code, caught.value.column) == (Code.JSON_MALFORMED, "c")
    assert json.strip('"{}') not in str(caught.value).split() or not json.strip('"{}')


@pytest.mark.parametrize(
    ("kind", "json"),
    [
        ("int", "2147483648"),
        ("bigint", "-9223372036854775809"),
        ("double", "1e400"),
        ("double", "-" + "9" * 400),
        ("float", "3.5e38"),
        ("float", "3.4028235677973367e38"),
        ("decimal(18,2)", "1.005"),
        ("decimal(18,2)", "10000000000000000"),
        ("decimal(18,2)", '"1e-400"'),
        ("decimal(18,2)", "0e99"),
        ("decimal(18,2)", '"1e999999999999999999999"'),
        ("decimal(38,0)", "1" + "0" * 38),
        ("decimal(2,2)", "1"),
        ("date", '"2026-02-29"'),
        ("date", '"0000-01-01"'),
        ("timestamp", '"0001-01-01T00:00:00+00:01"'),
        ("timestamp", '"9999-12-31T23:59:59-01:00"'),
        ("timestamp", '"2026-01-31T24:00:00Z"'),
        *(
            ("timestamp", f'"{year}-01-31T12:00:00Z"')
            for year in ("-0043", "0000", "10000", "+10000", "-999999999")
        ),
        *(("date", f'"{year}-01-31"') for year in ("-0043", "-0001", "10000", "+10000", "+294276")),
        *(
            ("timestamp", f'"2026-01-31T12:00:00.{digits}Z"')
            for digits in ("1234561", "00000001", "000000009")
        ),
        ("timestamp", '"2026-01-31T12:00:00+18:01"'),
        ("timestamp", '"2026-01-31T12:00:00+01:60"'),
    ],
)
def test_what_does_not_fit_is_out_of_range(kind: str, json: str) -> None:
    with pytest.raises(JsonError) as caught:
        value(json, kind)
    assert (caught.value.code, caught.value.column) == (Code.VALUE_OUT_OF_RANGE, "c")


@pytest.mark.parametrize("json", [r'"\ud800"', r'"\ude00\ud83d"', r'"a\ud83d"'])
def test_half_a_surrogate_pair_is_no_text(json: str) -> None:
    with pytest.raises(JsonError) as caught:
        value(json, "string")
    assert (caught.value.code, caught.value.column) == (Code.BAD_ENCODING, "c")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "null",
        "5",
        '"a"',
        "[]",
        "{",
        "}",
        '{"c":1',
        '{"c":1}}',
        '{"c":1} x',
        '{"c":1}{"c":2}',
        '{"c":1},{}',
        '{"c":1,}',
        '{,"c":1}',
        '{"c"}',
        '{"c":}',
        '{"c" 1}',
        "{c:1}",
        "{'c':1}",
        '{"c":01}',
        '{"c":1.}',
        '{"c":.5}',
        '{"c":+5}',
        '{"c":1x}',
        '{"c":NaN}',
        '{"c":-Infinity}',
        '{"c":True}',
        '{"c":"\t"}',
        '{"c":"\\x"}',
        '{"c":"\\u12"}',
        '{"c":"}',
        '{"c":1/**/}',
        '\ufeff{"c":1}',
        '{"c":\xa01}',
        '{"c":[1,]}',
        '{"c":[,1]}',
        '{"c":[1 2]}',
        '{"c":[1}',
        '{"c":{"a":1]}',
        '{"c":{"a"}}',
        '{"c":{"a":}}',
        '{"c":{"a":1,}}',
        '{"c":{1:2}}',
        '{"c":[}',
    ],
)
def test_what_is_no_object_is_malformed(text: str) -> None:
    with pytest.raises(JsonError) as caught:
        read_object(text.encode())
    assert (caught.value.code, caught.value.column) == (Code.JSON_MALFORMED, None)


def nested(depth: int) -> bytes:
    return b'{"x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        (nested(MAX_DEPTH), nested(MAX_DEPTH + 1)),
        (b'{"%s":1}' % (b"x" * MAX_NAME), b'{"%s":1}' % (b"x" * (MAX_NAME + 1))),
        (b'{"x":%s}' % (b"1" * MAX_NUMBER), b'{"x":%s}' % (b"1" * (MAX_NUMBER + 1))),
    ],
    ids=["depth", "name", "number"],
)
def test_limits_hold_in_columns_that_are_not_declared_too(allowed: bytes, refused: bytes) -> None:
    read_object(allowed)
    with pytest.raises(JsonError):
        read_object(refused)


def test_bytes_that_are_not_utf_8_are_named_so() -> None:
    for data in (b'{"c":"\xff"}', b'{"c":"\xed\xa0\x80"}', b'{"c":"\xc0\x80"}'):
        with pytest.raises(JsonError) as caught:
            read_object(data)
        assert caught.value.code is Code.BAD_ENCODING


def test_spaces_are_skipped_and_a_name_may_come_twice() -> None:
    fields = read_object(b' \t\r\n{ "a" :1 , "a": [ ] }\n')
    assert [(name, token.text) for name, token in fields] == [("a", "1"), ("a", "[]")]


@pytest.mark.parametrize("text", ["5,6", "5]", "[5", ""])
def test_a_value_is_one_alone(text: str) -> None:
    assert read_value(b" 5 ").text == "5"
    assert read_value(b" [ 1, {} ]").text == "[1,{}]"
    with pytest.raises(JsonError):
        read_value(text.encode())


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("boolean", "true", True),
        ("int", "-7", -7),
        ("decimal(9,2)", "1.5", Decimal("1.50")),
        ("string", '"a"', '"a"'),
        ("string", "1.50", "1.50"),
        ("date", "2026-01-31", dt.date(2026, 1, 31)),
    ],
)
def test_a_text_without_quotes_is_read_by_the_columns_type(kind: str, text: str, expected: object) -> None:
    assert plain_value(text, kind) == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [("boolean", "TRUE"), ("int", "07"), ("int", "+7"), ("int", " 7"), ("int", "7.0"), ("int", "null"), ("date", "")],
)  # fmt: skip
def test_a_text_that_is_not_of_the_columns_type_is_malformed(kind: str, text: str) -> None:
    with pytest.raises(JsonError) as caught:
        plain_value(text, kind)
    assert caught.value.code is Code.JSON_MALFORMED


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_an_object_or_an_error(data: bytes) -> None:
    for read in (read_object, read_value):
        try:
            read(data)
        except JsonError:
            continue
