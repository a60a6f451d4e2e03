"""Columns with a fill or several names: each record gives what it says, and the fill where its writer had no name."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from schemas.avro.registered import KnownSchemas, WriterSchema
from schemas.errors import ConfigError
from schemas.formats.append import AppendFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.upsert import UpsertFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.kinds.columns import FormerNames
from schemas.kinds.fills import fill_of
from schemas.table import TableSchema, declare
from schemas.types import ColumnType, TypeName, Value, json_literal
from tests.kit import avro_records
from tests.kit.decoding import Record, changes_of, differences
from tests.kit.service_reading import disagreements
from tests.kit.values import TYPES, drawn, values_of

ABSENT = object()
Cells = dict[str, object]
Found = tuple[Cells, dict[str, Value], dict[str, Value]]
"""By name in records: a text that is a value of column `s`, None for null; ABSENT where the record has no such name."""
NAMES = {"n": ("n",), "s": ("s", "old s", "älter"), "d": ("renamed",)}
FORMER_NAMES: dict[str, tuple[str, ...]] = {"n": (), "s": ("old s", "älter"), "d": ()}
"""The names by which columns were read while their newer ones were ignored; two were none yet."""
SAID: dict[str, list[tuple[Any, Value]]] = {
    "n": [(0, 0), (-5, -5), (None, None)],
    "s": [("", ""), ("x", "x"), (None, None)],
    "d": [("1.50", fill_of("1.50", ColumnType.parse("decimal(9,2)"))), (None, None)],
}
"""By column: values as records have them, and as the table has."""
FILLS: dict[str, Any] = {"n": 7, "s": "filled", "d": "0.25"}
EAST = dt.timezone(dt.timedelta(hours=2))
AVRO = {"n": "int", "s": "string", "d": "string"}


def table_of(*, key: bool) -> TableSchema:
    columns: dict[str, Any] = {"id": "bigint"} | {
        name: {"type": kind, "field": list(NAMES[name]), "fill": FILLS[name]}
        for name, kind in (("n", "int"), ("s", "string"), ("d", "decimal(9,2)"))
    }
    identity = {"primary_key": ["id"]} if key else {}
    return declare({"name": "t", "columns": columns, **identity}, has_key=None)


@st.composite
def rows(draw: st.DrawFn) -> Found:
    """Fields of a record, in any order, and the columns that the table has of them, now and formerly."""
    cells: Cells = {}
    expected, formerly = dict[str, Value](), dict[str, Value]()
    for column, names in NAMES.items():
        expected[column] = formerly[column] = fill_of(FILLS[column], TABLE.by_name[column].type)
        for name in reversed(names):
            if draw(st.booleans()):
                cells[name], value = draw(st.sampled_from(SAID[column]))
                expected[column] = value
                if name in FORMER_NAMES[column]:
                    formerly[column] = value
    order = draw(st.permutations(list(cells)))
    return {name: cells[name] for name in order}, expected, formerly


TABLE = table_of(key=True)


def written(cells: Cells) -> bytes:
    return json.dumps(cells, ensure_ascii=False).encode()


def field_of(name: str) -> dict[str, Any]:
    column = next(column for column, names in NAMES.items() if name in names)
    return {"field": name, "type": {"int": "int32"}.get(AVRO[column], "string"), "optional": True}


def framed(cells: Cells, fields: list[dict[str, Any]], *, left_out: frozenset[str]) -> bytes:
    """In Kafka Connect's frame, whose schema has all names; the payload has not those that are null and left out."""
    payload = {name: each for name, each in cells.items() if name not in left_out or each is not None}
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()


def check(format_: RegistryFormat, table: TableSchema, records: list[Record], found: list[Found]) -> None:
    """By the names of now, and by former ones where further fields wait: the newer names are none of those."""
    waiting = format_.model_copy(update={"on_new_column": "wait"}).with_schemas(format_.schemas_by_id)
    for read, expected, by in (
        (table, [now for _, now, _ in found], format_),
        (as_formerly(table), [formerly for _, _, formerly in found], waiting),
    ):
        changes = changes_of(by, read, records)
        own = [
            dict(zip(table.column_names, row, strict=True))
            for row in zip(*map(_list, changes.after), strict=True)
        ]
        assert own == [{"id": 1, **row} for row in expected]
        assert differences(by, read, records) == []
        assert disagreements(by, read, records) == []


def as_formerly(table: TableSchema) -> TableSchema:
    """The table as it was read while newer names were ignored: each of `s` has a place among all of its names."""
    names = dict(zip(NAMES["s"], table.by_name["s"].names_in_records, strict=True))
    former = {
        name: FormerNames(5, tuple(names.get(each, each) for each in those))
        for name, those in FORMER_NAMES.items()
        if those != NAMES[name]
    }
    columns = (
        replace(column, read_as=(former[column.name],)) if column.name in former else column
        for column in table.columns
    )
    return replace(table, columns=tuple(columns)).as_read(5)


def _list(column: Any) -> list[Any]:
    found: list[Any] = column.to_pylist()
    return found


KEY = b'{"id":1}'


@pytest.mark.parametrize("with_frame", [False, True], ids=["plain", "framed"])
def test_rows_in_json(with_frame: bool) -> None:
    found = drawn(rows(), 200)
    values = [written({"id": 1, **cells}) for cells, *_ in found]
    if with_frame:
        fields = [[{"field": "id", "type": "int64"}, *map(field_of, cells)] for cells, *_ in found]
        values = [
            framed({"id": 1, **cells}, each, left_out=frozenset(cells) if index % 2 else frozenset())
            for index, ((cells, *_), each) in enumerate(zip(found, fields, strict=True))
        ]
    check(UpsertFormat(), TABLE, [(KEY, value) for value in values], found)
    check(AppendFormat(), table_of(key=False), [(None, value) for value in values], found)


