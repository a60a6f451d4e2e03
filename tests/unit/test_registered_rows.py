"""Records of the format `upsert` in Avro by a schema registry, read one by one."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from schemas.avro.projection import of_record
from schemas.avro.record_bytes import RecordBytes
from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.avro.writer_schemas import parsed
from schemas.errors import Code, InputError
from schemas.formats.protocol import Framed, Images
from schemas.formats.upsert import KeyForm, UpsertFormat
from schemas.records import Change, Op
from schemas.table import Column, TableSchema, declare
from schemas.types import ColumnType, TypeName
from tests.kit.avro_records import encoded, framed
from tests.kit.single_records import SingleRecords, single_records

TABLE = declare(
    {
        "name": "t",
        "columns": {
            "note": "string",
            "id": "bigint",
            "region": "string",
            "amount": "decimal(9,2)",
            "ok": "boolean",
        },
        "primary_key": ["region", "id"],
    }
)
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
KEY_SCHEMA = {
    "type": "record",
    "name": "Key",
    "fields": [{"name": "id", "type": ["null", "int"]}, {"name": "region", "type": "string"}],
}
ROW_SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "secret", "type": "string"},
        {"name": "amount", "type": ["null", DECIMAL]},
        {"name": "ok", "type": [{"type": "boolean", "connect.default": True}, "null"]},
    ],
}
WITH_KEY = {**ROW_SCHEMA, "fields": [*ROW_SCHEMA["fields"], {"name": "id", "type": ["null", "long"]}]}


KEY = framed(1, KEY_SCHEMA, {"id": 7, "region": "EU"})
ROW = {"secret": "secret", "amount": b"\x00\x96", "ok": True}
SCHEMAS = {1: KEY_SCHEMA, 2: ROW_SCHEMA, 3: WITH_KEY}


def known(**more: Any) -> KnownSchemas:
    found = {**SCHEMAS, **{int(name[1:]): schema for name, schema in more.items()}}
    return KnownSchemas(tuple(WriterSchema(number, json.dumps(schema)) for number, schema in found.items()))


def rows(
    schemas: KnownSchemas | None = None, key: KeyForm = "record", table: TableSchema = TABLE
) -> SingleRecords:
    format_ = UpsertFormat(encoding="avro-registry", key=key).with_schemas(schemas or known())
    return single_records(format_, table.columns, table.key_columns)


def refused(key: bytes | None, value: bytes | None, reader: SingleRecords | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        (reader or rows()).read_change(key, value, where="t-0@7")
    assert caught.value.where == "t-0@7"
    assert "secret" not in str(caught.value)
    return caught.value


def of_one(kind: str, schema: Any, raw: Any) -> Change:
    """A row of one column beside the key, read from a field of this schema."""
    table = declare({"name": "t", "columns": {"id": "bigint", "c": kind}, "primary_key": ["id"]})
    row = {"type": "record", "name": "R", "fields": [{"name": "c", "type": schema}]}
    reader = rows(known(s8="long", s9=row), "avro", table)
    return reader.read_change(framed(8, "long", 7), framed(9, row, {"c": raw}), where="t-0@7")


def test_a_row_is_an_insert_with_its_key_and_what_its_writer_lacks_is_null() -> None:
    expected = Change(Op.INSERT, None, (None, 7, "EU", Decimal("1.50"), True))
    for value in (
        framed(2, ROW_SCHEMA, ROW),
        framed(3, WITH_KEY, {**ROW, "id": 7}),
        framed(3, WITH_KEY, {**ROW, "id": None}),
    ):
        assert rows().read_change(KEY, value) == expected
    assert rows().read_key(KEY) == ("EU", 7)


def test_a_record_without_a_value_deletes_the_row_of_its_key() -> None:
    for value in (None, b""):
        assert rows().read_change(KEY, value) == Change(Op.DELETE, (None, 7, "EU", None, None), None)


@pytest.mark.parametrize(("form", "key"), [("json", b"7"), ("text", b"7"), ("avro", framed(8, "int", 7))])
def test_a_key_of_one_column_has_the_other_forms_too(form: KeyForm, key: bytes) -> None:
    table = declare({"name": "t", "columns": {"id": "bigint", "ok": "boolean"}, "primary_key": ["id"]})
    reader = rows(known(s8="int"), form, table)
    assert reader.read_change(key, framed(2, ROW_SCHEMA, ROW)).after == (7, True)
    assert refused(b"x", None, reader).code is Code.KEY_MISMATCH


@pytest.mark.parametrize("value", [b"\x00", frame(2)[:4], b"\x01" + frame(2)[1:], b'{"id":7}'])
def test_what_has_no_frame_is_malformed(value: bytes) -> None:
    assert refused(KEY, value).code is Code.CHANGE_MALFORMED


@pytest.mark.parametrize(
    "payload", [b"\x00\x00\x00\x02", b"\x00\x06\x00\x00", b"\x00\x00\x04", b"\x00\x02\x00\x00\x00"]
)
def test_values_that_no_writer_of_the_schema_writes_are_malformed(payload: bytes) -> None:
    assert refused(KEY, frame(2) + payload).code is Code.CHANGE_MALFORMED


def test_an_id_that_is_not_known_is_named() -> None:
    unknown = frame(77) + KEY[5:]
    for error in (refused(KEY, frame(77)), refused(unknown, None)):
        assert error.code is Code.SCHEMA_UNKNOWN
        assert "schema 77" in error.found


def test_a_schema_that_does_not_fit_is_named_with_its_field() -> None:
    def incompatible(schema: Any, key: Any = KEY_SCHEMA) -> str:
        reader = rows(known(s1=key, s9=schema))
        error = refused(frame(1) + KEY[5:], frame(9), reader)
        assert error.code is Code.SCHEMA_INCOMPATIBLE
        return error.found

    def of(kind: Any) -> Any:
        return {"type": "record", "name": "R", "fields": [{"name": "amount", "type": kind}]}

    assert "field amount is double, its column decimal(9,2)" in incompatible(of("double"))
    assert "field amount is bytes, its" in incompatible(of(["null", "bytes"]))
    assert "field amount is string or long" in incompatible(of(["string", "null", "long"]))
    assert "no record" in incompatible("string")
    assert "no Avro" in incompatible({"type": "rekord", "name": "R"})
    assert "no Avro" in incompatible(of("NoSuchType"))
    more = {**KEY_SCHEMA, "fields": [*KEY_SCHEMA["fields"], {"name": "x", "type": "int"}]}
    assert "other fields than the key columns" in incompatible(ROW_SCHEMA, more)
    protobuf = KnownSchemas((*known().schemas, WriterSchema(9, "", kind="PROTOBUF")))
    assert "PROTOBUF, not AVRO" in refused(KEY, frame(9), rows(protobuf)).found


def test_a_hostile_schema_is_refused_before_anything_is_read_by_it() -> None:
    for odd in (
        {"name": "x", "type": {"type": "fixed", "name": "F", "size": 2**31}},
        {"name": ["x"], "type": "int"},
        {"name": "note", "type": {"type": "enum", "name": "E", "symbols": []}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": [2]}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": {"decimal": 4}}},
        {"name": "amount", "type": {"type": "long", "connect.name": ["x"]}},
    ):
        schema = {"type": "record", "name": "R", "fields": [odd]}
        assert refused(KEY, frame(9), rows(known(s9=schema))).code is Code.SCHEMA_INCOMPATIBLE
    deep = json.dumps({"type": "array", "items": "int"})
    for _ in range(4_000):
        deep = f'{{"type":"array","items":{deep}}}'
    nested = KnownSchemas((*known().schemas, WriterSchema(9, deep)))
    assert refused(KEY, frame(9), rows(nested)).code is Code.SCHEMA_INCOMPATIBLE


def test_what_is_cut_short_or_goes_on_is_refused() -> None:
    value = framed(2, ROW_SCHEMA, ROW)
    for cut in range(5, len(value)):
        assert refused(KEY, value[:cut]).code is Code.AVRO_TRUNCATED
    assert refused(KEY, value + b"\x00").code is Code.AVRO_TRAILING
    assert refused(KEY[:-1], value).code is Code.AVRO_TRUNCATED
    assert refused(KEY + b"\x00", value).code is Code.AVRO_TRAILING


@pytest.mark.parametrize("length", [b"\xfe\xff\xff\xff\xff\x7f", b"\x01"])
def test_a_length_that_no_record_has_is_refused(length: bytes) -> None:
    assert refused(KEY, frame(2) + length).code is Code.AVRO_LIMIT


_TIMES = ("long", "timestamp-millis"), ("long", "timestamp-micros"), ("int", "date")


INCOMPATIBLE: list[tuple[str, Any, Any]] = [
    ("int", "int", 2**31),
    ("decimal(9,2)", DECIMAL, (10**9).to_bytes(5, "big")),
    ("decimal(9,2)", {**DECIMAL, "scale": 3}, b"\x01"),
    ("decimal(38,0)", {**DECIMAL, "scale": 0}, (10**38).to_bytes(17, "big")),
    ("timestamp", {"type": "long", "logicalType": "timestamp-nanos"}, 1),
    *(("timestamp", {"type": avro, "logicalType": name}, 2**62) for avro, name in _TIMES[:2]),
    ("date", {"type": "int", "logicalType": "date"}, 2_932_897),
    ("date", "string", "2026-02-30"),
    ("timestamp", "string", "infinity"),
    ("decimal(9,2)", "string", "NaN"),
]
"""A column, a writer's schema of it, and a value that does not fit the column."""


