"""A field that is no column waits where it is to: in every encoding, whether a value or the schema alone has it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from schemas.avro.registered import KnownSchemas, WriterSchema
from schemas.errors import Code
from schemas.formats.append import AppendFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema, declare
from streaming.lane.faults import find_faults
from tests.kit import avro_records
from tests.kit.decoding import Record, changes_of, differences
from tests.kit.values import drawn

Names = list[str]
WAIT: dict[str, Any] = {"on_new_column": "wait", "ignored_columns": ("noise", "__deleted")}
COLUMNS = {"id": "bigint", "c": {"type": "int", "field": ["c", "old"]}}
TABLE = declare({"name": "t", "columns": COLUMNS, "primary_key": ["id"]})
ROWS = declare({"name": "t", "columns": COLUMNS}, has_key=False)
KNOWN = {"id", "c", "old", "noise", "__deleted"}
NAMES: st.SearchStrategy[Names] = st.permutations(["c", "old", "noise", "new", "C", "schema"]).flatmap(
    lambda order: st.integers(0, len(order)).map(lambda count: order[:count])
)
KEY = b'{"id":1}'


def check(format_: UpstreamFormat, table: TableSchema, found: Sequence[tuple[Names, Record]]) -> None:
    records = [record for _, record in found]
    changes = changes_of(format_, table, records)
    faults = {fault.offset: fault.code for fault in find_faults(changes, table, format_=format_)}
    new = {number for number, (names, _) in enumerate(found) if set(names) - KNOWN}
    assert faults == dict.fromkeys(new, Code.SCHEMA_WAITS)
    assert 0 < len(new) < len(found)
    assert differences(format_, table, records) == []


def typed(name: str) -> dict[str, Any]:
    return {"field": name, "type": "int64" if name == "id" else "int32", "optional": True}


@pytest.mark.parametrize("with_frame", [False, True], ids=["plain", "framed"])
def test_rows_in_json(with_frame: bool) -> None:
    found = []
    for names in drawn(NAMES, 60):
        row: dict[str, Any] = {"id": 1, **dict.fromkeys(names, 5)}
        if with_frame:
            # A null may be left out: the schema says that the field is there.
            payload = {"id": 1} if len(names) % 2 else row
            row = {"schema": {"type": "struct", "fields": list(map(typed, row))}, "payload": payload}
        found.append((names, json.dumps(row).encode()))
    check(UpsertFormat(**WAIT), TABLE, [(names, (KEY, value)) for names, value in found])
    check(AppendFormat(**WAIT), ROWS, [(names, (None, value)) for names, value in found])


@pytest.mark.parametrize("with_frame", [False, True], ids=["plain", "framed"])
@pytest.mark.parametrize("image", ["after", "before"])
def test_events_in_json(with_frame: bool, image: str) -> None:
    found = []
    for names in drawn(NAMES, 60):
        row = {"id": 1, **dict.fromkeys(names, 5)}
        value: dict[str, Any] = {"op": "u", "before": {"id": 1}, "after": {"id": 1}, "ts_ms": 1, image: row}
        if with_frame:
            part = {"field": "after", "type": "struct", "fields": list(map(typed, row))}
            value = {"schema": {"type": "struct", "fields": [part]}, "payload": value}
        found.append((names, (KEY, json.dumps(value).encode())))
    check(DebeziumFormat(before="full", **WAIT), TABLE, found)


@pytest.mark.parametrize("is_event", [False, True], ids=["rows", "events"])
def test_records_by_a_registry(is_event: bool) -> None:
    schemas, found = [], []
    for number, names in enumerate(drawn(NAMES, 60), 1):
        fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
        fields += [{"name": name, "type": ["null", "int"]} for name in names]
        schema: dict[str, Any] = {"type": "record", "name": "Row", "fields": fields}
        value: dict[str, Any] = {"id": 1, **dict.fromkeys(names)}
        if is_event:
            parts = [{"name": "op", "type": "string"}, {"name": "after", "type": schema}]
            schema, value = {"type": "record", "name": "E", "fields": parts}, {"op": "c", "after": value}
        schemas.append(WriterSchema(number, json.dumps(schema)))
        found.append(
            (
                names,
                (
                    avro_records.framed(1_000, KEY_SCHEMA, {"id": 1}),
                    avro_records.framed(number, schema, value),
                ),
            )
        )
    known = KnownSchemas((*schemas, WriterSchema(1_000, json.dumps(KEY_SCHEMA))))
    kind: type[UpsertFormat] | type[DebeziumFormat] = DebeziumFormat if is_event else UpsertFormat
    check(kind(encoding="avro-registry", **WAIT).with_schemas(known), TABLE, found)


KEY_SCHEMA = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
