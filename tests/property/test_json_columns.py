"""Columns become the JSON that the checker expects, whatever the types, nulls, slices and garbage behind nulls."""

from __future__ import annotations

import datetime as dt
import json
import math
from base64 import b64encode
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.errors import Code, InputError
from schemas.json import pieces
from schemas.json.columnar import Encoding, encode_objects
from schemas.json.text_columns import base64_values
from schemas.json.values import from_base64
from schemas.table import Column
from schemas.types import ColumnType, Value
from streaming.reading.records.written import RowText
from tests.kit.values import column_lists
from tests.property.test_columnar_twin import Batch, assert_plain, batches_with_columns

every_encoding = pytest.mark.parametrize("encoding", ["json", "json-schema"])


def texts_of(kind: str, values: Sequence[Value], encoding: Encoding = "json") -> list[str]:
    """Of a column alone; each is what the checker expects."""
    column = Column("c", ColumnType.parse(kind), nullable=True)
    encoded = encode_objects([column], [pa.array(values, column.type.arrow)], encoding)
    assert_plain(encoded)
    texts = [bytes(each).decode() for each in encoded.to_pylist()]
    assert texts == [RowText([column], connect=encoding == "json-schema")((value,)) for value in values]
    return [each.removeprefix('{"c":').removesuffix("}") for each in texts]


@every_encoding
@given(drawn=batches_with_columns(column_lists()))
def test_objects_are_those_that_the_checker_expects(
    encoding: Encoding, drawn: tuple[tuple[Column, ...], Batch]
) -> None:
    columns, batch = drawn
    encoded = encode_objects(columns, batch.arrays, encoding, b"<", b">")
    assert_plain(encoded)
    texts = [RowText(columns, connect=encoding == "json-schema")(row) for row in batch.rows]
    assert encoded.to_pylist() == [f"<{text}>".encode() for text in texts]
    for each in encoded.to_pylist():
        read = json.loads(each[1:-1], parse_constant=lambda text: pytest.fail(text))
        assert list(read) == [column.name for column in columns]


@every_encoding
@given(drawn=batches_with_columns(column_lists()))
def test_long_constants_change_nothing(encoding: Encoding, drawn: tuple[tuple[Column, ...], Batch]) -> None:
    columns, batch = drawn
    long = b"x" * (pieces._LONG + 1)
    short, wide = (encode_objects(columns, batch.arrays, encoding, before) for before in (b"", long))
    assert_plain(wide)
    assert wide.to_pylist() == [long + each for each in short.to_pylist()]


@given(st.lists(st.floats(), min_size=1, max_size=50))
def test_doubles_read_back_bit_for_bit(values: list[float]) -> None:
    for value, text in zip(values, texts_of("double", values), strict=True):
        assert same(float(text.strip('"')), value)


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_floats_read_back_bit_for_bit(values: list[float]) -> None:
    for value, text in zip(values, texts_of("float", values), strict=True):
        assert same(float(np.float32(text.strip('"'))), value)


def same(left: float, right: float) -> bool:
    return (math.isnan(left) and math.isnan(right)) or (
        left == right and math.copysign(1, left) == math.copysign(1, right)
    )


def test_numbers_are_as_short_as_they_can_be() -> None:
    doubles = [
        0.0,
        -0.0,
        1.0,
        -2.5,
        0.1,
        1e10,
        1e9,
        123456789012345678.0,
        1e-6,
        1e-7,
        5e-324,
        1.7976931348623157e308,
    ]
    assert texts_of("double", [*doubles, math.nan, math.inf, -math.inf, 2.0**-44, None]) == [
        *("0", "-0.0", "1", "-2.5", "0.1", "1e+10", "1000000000", "1.2345678901234568e+17", "0.000001"),
        *("1e-7", "5e-324", "1.7976931348623157e+308", '"NaN"', '"Infinity"', '"-Infinity"'),
        *("5.684341886080802e-14", "null"),
    ]
    singles = [0.10000000149011612, 16777216.0, 3.4028234663852886e38, 1.401298464324817e-45]
    assert texts_of("float", singles) == ["0.1", "16777216", "3.4028235e+38", "1e-45"]


def test_every_power_of_two_is_the_same_to_both() -> None:
    texts_of(
        "double",
        [sign * 2.0**power * odd for power in range(-1074, 1023) for sign in (1, -1) for odd in (1, 1.5)],
    )
    texts_of("float", [sign * 2.0**power for power in range(-149, 128) for sign in (1, -1)])


def test_decimals_have_all_digits_of_their_scale_and_never_an_exponent() -> None:
    cents = [Decimal(each) for each in ("0.00", "-0.01", "0.05", "-1.00", "12.34", "-9999999999999999.99")]
    assert texts_of("decimal(18,2)", [*cents, None]) == [
        *('"0.00"', '"-0.01"', '"0.05"', '"-1.00"', '"12.34"', '"-9999999999999999.99"', "null")
    ]
    wide = [
        Decimal("0." + "0" * 19 + "1"),
        Decimal("-0." + "0" * 19 + "1"),
        Decimal("-" + "9" * 18 + "." + "9" * 20),
    ]
    assert texts_of("decimal(38,20)", wide) == [f'"{each:f}"' for each in wide]
    assert texts_of("decimal(18,18)", [Decimal("-0." + "0" * 17 + "1")]) == ['"-0.000000000000000001"']