@pytest.mark.parametrize(("kind", "schema", "raw"), INCOMPATIBLE)
def test_what_does_not_fit_its_column_is_out_of_range(kind: str, schema: Any, raw: Any) -> None:
    with pytest.raises(InputError) as caught:
        of_one(kind, schema, raw)
    assert caught.value.code is Code.VALUE_OUT_OF_RANGE
    assert "column c" in caught.value.expected


OTHER_TYPES: list[tuple[str, Any, Any, Any]] = [
    ("bigint", "int", 7, 7),
    ("float", "long", 2**25 + 1, float(2**25)),
    ("double", "float", 0.5, 0.5),
    ("string", {"type": "enum", "name": "E", "symbols": ["sad", "ok"]}, "ok", "ok"),
    ("string", "bytes", b"EU", "EU"),
    ("binary", {"type": "fixed", "name": "F", "size": 2}, b"\x00\xff", b"\x00\xff"),
    ("decimal(9,2)", {**DECIMAL, "scale": 1}, b"\xf1", Decimal("-1.50")),
    ("decimal(9,2)", "string", "1.5", Decimal("1.50")),
    ("date", {"type": "int", "connect.name": "io.debezium.time.Date"}, -1, dt.date(1969, 12, 31)),
    (
        "timestamp",
        {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"},
        1,
        dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC),
    ),
    ("timestamp", "string", "1970-01-01T01:00:00+01:00", dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
    ("date", "string", "1970-01-02Z", dt.date(1970, 1, 2)),
    ("int", ["null", "int"], None, None),
    ("int", "null", None, None),
]
"""A column, a writer's schema of it, and a value with what it means."""


@pytest.mark.parametrize(("kind", "schema", "raw", "value"), OTHER_TYPES)
def test_other_types_that_say_the_same_are_read(kind: str, schema: Any, raw: Any, value: Any) -> None:
    assert of_one(kind, schema, raw).after == (7, value)


def test_a_text_that_is_not_utf_8_is_named_so() -> None:
    table = declare({"name": "t", "columns": {"id": "bigint", "secret": "string"}, "primary_key": ["id"]})
    reader = rows(known(s8="long"), "avro", table)
    assert refused(framed(8, "long", 7), frame(2) + b"\x02\xff\x00\x00\x00", reader).code is Code.BAD_ENCODING


def test_a_key_that_is_none_or_another_is_a_mismatch() -> None:
    value = framed(3, WITH_KEY, {**ROW, "id": 8})
    for key, data in (
        (None, None),
        (b"", None),
        (b"\x01" + KEY[1:], None),
        (b'{"id":7}', None),
        (KEY, value),
    ):
        assert refused(key, data).code is Code.KEY_MISMATCH


def test_a_null_in_a_key_is_named_so() -> None:
    key = framed(1, KEY_SCHEMA, {"id": None, "region": "EU"})
    assert refused(key, None).code is Code.PK_NULL
    with pytest.raises(InputError) as caught:
        rows().read_key(key, where="t-0@7")
    assert caught.value.code is Code.PK_NULL


def test_the_format_is_a_value_and_schemas_are_no_part_of_its_declaration() -> None:
    plain = UpsertFormat(encoding="avro-registry")
    with_schemas = plain.with_schemas(known())
    again = pickle.loads(pickle.dumps(with_schemas))  # noqa: S301
    assert again == with_schemas != plain
    assert hash(again) == hash(plain)
    assert again.model_dump() == plain.model_dump()
    assert (again.images, again.may_be_null) == (Images.AFTER_ONLY, True)
    assert again.framed == Framed(key=True, value=True)
    assert UpsertFormat(encoding="avro-registry", key="text").framed == Framed(value=True)
    assert not UpsertFormat().framed
    assert UpsertFormat().with_schemas(known()) == UpsertFormat()


def test_a_row_within_another_record_is_read_by_the_same_pieces() -> None:
    row = {**ROW_SCHEMA, "fields": [*ROW_SCHEMA["fields"], {"name": "done", "type": "boolean"}]}
    fields = [
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "Row"]},
        {"name": "ok", "type": "boolean"},
        {"name": "op", "type": "string"},
    ]
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    read = of_record(
        parsed(WriterSchema(9, json.dumps(envelope))),
        [Column("op", ColumnType(TypeName.STRING), nullable=True)],
        parts=dict.fromkeys(("before", "after"), partial(of_record, columns=TABLE.columns)),
    )
    value = {"before": None, "after": {**ROW, "done": True}, "ok": False, "op": "u"}
    record = RecordBytes(encoded(envelope, value))
    found = read.value(read.read(record))
    record.finish()
    assert found == {"before": None, "after": {"amount": Decimal("1.50"), "ok": True}, "op": "u"}
