"""Schemas as registries hold them, by which rows are read: what says nothing about bytes is passed over."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.errors import Code, InputError
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema, declare
from tests.kit.avro_records import encoded
from tests.kit.two_ways import NotColumnarError, fast, one_by_one

UPSERT = UpsertFormat(encoding="avro-registry", key="avro")
NOTE = declare({"name": "t", "columns": {"id": "bigint", "note": "string"}, "primary_key": ["id"]})
KEY = frame(1) + encoded("long", 7)
_CUT_SHORT = Code.AVRO_TRUNCATED, Code.CHANGE_MALFORMED
X = b"\x02x"
"""A text of one letter."""


def format_for(*texts: str, references: Sequence[str] = ()) -> UpsertFormat:
    """Schema 1 is that of keys, the last text is schema 9."""
    schemas = WriterSchema(1, '"long"'), WriterSchema(9, texts[-1], references=tuple(references))
    return UPSERT.with_schemas(KnownSchemas(schemas))


def read(format_: UpsertFormat, payload: bytes, table: TableSchema = NOTE) -> Any:
    """The last column of a row, the same by both readers, or an error that both have."""
    value = frame(9) + payload
    try:
        found = fast(format_, table, [(KEY, value), (KEY, value)])
    except NotColumnarError:
        found = None
    try:
        [change] = [each.change for each in one_by_one(format_, table, [(KEY, value)])]
    except InputError:
        assert found is None
        raise
    assert change is not None
    assert change.after is not None
    if found is not None:
        assert [each.change for each in found] == [change, change]
    return change.after[-1]


def record(*fields: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": "Row", "fields": fields, **more})


NOTE_FIELD = {"name": "note", "type": "string"}

UNREAD: dict[str, tuple[dict[str, Any], bytes]] = {
    "a default of another type": ({"type": "string", "default": None}, X),
    "a default that no branch has": ({"type": ["int", "null"], "default": "null"}, b"\x02"),
    "a default of a boolean that is a text": ({"type": "boolean", "default": "false"}, b"\x01"),
    "a default of a long that is a text": ({"type": "long", "default": ""}, b"\x02"),
    "a default of a list that is null": (
        {"type": {"type": "array", "items": "int"}, "default": None},
        b"\x02\x02\x00",
    ),
    "aliases and an order of another type": ({"type": "int", "aliases": 7, "order": "up"}, b"\x02"),
    "a scale above the precision": (
        {"type": {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 127}},
        b"\x02\x07",
    ),
    "a scale of text": ({"type": {"type": "bytes", "logicalType": "decimal", "scale": "2"}}, b"\x02\x07"),
    "a scale below zero": (
        {"type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": -2}},
        b"\x02\x07",
    ),
    "no digits": ({"type": {"type": "bytes", "logicalType": "decimal", "precision": 0}}, b"\x02\x07"),
    "a fixed with too few bytes for its digits": (
        {"type": {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 9}},
        b"\x07",
    ),
    "a logical type of another type": ({"type": {"type": "string", "logicalType": "date"}}, X),
    "a logical type that is no text": ({"type": {"type": "int", "logicalType": {"date": 1}}}, b"\x02"),
    "symbols with dashes": (
        {"type": {"type": "enum", "name": "E", "symbols": ["not-paid", "1st", "1st"], "default": "paid"}},
        b"\x02",
    ),
    "names with dashes": (
        {"type": {"type": "record", "name": "no-name", "namespace": "a-b.c", "fields": []}},
        b"",
    ),
    "a union within a union": ({"type": ["null", ["int", "string"]]}, b"\x02\x02" + X),
    "one type in two branches": ({"type": ["null", "string", "string"]}, b"\x04" + X),
    "properties of others": ({"type": {"type": "int", "connect.name": ["x"]}, "doc": 7}, b"\x02"),
    "a list of nothing": ({"type": {"type": "array", "items": "null"}}, b"\x06\x00"),
}
"""Fields that are not read, each with bytes of it."""


@pytest.mark.parametrize(("extra", "data"), UNREAD.values(), ids=UNREAD)
def test_what_a_schema_says_of_fields_that_are_not_read_is_no_matter(
    extra: dict[str, Any], data: bytes
) -> None:
    text = record({"name": "extra", **extra}, NOTE_FIELD)
    assert read(format_for(text), data + X) == "x"
    text = record({**NOTE_FIELD, "default": 7}, {"name": "extra", **extra})
    assert read(format_for(text), X + data) == "x"
    with pytest.raises(InputError) as caught:
        read(format_for(text), (X + data)[:-1])
    assert caught.value.code in _CUT_SHORT


def test_a_type_that_is_defined_twice_is_the_last_one_before_its_name() -> None:
    """Schemas as Java writes them, in which one name has two definitions."""
    first = {"type": "record", "name": "D", "fields": [{"name": "a", "type": "int"}]}
    second = {**first, "fields": [{"name": "a", "type": "string", "default": 7}]}
    text = record(
        {"name": "one", "type": first},
        {"name": "two", "type": ["null", second]},
        {"name": "three", "type": "D"},
        NOTE_FIELD,
    )
    assert read(format_for(text), b"\x0e" + b"\x02" + X + X + X) == "x"


TREE = {
    "type": "record",
    "name": "Tree",
    "namespace": "shop",
    "fields": [
        {"name": "left", "type": ["null", "Tree"]},
        {"name": "all", "type": {"type": "array", "items": "shop.Tree"}},
    ],
}
LEAF = b"\x00\x00"


def branch(left: bytes | None, *items: bytes) -> bytes:
    listed = bytes([2 * len(items)]) + b"".join(items) + b"\x00" if items else b"\x00"
    return (b"\x00" if left is None else b"\x02" + left) + listed


@pytest.mark.parametrize(
    "tree", [LEAF, branch(LEAF), branch(branch(LEAF, LEAF, branch(None, LEAF)), LEAF)], ids=len
)
def test_a_field_that_contains_itself_is_passed_over(tree: bytes) -> None:
    text = record(
        {"name": "tree", "type": TREE}, {"name": "again", "type": ["null", "shop.Tree"]}, NOTE_FIELD
    )
    assert read(format_for(text), tree + b"\x02" + tree + X) == "x"
    own = record({"name": "next", "type": ["null", "Row"]}, NOTE_FIELD)
    assert read(format_for(own), b"\x02\x02\x00" + X + X + b"\x02y") == "y"


def test_what_is_too_deep_or_never_ends_is_refused_by_its_own_code() -> None:
    deep = LEAF
    for _ in range(80):
        deep = branch(deep)
    format_ = format_for(record({"name": "tree", "type": TREE}, NOTE_FIELD))
    assert read(format_, deep + X) == "x"
    for _ in range(200_000 // len(branch(b""))):
        deep = b"\x02" + deep
    itself = format_for(record({"name": "self", "type": "Row"}, NOTE_FIELD))
    nothing = {"type": "array", "items": {"type": "record", "name": "N", "fields": []}}
    endless = format_for(record({"name": "extra", "type": nothing}, NOTE_FIELD))
    for each, payload in ((format_, deep), (itself, X), (endless, b"\xfe\xff\xff\xff\xff\x7f\x00" + X)):
        with pytest.raises(InputError) as caught:
            read(each, payload)
        assert caught.value.code is Code.AVRO_LIMIT


def test_a_schema_of_any_size_is_read_in_the_time_of_its_text() -> None:
    """Eight fields of eight fields and so on, of a record that has no bytes, and of one that has some."""
    for leaf, payload in (("null", X), ("int", None)):
        texts = [json.dumps({"type": "record", "name": "R0", "fields": [{"name": "x", "type": leaf}]})]
        for number in range(1, 30):
            fields = [{"name": f"f{each}", "type": f"R{number - 1}"} for each in range(8)]
            texts.append(json.dumps({"type": "record", "name": f"R{number}", "fields": fields}))
        text = record({"name": "huge", "type": "R29"}, NOTE_FIELD)
        format_ = format_for(text, references=texts)
        if payload is not None:
            assert read(format_, payload) == "x"
            continue
        with pytest.raises(InputError) as caught:
            read(format_, b"\x00" * 100)
        assert caught.value.code in _CUT_SHORT


def of_column(kind: str, field: Any) -> str | None:
    """Why a field can't be the column; None if it can."""
    table = declare({"name": "t", "columns": {"id": "bigint", "c": kind}, "primary_key": ["id"]})
    schema = WriterSchema(9, record({"name": "c", "type": field}))
    return UPSERT.incompatibility_of_schema("value", schema, table)


