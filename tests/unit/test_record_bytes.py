"""Bytes that fastavro lets pass are refused; what any writer writes is read to its end."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pytest

from schemas.avro.fallback import KeyRecords
from schemas.avro.record_bytes import MalformedError, RecordBytes
from schemas.avro.registered import WriterSchema
from schemas.avro.writer_schemas import parsed
from schemas.errors import Code, InputError
from schemas.table import Column
from schemas.types import ColumnType

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
    "cents": b"\x04\xe2",
    "ok": True,
}
LIST_OF_BOOLEANS = {"type": "array", "items": "boolean"}
TRUNCATED = Code.AVRO_TRUNCATED


def passed_over(kind: Any, data: bytes) -> None:
    record = RecordBytes(data)
    record.pass_over(parsed(WriterSchema(1, json.dumps(kind))))
    record.finish()


def written(kind: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(kind), value)
    return out.getvalue()


def test_a_record_of_every_type_is_passed_over_to_its_end_and_truncated_before_it() -> None:
    data = written(DEEP, VALUE)
    passed_over(DEEP, data)
    for end in range(len(data)):
        with pytest.raises(MalformedError) as caught:
            passed_over(DEEP, data[:end])
        assert caught.value.code is TRUNCATED, end
    with pytest.raises(MalformedError) as caught:
        passed_over(DEEP, data + b"\x00")
    assert caught.value.code is Code.AVRO_TRAILING


def test_blocks_with_their_size_are_passed_over() -> None:
    passed_over(
        LIST_OF_BOOLEANS, b"\x03\x04\x01\x00\x02\x01\x00"
    )  # two items in two bytes, one item, the end
    for data in (b"\x03\x04\x01\x02\x00", b"\x03\x06\x01\x00\x02\x01\x00", b"\x03\x02\x01\x00\x02\x01\x00"):
        with pytest.raises(MalformedError):
            passed_over(LIST_OF_BOOLEANS, data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (["null", "long"], b"\x01\x02"),
        (["null", "long"], b"\x03"),
        (["null", "long"], b"\x81\x00\x02"),
        ("boolean", b"\x02"),
        (["null", "boolean"], b"\x02\xff"),
        ({"type": "array", "items": ["null", "long"]}, b"\x02\x01\x02\x00"),
        ("long", b"\x8a" + b"\x80" * 9 + b"\x00"),
        ("long", b"\x8a" + b"\x80" * 9 + b"\x01"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x82\x80\x80\x80\x80\x00"),
        (["null", "long"], b"\x82\x80\x80\x80\x80\x00\x02"),
        ("string", b"\x82" + b"\x80" * 9 + b"\x00a"),
        ({"type": "array", "items": "long"}, b"\x82" + b"\x80" * 9 + b"\x00\x02\x00"),
    ],
)
def test_what_fastavro_lets_pass_is_refused(kind: Any, data: bytes) -> None:
    fastavro.schemaless_reader(BytesIO(data), fastavro.parse_schema(kind), None)
    with pytest.raises(MalformedError):
        passed_over(kind, data)


def of_key(kind: str, data: bytes) -> Any:
    [value] = KeyRecords([Column("x", ColumnType.parse(kind), nullable=False)]).decode(data)
    return value


@pytest.mark.parametrize(
    ("kind", "data"), [("decimal(4,0)", b"\x00"), ("int", b"\x8a\x80\x80\x80\x80\x00"), ("boolean", b"\x02")]
)
def test_what_fastavro_takes_for_a_value_of_a_key_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        of_key(kind, data)
    assert caught.value.code is Code.KEY_MISMATCH


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("int", b"\x8a\x80\x80\x80\x00", 5),
        ("int", b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
        ("bigint", b"\x8a" + b"\x80" * 8 + b"\x00", 5),
        ("bigint", b"\xff" * 9 + b"\x01", -(2**63)),
        ("string", b"\x82" + b"\x80" * 8 + b"\x00a", "a"),
    ],
)
def test_numbers_may_be_longer_than_they_need_to_be(kind: str, data: bytes, value: object) -> None:
    assert of_key(kind, data) == value


def test_an_int_that_is_too_large_is_left_to_what_knows_its_column() -> None:
    assert RecordBytes(b"\x80" * 5 + b"\x04").integer() == 2**36


def test_missing_bytes_come_before_what_is_refused_and_a_false_claim_before_both() -> None:
    kind = {"type": "array", "items": "boolean"}
    for data, code in (
        (b"\x04\x02\x01\x00", None),
        (b"\x04\x02", TRUNCATED),
        (b"\x80\x80\x10\x02", Code.AVRO_LIMIT),
    ):
        with pytest.raises(MalformedError) as caught:
            passed_over(kind, data)
        assert caught.value.code is code


def test_a_long_list_that_is_there_is_no_claim() -> None:
    passed_over({"type": "array", "items": "double"}, b"\x80\x89\x0f" + bytes(8 * 123_456) + b"\x00")