def test_decimals_of_connect_take_as_few_bytes_as_java_writes() -> None:
    numbers = [0, 1, -1, 127, 128, -128, -129, 255, 32767, 32768, -32768, -32769, 10**17, -(10**17)]
    numbers += [sign * 2**bit + step for bit in range(8, 59) for sign in (1, -1) for step in (-1, 0)]
    found = [Decimal(number) for number in numbers if abs(number) < 10**18]
    narrow = texts_of("decimal(18,0)", found, "json-schema")
    assert narrow[:7] == ['"AA=="', '"AQ=="', '"/w=="', '"fw=="', '"AIA="', '"gA=="', '"/38="']
    assert texts_of("decimal(38,0)", found, "json-schema") == narrow
    few = texts_of("decimal(18,0)", [Decimal(300), None], "json-schema")
    assert few == ['"ASw="', "null"]


def test_days_and_instants_of_all_years() -> None:
    days = [dt.date.fromordinal(day) for day in (*range(1, 3_652_059, 97), 3_652_059)]
    days += [
        dt.date(year, *day)
        for year in (1, 4, 100, 1600, 1900, 1969, 1970, 2000, 9996)
        for day in ((1, 1), (2, 28), (3, 1), (12, 31))
    ]
    assert texts_of("date", days)[:2] == ['"0001-01-01"', '"0001-04-08"']
    at = [dt.datetime.combine(day, dt.time(23, 59, 59, 999_999), dt.UTC) for day in days]
    assert texts_of("timestamp", at)[0] == '"0001-01-01T23:59:59.999999Z"'
    second = dt.timedelta(seconds=1)
    texts_of(
        "timestamp", [dt.datetime(1969, 12, 31, tzinfo=dt.UTC) + second * n for n in range(0, 200_000, 7)]
    )
    assert texts_of("timestamp", [dt.datetime(1969, 12, 31, 23, 59, 59, 1, dt.UTC)], "json-schema") == [
        "-999999"
    ]


def test_what_json_does_not_let_stand_in_a_text_is_escaped_and_nothing_else() -> None:
    controls = "".join(map(chr, range(0x20)))
    found = ["", "plain", 'a"b', "\\", '\\"', controls, "é😀\u2028\x7f", None, "", 'x"', "last"]
    assert texts_of("string", found)[2:7] == [
        *(r'"a\"b"', r'"\\"', r'"\\\""', json.dumps(controls), '"é😀\u2028\x7f"')
    ]


@given(st.lists(st.none() | st.text(st.sampled_from('ab"\\\n\x00\x1fé'), max_size=6), max_size=12))
def test_texts_with_much_to_escape_are_the_same_to_both(values: list[str | None]) -> None:
    texts_of("string", values)


@given(st.lists(st.none() | st.binary(max_size=12), max_size=12))
def test_base64_of_all_lengths(values: list[bytes | None]) -> None:
    texts_of("binary", values)


def read_alone(text: str | None) -> bytes | Literal["other"] | None:
    try:
        return None if text is None else from_base64(text)
    except ValueError:
        return "other"


BASE64 = st.binary(max_size=7).map(lambda data: b64encode(data).decode())
NEARLY = st.text(st.sampled_from("AQgw/+=-_ é\n"), max_size=9)


@given(st.lists(st.none() | BASE64 | NEARLY, max_size=12), st.integers(0, 4))
@example(["AA==", "AB==", "AAA=", "AAB=", "====", "A===", "AA=A", "=AAA", "", None, "AAAA"], 0)
@example(["AAA", "AAAA"], 0)
@example([None, "", None], 1)
def test_base64_is_read_as_value_by_value(texts: list[str | None], start: int) -> None:
    values, others = base64_values(pa.array(texts, pa.string()).slice(start))
    found = [
        "other" if other else value for value, other in zip(values.to_pylist(), others.tolist(), strict=True)
    ]
    assert found == [read_alone(text) for text in texts[start:]]


def test_names_of_columns_are_constants_between_them() -> None:
    column = Column("c", ColumnType.parse("int"), nullable=False)
    assert encode_objects([column, column], [pa.array([7, -8], pa.int32())] * 2, "json").to_pylist() == [
        b'{"c":7,"c":7}',
        b'{"c":-8,"c":-8}',
    ]


def test_arrays_that_are_not_the_columns_are_refused() -> None:
    column = Column("c", ColumnType.parse("int"), nullable=False)
    for array, refused in (
        (pa.array([1]), TypeError),
        (pa.chunked_array([pa.array([1], pa.int32())]), TypeError),
    ):
        with pytest.raises(refused, match="column c is"):
            encode_objects([column], [array], "json")
    with pytest.raises(ValueError, match="rows"):
        encode_objects([column] * 2, [pa.array([1, 2], pa.int32()), pa.array([1], pa.int32())], "json")
    with pytest.raises(ValueError, match=r"shorter|longer"):
        encode_objects([column] * 2, [pa.array([1], pa.int32())], "json")
    with pytest.raises(InputError) as caught:
        encode_objects([column], [pa.array([1, None], pa.int32())], "json")
    assert caught.value.code is Code.PK_NULL


@pytest.mark.parametrize(("kind", "numbers"), [("date", pa.int32()), ("timestamp", pa.int64())])
def test_years_of_five_digits_are_refused(kind: str, numbers: pa.DataType) -> None:
    column = Column("c", ColumnType.parse(kind), nullable=True)
    beyond = 2_932_897 if kind == "date" else 253_402_300_800_000_000
    array = pa.array([0, beyond], numbers).view(column.type.arrow)
    with pytest.raises(ValueError, match="years 1 to 9999"):
        encode_objects([column], [array], "json")


def test_more_than_an_array_of_32_bit_offsets_holds_is_refused() -> None:
    column = Column("c", ColumnType.parse("string"), nullable=True)
    array = pa.array(["x" * 1_000_000]).take(pa.array([0] * 40))
    for before in (b"", b"x" * 60_000_000):
        with pytest.raises(pa.ArrowException):
            encode_objects([column] * 60, [array] * 60, "json", before)
