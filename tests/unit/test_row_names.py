"""Names of the fields in upstream rows, and declared columns that none of them has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.errors import Code, ConfigError
from schemas.formats.append import AppendFormat
from schemas.formats.change import ChangeFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Format
from schemas.formats.row_names import SeenNames, refuse_absent, row_names
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema, declare
from tests.kit.avro_records import encoded
from tests.kit.debezium import recorded, recorded_schemas

EVENTS = DebeziumFormat(time="microseconds", decimal="precise")
ROW = {"type": "record", "name": "Value", "fields": [{"name": each, "type": "long"} for each in ("id", "a")]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}
SCHEMAS = KnownSchemas(
    (
        WriterSchema(1, json.dumps(ROW)),
        WriterSchema(2, json.dumps(ENVELOPE)),
        WriterSchema(3, "syntax", kind="PROTOBUF"),
    )
)
AVRO = UpsertFormat(encoding="avro-registry").with_schemas(SCHEMAS)
AVRO_EVENTS = DebeziumFormat(encoding="avro-registry").with_schemas(SCHEMAS)


def event(after: Any) -> dict[str, Any]:
    return {"op": "u", "before": {"old": 1}, "after": after, "source": {}}


def framed(payload: Any, *fields: Any) -> dict[str, Any]:
    return {"schema": {"type": "struct", "fields": list(fields)}, "payload": payload}


def in_avro(schema_id: int, schema: Any, value: Any) -> bytes:
    return frame(schema_id) + encoded(schema, value)


A, B = {"field": "a", "type": "int64"}, {"field": "b", "type": "int64"}


@pytest.mark.parametrize(
    ("format_", "value", "names"),
    [
        (UpsertFormat(), {"a": None, "b": {"c": 1}}, {"a", "b"}),
        (UpsertFormat(), framed({"a": 1}, A, B), {"a", "b"}),
        (AppendFormat(), {"größe": 1}, {"größe"}),
        (UpsertFormat(), framed(None, A), None),
        (UpsertFormat(), [1], None),
        (EVENTS, event({"a": None}), {"a"}),
        (EVENTS, framed(event({"a": 1}), {"field": "after", "fields": [A, B]}, A), {"a", "b"}),
        (EVENTS, framed(event({"a": 1}), {"field": "before", "fields": [A, B]}), {"a"}),
        (EVENTS, event(None), None),
        (EVENTS, {"ts_ms": 1}, None),
        (EVENTS, event("{}"), None),
        (AVRO, in_avro(1, ROW, {"id": 1, "a": 2}), {"id", "a"}),
        (
            AVRO_EVENTS,
            in_avro(2, ENVELOPE, {"before": None, "after": {"id": 1, "a": 2}, "op": "c"}),
            {"id", "a"},
        ),
        (AVRO_EVENTS, in_avro(2, ENVELOPE, {"before": {"id": 1, "a": 2}, "after": None, "op": "d"}), None),
        (AVRO, frame(3), None),
        (AVRO, frame(4), None),
        (AVRO, frame(1) + b"\x02", None),
        (AVRO, b"{}", None),
        (UpsertFormat(), b'{"a":', None),
        (UpsertFormat(), b"[" * 100_000, None),
    ],
)
def test_names_are_those_of_the_row_after_and_of_its_schema(
    format_: Format, value: Any, names: set[str] | None
) -> None:
    read = row_names(format_)
    assert read is not None
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    assert read(data) == names


def test_records_that_have_all_columns_have_no_names() -> None:
    assert row_names(ChangeFormat()) is None


@pytest.mark.parametrize("form", ["plain", "schemas", "avro"])
def test_names_of_recorded_events_are_the_tables(form: str) -> None:
    format_: Format = EVENTS
    if form == "avro":
        format_ = DebeziumFormat(encoding="avro-registry").with_schemas(recorded_schemas())
    read = row_names(format_)
    assert read is not None
    values = [each.value for each in recorded(form) if "orders" in each.topic and each.value]
    found = {names for names in map(read, values) if names is not None}
    assert found
    assert all({"id", "region", "amount", "note"} <= names for names in found)


def table(**columns: Any) -> TableSchema:
    return declare({"name": "t", "columns": {"id": "bigint"} | columns, "primary_key": ["id"]})


def seen(of: TableSchema, *rows: set[str]) -> SeenNames:
    found = SeenNames(of)
    for row in rows:
        found.add(frozenset(row))
    return found


def test_a_column_that_no_row_has_is_refused_with_what_is_there() -> None:
    of = table(amount="bigint", total="bigint", size={"type": "int", "field": "größe"})
    with pytest.raises(ConfigError) as caught:
        refuse_absent(seen(of, {"id", "amuont"}, {"id", "note", "total"}), "orders")
    error = caught.value
    assert (error.code, error.where) == (Code.COLUMN_ABSENT, "orders")
    assert "2 rows without column amount (did you mean 'amuont'?); 'größe' of column size" in error.found
    assert error.found.endswith("their other fields: 'amuont', 'note'")
    assert "fill: null" in error.next_step


def test_a_column_that_some_row_has_or_that_rows_may_lack_is_not_refused() -> None:
    of = table(a="bigint", late={"type": "bigint", "fill": None}, n={"type": "int", "field": "N"})
    refuse_absent(seen(of, {"a"}, {"N", "id"}), "orders")
    assert seen(of, {"a"}, {"N", "x"}).undeclared == ("x",)
    assert [column.name for column in seen(of, {"a"}).absent] == ["late", "n"]


def test_nothing_but_a_key_and_a_single_row_are_not_judged() -> None:
    of = table(a="bigint")
    refuse_absent(seen(of, {"id"}, {"id"}, set()), "orders")
    refuse_absent(seen(of, {"id", "b"}), "orders")
    with pytest.raises(ConfigError):
        refuse_absent(seen(of, {"id", "b"}, {"b"}), "orders")


def test_a_fill_of_null_is_no_part_of_what_a_state_is_of() -> None:
    declared = table(a={"type": "bigint", "fill": None})
    assert declared.by_name["a"].has_fill
    assert declared == table(a="bigint")
    assert declared.to_dict() == table(a="bigint").to_dict()
