"""What fastavro lets pass is refused; what any writer writes is not."""

from __future__ import annotations

from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest

from schemas.avro.limits import MalformedError
from schemas.avro.reader import RecordReader
from schemas.avro.strict import strict_step
from schemas.errors import Code

DEEP: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "long", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "choice", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "four", "type": {"type": "fixed", "name": "F", "size": 4}},
        {"name": "again", "type": ["null", "F"]},
        {"name": "list", "type": {"type": "array", "items": ["null", "string", "boolean"]}},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "ok", "type": ["null", "boolean"]},
    ],
}
VALUE: dict[str, Any] = {
    "long": -(2**40),
    "text": "x" * 200,
    "choice": "B",
    "four": b"\x01\x01\x01\x01",
    "again": b"\x01\x02\x03\x04",
    "list": [None, "a", True, False],
    "map": {"a": 1.0, "b" * 70: 2.0},
    "cents": Decimal("12.50"),
    "ok": True,
}


def one_field(kind: Any) -> Any:
    return fastavro.parse_schema({"type": "record", "name": "O", "fields": [{"name": "x", "type": kind}]})


def test_a_record_of_every_type_is_gone_over_to_its_end() -> None:
    schema = fastavro.parse_schema(DEEP)
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, VALUE)
    data = out.getvalue()
    step = strict_step(schema)
    assert step(data, 0) == len(data)
    assert RecordReader(schema).read(data) == VALUE


def test_blocks_with_their_size_are_gone_over() -> None:
    schema = one_field({"type": "array", "items": "boolean"})
    step = strict_step(schema)
    assert step(b"\x03\x04\x01\x00\x02\x01\x00", 0) == 7  # two items in two bytes, one item, the end
    with pytest.raises(MalformedError):
        step(b"\x03\x04\x01\x02\x00", 0)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (["null", "long"], b"\x01\x02"),
        (["null", "long"], b"\x03"),
        (["null", "long"], b"\x81\x00\x02"),
        ("boolean", b"\x02"),
        (["null", "boolean"], b"\x02\xff"),
        ({"type": "array", "items": ["null", "long"]}, b"\x02\x01\x02\x00"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, b"\x00"),
        ("int", b"\x8a\x80\x80\x80\x80\x00"),
        ("long", b"\x8a" + b"\x80" * 9 + b"\x00"),
        ("long", b"\x8a" + b"\x80" * 9 + b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x82\x80\x80\x80\x80\x00"),
        (["null", "long"], b"\x82\x80\x80\x80\x80\x00\x02"),
        ("string", b"\x82" + b"\x80" * 9 + b"\x00a"),
        ({"type": "array", "items": "long"}, b"\x82" + b"\x80" * 9 + b"\x00\x02\x00"),
    ],
)
def test_what_fastavro_lets_pass_is_refused(kind: Any, data: bytes) -> None:
    schema = one_field(kind)
    fastavro.schemaless_reader(BytesIO(data), schema, None)  # if that changes, the check can go
    with pytest.raises(MalformedError):
        RecordReader(schema).read(data)


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("int", b"\x8a\x80\x80\x80\x00", 5),
        ("int", b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
        ("long", b"\x8a" + b"\x80" * 8 + b"\x00", 5),
        ("long", b"\xff" * 9 + b"\x01", -(2**63)),
        (["null", "long"], b"\x82\x80\x80\x80\x00\x02", 1),
        ("string", b"\x82" + b"\x80" * 8 + b"\x00a", "a"),
        ("bytes", b"\x18" + b"\x80" * 12, b"\x80" * 12),
    ],
)
def test_numbers_may_be_longer_than_they_need_to_be(kind: Any, data: bytes, value: object) -> None:
    assert RecordReader(one_field(kind)).read(data) == {"x": value}


def test_an_int_that_is_too_large_is_left_to_what_knows_its_column() -> None:
    assert RecordReader(one_field("int")).read(b"\x80" * 5 + b"\x04") == {"x": 2**36}


def test_a_field_that_is_passed_over_has_to_be_there() -> None:
    [first] = one_field("long")["fields"]
    values = {"double": 1.5, "string": "text", "bytes": b"bytes", "array": [1.5, 2.5], "fixed": b"size"}
    kinds = {
        "array": {"type": "array", "items": "double"},
        "fixed": {"type": "fixed", "name": "F", "size": 4},
    }
    for name, value in values.items():
        for kind in (kinds.get(name, name), ["null", kinds.get(name, name)]):
            more = {"name": "y", "type": kind}
            writer = fastavro.parse_schema({"type": "record", "name": "O", "fields": [first, more]})
            records, out = RecordReader(writer, one_field("long")), BytesIO()
            fastavro.schemaless_writer(out, writer, {"x": 1, "y": value})
            data = out.getvalue()
            assert records.read(data) == {"x": 1}
            for end in range(len(data)):
                with pytest.raises(MalformedError) as caught:
                    records.read(data[:end])
                assert caught.value.code is Code.AVRO_TRUNCATED, (name, end)
