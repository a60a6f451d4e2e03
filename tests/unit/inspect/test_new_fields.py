"""Columns and fills by the schemas of records: in Avro, in Kafka Connect's frames, as Debezium writes both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.avro.registered import WriterSchema
from schemas.avro.writer_schemas import WriterSchemaError
from schemas.formats.append import AppendFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.upsert import UpsertFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.kinds.table_changes import AddColumn, IgnoreField
from streaming.inspect.declared import RowFields, fields_by_registry, fields_in_frame

AVRO = UpsertFormat(encoding="avro-registry", on_new_column="add")
JSON = UpsertFormat(on_new_column="add")
EVENTS = DebeziumFormat(on_new_column="add")
NO_DEFAULT = object()


def declared(fields: RowFields | None, format_: RegistryFormat, name: str = "c") -> object:
    """The declaration of the column, `ignored`, or `waits`."""
    assert fields is not None
    change = fields.change(name, format_)
    if change is None:
        return "waits"
    if isinstance(change, IgnoreField):
        return "ignored"
    assert isinstance(change, AddColumn)
    return json.loads(change.declared)


def in_avro(kind: Any, default: Any = NO_DEFAULT, name: str = "c") -> RowFields:
    field = {"name": name, "type": kind, **({} if default is NO_DEFAULT else {"default": default})}
    schema = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, field]}
    return fields_by_registry(WriterSchema(1, json.dumps(schema)), AVRO)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


DECIMAL = logical("bytes", "decimal", precision=10, scale=2)
FILLED = {"type": "string", "fill": "é b"}
MICROS = logical("long", "timestamp-micros")


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (["null", "int"], None, "int"),
        ("int", NO_DEFAULT, "int"),
        (["int", "null"], 0, {"type": "int", "fill": 0}),
        ("int", -5, {"type": "int", "fill": -5}),
        ("boolean", False, {"type": "boolean", "fill": False}),
        (["boolean", "null"], True, {"type": "boolean", "fill": True}),
        ("long", 2**62, {"type": "bigint", "fill": 2**62}),
        ("double", 0, {"type": "double", "fill": 0.0}),
        ("double", 1.5, {"type": "double", "fill": 1.5}),
        ("float", 0.5, {"type": "float", "fill": 0.5}),
        ("string", "", {"type": "string", "fill": ""}),
        ("string", "é", {"type": "string", "fill": "é"}),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            "B",
            {"type": "string", "fill": "B"},
        ),
        # A symbol that Avro forbids and registries hold.
        ([{"type": "enum", "name": "E-1", "symbols": ["in-progress", "é b"]}, "null"], "é b", FILLED),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "string"),
        ({"type": "fixed", "name": "of 1", "size": 1}, "\u00ff", {"type": "binary", "fill": "/w=="}),
        ("bytes", "\u00ff\u0000", {"type": "binary", "fill": "/wA="}),
        (DECIMAL, "\u0004\u00d2", {"type": "decimal(10,2)", "fill": "12.34"}),
        ([DECIMAL, "null"], "\u0000", {"type": "decimal(10,2)", "fill": "0.00"}),
        (logical("string", "uuid"), "x", {"type": "string", "fill": "x"}),
        (logical("int", "date"), 0, "date"),
        (logical("int", "date"), 1, {"type": "date", "fill": "1970-01-02"}),
        (MICROS, 0, "timestamp"),
        ([MICROS, "null"], 1, {"type": "timestamp", "fill": "1970-01-01T00:00:00.000001Z"}),
        (
            {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
            "1970-01-01T00:00:00Z",
            "timestamp",
        ),
        # What no writer of the schema writes, and what no column holds, is no literal.
        ("int", "x", "int"),
        ("int", 2**40, "int"),
        (DECIMAL, "\u0000" * 1 + "\u00ff" * 16, "decimal(10,2)"),
        (["null", "int"], 5, {"type": "int", "fill": 5}),
        # No single values.
        ({"type": "array", "items": "int"}, [], "ignored"),
        ({"type": "map", "values": "int"}, {}, "ignored"),
        ({"type": "record", "name": "R", "fields": []}, NO_DEFAULT, "ignored"),
        (["int", "string"], 0, "ignored"),
        ("null", None, "ignored"),
    ],
    ids=lambda each: "no default" if each is NO_DEFAULT else str(each),
)
def test_in_avro(kind: Any, default: Any, expected: object) -> None:
    assert declared(in_avro(kind, default), AVRO) == expected


@pytest.mark.parametrize("name", ["order_no", "C"])
def test_a_name_of_letters_is_the_column_s(name: str) -> None:
    assert declared(in_avro("int", name=name), AVRO, name) == "int"


@pytest.mark.parametrize("name", ["_bf_x", "x" * 129])
def test_another_name_waits_for_an_operator(name: str) -> None:
    assert declared(in_avro("int", name=name), AVRO, name) == "waits"


def framed(field: dict[str, Any], format_: RegistryFormat, name: str = "c") -> object:
    fields = [{"field": "id", "type": "int64"}, {"field": name, "optional": True, **field}]
    schema: dict[str, Any] = {"type": "struct", "fields": fields}
    if isinstance(format_, DebeziumFormat):
        schema = {
            "type": "struct",
            "fields": [{"field": "op", "type": "string"}, {**schema, "field": "after"}],
        }
    return declared(
        fields_in_frame(json.dumps({"schema": schema, "payload": {}}).encode(), format_), format_, name
    )


CONNECT_DECIMAL = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
}


@pytest.mark.parametrize(
    ("field", "expected", "of_event"),
    [
        ({"type": "int32"}, "int", None),
        ({"type": "int32", "name": ["x"], "parameters": "x"}, "int", None),
        ({"type": [1]}, "ignored", None),
        ({"type": None, "parameters": [1]}, "ignored", None),
        ({"type": "int32", "default": None}, "int", None),
        ({"type": "int16", "default": 5}, {"type": "int", "fill": 5}, None),
        ({"type": "int64", "default": 2**62}, {"type": "bigint", "fill": 2**62}, None),
        ({"type": "boolean", "default": False}, {"type": "boolean", "fill": False}, None),
        ({"type": "double", "default": 0.1}, {"type": "double", "fill": 0.1}, None),
        ({"type": "string", "default": ""}, {"type": "string", "fill": ""}, None),
        ({"type": "bytes", "default": "AP8="}, {"type": "binary", "fill": "AP8="}, None),
        (
            {**CONNECT_DECIMAL, "default": "BNI="},
            {"type": "decimal(10,2)", "fill": "12.34"},
            {"type": "decimal(10,2)", "decimal": "precise", "fill": "12.34"},
        ),
        (
            {"type": "int32", "name": "io.debezium.time.Date", "default": 0},
            "date",
            {"type": "date", "time": "adaptive"},
        ),
        (
            {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "default": 1},
            {"type": "timestamp", "fill": "1970-01-01T00:00:00.000001Z"},
            {"type": "timestamp", "time": "adaptive", "fill": "1970-01-01T00:00:00.000001Z"},
        ),
        (
            {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "default": "1970-01-01T00:00:00Z"},
            "timestamp",
            {"type": "timestamp", "time": "adaptive"},
        ),
        ({"type": "int32", "default": "x"}, "int", None),
        ({"type": "array", "items": {"type": "int32"}}, "ignored", None),
        ({"type": "struct", "fields": []}, "ignored", None),
        ({"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []}, "waits", None),
    ],
    ids=str,
)
def test_in_a_frame(field: dict[str, Any], expected: object, of_event: object) -> None:
    assert framed(field, JSON) == expected
    assert framed(field, EVENTS) == (expected if of_event is None else of_event)


def test_a_connector_s_own_units_hold_for_new_columns() -> None:
    own = DebeziumFormat(on_new_column="add", time="connect", decimal="string")
    assert framed({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, own) == "date"


def test_a_record_without_a_schema_has_none() -> None:
    for value in (b'{"id":1,"c":5}', b"[1]", b"?", b'{"schema":null,"payload":{"c":1}}'):
        assert fields_in_frame(value, JSON) is None


def test_an_event_has_the_fields_of_its_row() -> None:
    row = {"type": "record", "name": "Value", "fields": [{"name": "c", "type": "int"}]}
    fields = [{"name": "op", "type": "string"}, {"name": "after", "type": ["null", row]}]
    schema = WriterSchema(1, json.dumps({"type": "record", "name": "E", "fields": fields}))
    format_ = DebeziumFormat(encoding="avro-registry", on_new_column="add")
    assert list(fields_by_registry(schema, format_).by_name) == ["c"]
    appended = fields_by_registry(WriterSchema(1, json.dumps(row)), AppendFormat(encoding="avro-registry"))
    assert list(appended.by_name) == ["c"]
    with pytest.raises((WriterSchemaError, LookupError, TypeError)):
        fields_by_registry(WriterSchema(1, '"long"'), format_)