@pytest.mark.parametrize("with_frame", [False, True], ids=["plain", "framed"])
def test_events_in_json(with_frame: bool) -> None:
    found = drawn(rows(), 200)
    values = [written({"op": "c", "after": {"id": 1, **cells}, "ts_ms": 1}) for cells, *_ in found]
    if with_frame:
        values = [
            json.dumps(
                {
                    "schema": {
                        "type": "struct",
                        "fields": [
                            {
                                "field": "after",
                                "type": "struct",
                                "fields": [{"field": "id", "type": "int64"}, *map(field_of, cells)],
                            }
                        ],
                    },
                    "payload": {"op": "c", "after": {"id": 1, **cells}, "ts_ms": 1},
                }
            ).encode()
            for cells, *_ in found
        ]
    format_ = DebeziumFormat(decimal="string")
    check(format_, TABLE, [(KEY, value) for value in values], found)


AVRO_NAMES = {"old s": "old_s", "älter": "aelter"}


def test_rows_by_a_registry() -> None:
    columns = TABLE.to_dict()["columns"]
    columns["s"]["field"] = ["s", *AVRO_NAMES.values()]
    table = declare({"name": "t", "columns": columns, "primary_key": ["id"]})
    schemas, records, found = [], list[Record](), drawn(rows(), 100)
    for number, (cells, *_) in enumerate(found, 1):
        fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
        row: dict[str, Any] = {"id": 1}
        for name, value in cells.items():
            column = next(column for column, names in NAMES.items() if name in names)
            fields.append({"name": AVRO_NAMES.get(name, name), "type": ["null", AVRO[column]]})
            row[AVRO_NAMES.get(name, name)] = value
        schema = {"type": "record", "name": "Row", "fields": fields}
        schemas.append(WriterSchema(number, json.dumps(schema)))
        records.append(
            (avro_records.framed(1_000, KEY_SCHEMA, {"id": 1}), avro_records.framed(number, schema, row))
        )
    known = KnownSchemas((*schemas, WriterSchema(1_000, json.dumps(KEY_SCHEMA))))
    check(UpsertFormat(encoding="avro-registry").with_schemas(known), table, records, found)


KEY_SCHEMA = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_fill_of_every_type_is_declared_and_read_back(kind: ColumnType) -> None:
    wanted = values_of(kind)
    if kind.name in (TypeName.FLOAT, TypeName.DOUBLE):
        wanted = st.floats(allow_nan=False, allow_infinity=False, width=32)
    for value in drawn(wanted, 40):
        literal = json.loads(json.dumps(json_literal(value)))
        columns = {"id": "bigint", "c": {"type": str(kind), "fill": literal}}
        table = declare({"name": "t", "columns": columns, "primary_key": ["id"]})
        assert table.by_name["c"].fill == value
        assert declare(table.to_dict()) == table
        assert table != declare({**table.to_dict(), "columns": {**columns, "c": str(kind)}})
        records: list[Record] = [(KEY, b"{}"), (KEY, b'{"c":null}')]
        assert changes_of(UpsertFormat(), table, records).after[1].to_pylist() == [value, None]
        assert disagreements(UpsertFormat(), table, records) == []


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ({"type": "int", "fill": "5"}, "fill '5' is not a value of int"),
        ({"type": "int", "fill": 2**31}, "is not a value of int"),
        ({"type": "boolean", "fill": 1}, "is not a value of boolean"),
        ({"type": "decimal(3,1)", "fill": "1.25"}, "a number that decimal(3,1) holds"),
        # What a float has lost of its text is not known.
        (
            {"type": "decimal(38,20)", "fill": float("0.12345678901234567891")},
            "in quotes, which more than 15",
        ),
        ({"type": "decimal(38,2)", "fill": float("99999999999999999.99")}, "in quotes, which more than 15"),
        ({"type": "float", "fill": 1e39}, "a finite number"),
        ({"type": "timestamp", "fill": dt.datetime(1, 1, 1, tzinfo=EAST)}, "in the years 1 to 9999 in UTC"),
        ({"type": "date", "fill": "2026-02-30"}, "a day of the calendar"),
        ({"type": "binary", "fill": "%"}, "bytes in base64"),
        ({"type": "int", "field": ["a", "a"]}, "two columns are read from 'a'"),
        ({"type": "int", "field": ["a", "id"]}, "two columns are read from 'id'"),
        ({"type": "int", "field": []}, "is no text"),
    ],
)
def test_a_fill_or_name_that_can_not_be_is_refused(column: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigError, match="TABLE_INVALID") as raised:
        declare({"name": "t", "columns": {"id": "bigint", "c": column}, "primary_key": ["id"]})
    assert found in str(raised.value)


@pytest.mark.parametrize("more", [{"fill": 0}, {"field": ["id", "key"]}], ids=["fill", "names"])
def test_a_key_has_neither(more: dict[str, Any]) -> None:
    columns = {"id": {"type": "bigint", **more}, "c": "int"}
    with pytest.raises(ConfigError, match="a key has its columns in each record"):
        declare({"name": "t", "columns": columns, "primary_key": ["id"]})