def decimal(avro: str = "bytes", **more: Any) -> dict[str, Any]:
    return {"type": avro, "logicalType": "decimal", **more}


CONNECT_DECIMAL = {"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal"}

NOT_UNDERSTOOD: list[tuple[str, Any]] = [
    ("decimal(38,4)", decimal(precision=64, scale=127)),
    ("binary", decimal(precision=64, scale=127)),
    ("decimal(38,4)", decimal(precision=5, scale="2")),
    ("decimal(38,4)", decimal(precision=5, scale=True)),
    ("decimal(38,4)", decimal(precision="5")),
    ("decimal(38,4)", decimal(precision=0)),
    ("decimal(38,4)", decimal("fixed", name="F", size=1, precision=9)),
    ("bigint", decimal("long", precision=9, scale=2)),
    ("string", decimal("string", precision=9, scale=2)),
    ("bigint", {"type": "long", "logicalType": "date"}),
    ("int", {"type": "int", "logicalType": "timestamp-millis"}),
    ("int", {"type": "int", "logicalType": {"date": 1}}),
    (
        "timestamp",
        {
            "type": "long",
            "logicalType": "timestamp-millis",
            "connect.name": "io.debezium.time.MicroTimestamp",
        },
    ),
    ("bigint", {"type": "long", "connect.name": "io.debezium.time.Date"}),
    ("decimal(38,4)", CONNECT_DECIMAL),
    ("binary", CONNECT_DECIMAL),
    ("decimal(38,4)", {**CONNECT_DECIMAL, "connect.parameters": {"scale": "two"}}),
    ("decimal(38,4)", {**CONNECT_DECIMAL, **decimal(scale=2), "connect.parameters": {"scale": "3"}}),
]


