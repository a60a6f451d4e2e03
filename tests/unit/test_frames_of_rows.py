"""Kafka Connect's frame around rows, keys and events, and what a frame's schema and a row say beside their columns."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest

from schemas.errors import Code, InputError
from schemas.formats.append import AppendFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.upsert import UpsertFormat
from schemas.records import Change, Op
from schemas.table import TableSchema, declare
from tests.kit.one_value import compact, event, read, table_of
from tests.kit.single_records import single_records

DECIMAL = "org.apache.kafka.connect.data.Decimal"
KINDS = {"id": "bigint", "v": "string", "at": "timestamp", "amount": "decimal(18,2)", "day": "date"}
TABLE = declare({"name": "t", "columns": KINDS, "primary_key": ["id"]})
PRECISE = DebeziumFormat(time="microseconds", decimal="precise")
TEXT = DebeziumFormat(time="isostring", decimal="string")
ADAPTIVE = DebeziumFormat(time="adaptive", decimal="precise")


def framed(fields: list[dict[str, Any]], payload: object) -> bytes:
    return compact({"schema": {"type": "struct", "fields": fields, "optional": False}, "payload": payload})


ID: dict[str, Any] = {"type": "int64", "field": "id"}
FIELDS: list[dict[str, Any]] = [
    ID,
    {"type": "string", "field": "v"},
    {"type": "int64", "field": "at", "name": "org.apache.kafka.connect.data.Timestamp"},
    {"type": "bytes", "field": "amount", "name": DECIMAL, "parameters": {"scale": "2"}},
    {"type": "int32", "field": "day", "name": "org.apache.kafka.connect.data.Date"},
]
ROW = {"id": 1, "v": "x", "at": 1_000, "amount": "ZQ==", "day": 1}
VALUES = (1, "x", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), Decimal("1.01"), dt.date(1970, 1, 2))


def change(
    format_: UpstreamFormat, key: bytes | None, value: bytes | None, table: TableSchema = TABLE
) -> Change | None:
    return single_records(format_, table.columns, table.key_columns).read_record(key, value).change


def code(format_: UpstreamFormat, key: bytes | None, value: bytes | None, table: TableSchema = TABLE) -> Code:
    with pytest.raises(InputError) as caught:
        change(format_, key, value, table)
    return caught.value.code


@pytest.mark.parametrize(
    ("form", "key"),
    [
        ("text", b"1"),
        ("json", b"1"),
        ("json", compact({"schema": {"type": "int64"}, "payload": 1})),
        ("json", compact({"schema": None, "payload": 1})),
        ("record", b'{"id":1}'),
        ("record", framed([ID], {"id": 1})),
        ("record", compact({"payload": {"id": 1}, "schema": None})),
    ],
)
def test_rows_and_keys_in_frames_are_read_by_their_schemas(form: str, key: bytes) -> None:
    upserts = UpsertFormat.model_validate({"key": form})
    assert change(upserts, key, framed(FIELDS, ROW)) == Change(Op.INSERT, None, VALUES)
    assert change(upserts, key, framed(FIELDS, None)) == Change(Op.DELETE, (1, None, None, None, None), None)
    plain = {"v": "x", "at": "1970-01-01T00:00:01Z", "amount": 1.01, "day": "1970-01-02"}
    for frame in ({"schema": None, "payload": plain}, {"payload": plain, "schema": None}):
        assert change(upserts, key, compact(frame)) == Change(Op.INSERT, None, VALUES)


def test_appended_rows_in_frames_are_read() -> None:
    table = declare({"name": "t", "columns": KINDS}, has_key=False)
    assert change(AppendFormat(), None, framed(FIELDS, ROW), table) == Change(Op.INSERT, None, VALUES)
    assert change(AppendFormat(), None, framed(FIELDS, None), table) is None


def test_columns_with_the_names_of_a_frame_are_columns() -> None:
    columns = {"id": "int", "schema": "string", "payload": "string"}
    table = declare({"name": "t", "columns": columns, "primary_key": ["id"]})
    value = b'{"schema":"a","payload":{"x":1}}'
    assert change(UpsertFormat(), b'{"id":1}', value, table) == Change(Op.INSERT, None, (1, "a", '{"x":1}'))


@pytest.mark.parametrize("payload", ["x", 7, [], "{}", True])
def test_a_frame_around_no_object_is_refused(payload: object) -> None:
    for format_ in (UpsertFormat(), PRECISE):
        assert code(format_, b'{"id":1}', framed(FIELDS, payload)) is Code.JSON_MALFORMED
        assert code(format_, framed([ID], payload), event(1)[1]) is Code.KEY_MISMATCH


@pytest.mark.parametrize("schema", ["x", 7, [], {"fields": {}}, {"fields": [7]}, {"fields": "x"}])
def test_a_schema_that_can_not_be_understood_is_never_taken_for_absent(schema: object) -> None:
    value = compact({"schema": schema, "payload": ROW})
    assert code(UpsertFormat(), b'{"id":1}', value) is Code.SCHEMA_INCOMPATIBLE
    value = compact({"schema": schema, "payload": {"op": "c", "after": ROW, "source": {}}})
    assert code(PRECISE, b'{"id":1}', value) is Code.SCHEMA_INCOMPATIBLE


@pytest.mark.parametrize(
    ("format_", "kind", "schema"),
    [
        (PRECISE, "timestamp", {"type": "int64", "name": "io.debezium.time.Timestamp"}),
        (PRECISE, "timestamp", {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}),
        (PRECISE, "timestamp", {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}),
        (PRECISE, "timestamp", {"type": "string", "name": "io.debezium.time.IsoTimestamp"}),
        (PRECISE, "timestamp", {"type": "int64", "name": "io.debezium.time.MicroTime"}),
        (PRECISE, "timestamp", {"type": "int64", "name": 7}),
        (TEXT, "timestamp", {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
        (ADAPTIVE, "timestamp", {"type": "int64", "name": "com.shop.Moment"}),
        (PRECISE, "date", {"type": "string", "name": "io.debezium.time.IsoDate"}),
        (TEXT, "date", {"type": "int32", "name": "io.debezium.time.Date"}),
        (PRECISE, "date", {"type": "int64", "name": "io.debezium.time.Timestamp"}),
        (PRECISE, "decimal(9,2)", {"type": "string"}),
        (PRECISE, "decimal(9,2)", {"type": "double"}),
        (PRECISE, "decimal(9,2)", {"type": "int64"}),
        (PRECISE, "decimal(9,2)", {"type": "bytes", "name": "io.debezium.data.Bits"}),
        (TEXT, "decimal(9,2)", {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}),
        (TEXT, "decimal(9,2)", {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}),
        (TEXT, "decimal(9,2)", {"type": "bytes"}),
        (TEXT, "decimal(9,2)", {"type": []}),
        (TEXT, "decimal(9,2)", {"type": "string", "parameters": 7}),
    ],
)
def test_a_schema_that_contradicts_the_configuration_is_incompatible(
    format_: DebeziumFormat, kind: str, schema: dict[str, Any]
) -> None:
    for cell in (0, None):
        assert read(format_, table_of(kind), event(cell, schema)) is Code.SCHEMA_INCOMPATIBLE
    # A column that says itself what its values are.
    wrapped = table_of("decimal(20,0)", unsigned="wrapped")
    described = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "0"}}
    assert read(format_, wrapped, event("AQ==", described)) is Code.SCHEMA_INCOMPATIBLE


@pytest.mark.parametrize(
    ("time", "kind", "schema", "cell", "expected"),
    [
        ("connect", "timestamp", "io.debezium.time.Timestamp", 1_000, VALUES[2]),
        ("connect", "timestamp", "org.apache.kafka.connect.data.Timestamp", 1_000, VALUES[2]),
        ("nanoseconds", "timestamp", "io.debezium.time.NanoTimestamp", 10**9, VALUES[2]),
        ("isostring", "timestamp", "io.debezium.time.IsoTimestamp", "1970-01-01T00:00:01Z", VALUES[2]),
        ("adaptive", "timestamp", "io.debezium.time.IsoTimestamp", "1970-01-01T00:00:01Z", VALUES[2]),
        *(
            (mode, "timestamp", "io.debezium.time.ZonedTimestamp", "1970-01-01T01:00:01+01:00", VALUES[2])
            for mode in ("connect", "microseconds", "nanoseconds", "isostring", "adaptive")
        ),
        ("adaptive", "date", "io.debezium.time.IsoDate", "1970-01-02Z", VALUES[4]),
        ("isostring", "date", "io.debezium.time.IsoDate", "1970-01-02Z", VALUES[4]),
        ("adaptive", "date", "io.debezium.time.Date", 1, VALUES[4]),
        ("microseconds", "date", "org.apache.kafka.connect.data.Date", 1, VALUES[4]),
    ],
)
def test_a_schema_that_says_the_same_is_read(
    time: str, kind: str, schema: str, cell: object, expected: object
) -> None:
    format_ = DebeziumFormat.model_validate({"time": time})
    of_cell = {"type": "string" if isinstance(cell, str) else "int64", "name": schema}
    assert read(format_, table_of(kind), event(cell, of_cell)) == expected
    if time != "adaptive" and schema.startswith("io.debezium") and "Zoned" not in schema:
        of_column = {"date": {1: "days"}.get(cell, "isostring"), "timestamp": time}[kind]  # type: ignore[call-overload]
        table = table_of(kind, time=of_column)
        assert read(DebeziumFormat(time="adaptive"), table, event(cell, of_cell)) == expected
        assert read(DebeziumFormat(), table, event(cell)) == expected


@pytest.mark.parametrize("null", [b'{"schema":null,"payload":null}', framed(FIELDS, None)])
def test_a_null_in_a_frame_is_a_tombstone(null: bytes) -> None:
    assert change(PRECISE, b'{"id":1}', null) == Change(Op.DELETE, (1, None, None, None, None), None)
    whole = DebeziumFormat(time="microseconds", decimal="precise", before="full")
    assert change(whole, b'{"id":1}', null) is None
    assert code(PRECISE, null, null) is Code.KEY_MISMATCH


@pytest.mark.parametrize("part", ["after", "before", "source"])
def test_text_that_holds_json_is_no_object(part: str) -> None:
    whole = DebeziumFormat(time="microseconds", decimal="precise", before="full")
    envelope = {"op": "u", "before": ROW, "after": ROW, "source": {}} | {"amount": None}
    envelope |= {part: json.dumps({"id": 1})}
    assert code(whole, b'{"id":1}', compact(envelope)) is Code.JSON_MALFORMED


def test_source_fields_of_other_connectors_may_have_any_type() -> None:
    source = {"connector": "yugabytedb", "snapshot": "false", "lsn": "1:6::0:0", "txId": {"a": 1}}
    value = compact({"op": "c", "after": {"id": 1, "v": "y"}, "source": source})
    found = single_records(PRECISE, TABLE.columns, TABLE.key_columns).read_record(b'{"id":1}', value)
    assert found.change == Change(Op.INSERT, None, (1, "y", None, None, None))
    assert found.position is None


DELETED = Change(Op.DELETE, (1, None, None, None, None), None)


@pytest.mark.parametrize("value", [True, "true"])
def test_a_flattened_delete_is_one(value: object) -> None:
    row = {"id": 1, "v": None, "__deleted": value}
    assert change(UpsertFormat(), b'{"id":1}', compact(row)) == DELETED
    assert change(UpsertFormat(), b'{"id":1}', framed(FIELDS, row)) == DELETED
    other = UpsertFormat(deleted_field="gone")
    assert change(other, b'{"id":1}', compact({"gone": value, "v": 7})) == DELETED
    for kept in (other, UpsertFormat(deleted_field=None)):
        assert (change(kept, b'{"id":1}', compact(row)) or DELETED).op is Op.INSERT
    table = declare({"name": "t", "columns": {"id": "bigint", "__deleted": "string"}, "primary_key": ["id"]})
    text = compact({"id": 1, "__deleted": str(value).lower()})
    assert change(UpsertFormat(), b'{"id":1}', text, table) == Change(Op.INSERT, None, (1, "true"))
    chosen = UpsertFormat(deleted_field="__deleted")
    assert change(chosen, b'{"id":1}', text, table) == Change(Op.DELETE, (1, None), None)


@pytest.mark.parametrize("value", [False, "false", None])
def test_a_row_that_is_not_deleted_is_one(value: object) -> None:
    row = compact({"id": 1, "v": "x", "__deleted": value})
    assert change(UpsertFormat(), b'{"id":1}', row) == Change(Op.INSERT, None, (1, "x", None, None, None))


@pytest.mark.parametrize("value", ["TRUE", "", 1, 0, {}, []])
def test_what_is_neither_true_nor_false_is_malformed(value: object) -> None:
    row = compact({"id": 1, "v": "x", "__deleted": value})
    assert code(UpsertFormat(), b'{"id":1}', row) is Code.JSON_MALFORMED


def test_an_empty_key_is_the_empty_text() -> None:
    table = declare({"name": "t", "columns": {"id": "string", "v": "string"}, "primary_key": ["id"]})
    upserts = UpsertFormat(key="text")
    assert change(upserts, b"", b'{"v":"x"}', table) == Change(Op.INSERT, None, ("", "x"))
    assert change(upserts, b"", None, table) == Change(Op.DELETE, ("", None), None)
    assert code(upserts, None, b"{}", table) is Code.KEY_MISMATCH
    assert code(UpsertFormat(key="json"), b"", b"{}", table) is Code.KEY_MISMATCH
    assert code(UpsertFormat(key="text"), b"", b"{}") is Code.KEY_MISMATCH