@pytest.mark.parametrize(("kind", "field"), NOT_UNDERSTOOD)
def test_a_meaning_that_is_not_understood_is_no_meaning_that_is_absent(kind: str, field: Any) -> None:
    found = of_column(kind, ["null", field])
    assert found is not None
    assert "field c" in found


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("string", {"type": "string", "logicalType": "vendor.text"}),
        ("binary", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}),
        ("bigint", {"type": "long", "logicalType": "timestamp-micros"}),
        ("decimal(9,2)", {**CONNECT_DECIMAL, "connect.parameters": {"scale": "2"}}),
        ("decimal(9,2)", {**CONNECT_DECIMAL, **decimal(scale=2), "connect.parameters": {"scale": "2"}}),
        ("decimal(9,2)", decimal(precision=64, scale=-2)),
    ],
)
def test_what_is_no_matter_to_the_column_fits(kind: str, field: Any) -> None:
    assert of_column(kind, field) is None


OWN_SCALE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
WIDE = declare({"name": "t", "columns": {"id": "bigint", "c": "decimal(38,4)"}, "primary_key": ["id"]})
BYTES = [
    (size, number)
    for size in range(1, 18)
    for most in [2 ** (8 * size - 1) - 1]
    for number in (most, -most - 1, 2 ** (8 * (size - 1)), -1)
]


def digits_in(size: int) -> int:
    return len(str(2 ** (8 * size - 1) - 1)) - 1


@pytest.mark.parametrize("scale", [-2, 0, 4, 6])
def test_decimals_of_every_number_of_bytes_are_exact(scale: int) -> None:
    for size, number in BYTES:
        if not -(2 ** (8 * size - 1)) <= number < 2 ** (8 * size - 1):
            continue
        data = number.to_bytes(size, "big", signed=True)
        sized = bytes([2 * size]) + data
        fixed = decimal("fixed", name="F", size=size, scale=scale)
        own = encoded("int", scale) + sized
        expected = Fraction(number) / Fraction(10) ** scale
        for field, payload in ((decimal(scale=scale), sized), (fixed, data), (OWN_SCALE, own)):
            format_ = format_for(record({"name": "c", "type": field}))
            is_sound = field is not fixed or scale <= digits_in(size)
            if is_sound and abs(expected) < 10**34 and not 10**4 % expected.denominator:
                assert Fraction(read(format_, payload, WIDE)) == expected
                continue
            with pytest.raises(InputError) as caught:
                read(format_, payload, WIDE)
            assert caught.value.code in (Code.VALUE_OUT_OF_RANGE, Code.SCHEMA_INCOMPATIBLE)
