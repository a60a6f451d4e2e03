"""Fields of each type by a schema registry: columns read what single records do, and nothing that these refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro.registered import KnownSchemas, WriterSchema
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.upsert import KeyForm, UpsertFormat
from schemas.table import TableSchema, declare
from schemas.types import ColumnType, TypeName
from tests.kit.avro_records import OUTSIDE, bare, fields_for, framed
from tests.kit.decoding import Record
from tests.kit.two_ways import agree, one_by_one
from tests.kit.values import TYPES, examples
from tests.unit.test_registered_rows import INCOMPATIBLE, OTHER_TYPES

UPSERT = UpsertFormat(encoding="avro-registry")
few = settings(max_examples=examples(40))


def of_one(
    kind: ColumnType, schema: Any, values: Sequence[Any]
) -> tuple[UpstreamFormat, TableSchema, list[Record]]:
    """Rows of one column beside the key."""
    table = declare({"name": "t", "columns": {"id": "bigint", "c": str(kind)}, "primary_key": ["id"]})
    row = {"type": "record", "name": "Row", "fields": [{"name": "c", "type": schema}]}
    schemas = KnownSchemas((WriterSchema(8, '"long"'), WriterSchema(9, json.dumps(row))))
    plain = {**row, "fields": [{"name": "c", "type": bare(schema)}]}
    found: list[Record] = [
        (framed(8, "long", number), framed(9, plain, {"c": each})) for number, each in enumerate(values)
    ]
    return UpsertFormat(encoding="avro-registry", key="avro").with_schemas(schemas), table, found


FIELDS = [(kind, schema, values) for kind in TYPES for schema, values in fields_for(kind)]
every_field = pytest.mark.parametrize(
    ("kind", "schema", "values"), FIELDS, ids=[f"{kind}-{number}" for number, (kind, *_) in enumerate(FIELDS)]
)


@every_field
@few
@given(data=st.data())
def test_fields_of_each_type_are_read(
    kind: ColumnType, schema: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    optional = data.draw(st.sampled_from([schema, ["null", schema], [schema, "null"]]))
    drawn = values if optional is schema else st.none() | values
    found = data.draw(st.lists(drawn, min_size=1, max_size=6))
    assert agree(*of_one(kind, optional, found)) or left_to_the_twin(kind, schema, found)


def left_to_the_twin(kind: ColumnType, schema: Any, found: Sequence[Any]) -> bool:
    """Texts in forms that are not usual, decimals of more than 16 bytes, and NaN, of which there are many."""
    is_text = schema == "string" or "ZonedTimestamp" in str(schema)
    is_long = kind.name is TypeName.DECIMAL and isinstance(schema, dict) and schema.get("size", 0) > 16
    return (is_text and kind.name is not TypeName.STRING) or is_long or any(each != each for each in found)


@every_field
@few
@given(data=st.data())
def test_no_value_is_read_that_the_twin_refuses(
    kind: ColumnType, schema: Any, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    avro = bare(schema)
    avro = avro["type"] if isinstance(avro, dict) else avro
    found = data.draw(st.lists(OUTSIDE.get(avro, values) | values, min_size=1, max_size=2))
    if avro == "int" and not all(-(2**31) <= each < 2**31 for each in found):
        return
    agree(*of_one(kind, schema, found))


@pytest.mark.parametrize(("kind", "schema", "raw"), INCOMPATIBLE)
def test_what_does_not_fit_its_column_is_odd(kind: str, schema: Any, raw: Any) -> None:
    if schema != "int":
        assert not agree(*of_one(ColumnType.parse(kind), schema, [raw]))


@pytest.mark.parametrize(("kind", "schema", "raw", "value"), OTHER_TYPES)
def test_other_types_that_say_the_same_are_read(kind: str, schema: Any, raw: Any, value: Any) -> None:
    is_read = agree(*of_one(ColumnType.parse(kind), schema, [raw, raw]))
    assert is_read or raw == "1970-01-01T01:00:00+01:00"


KEYED = declare({"name": "t", "columns": {"id": "bigint", "n": "bigint"}, "primary_key": ["id"]})


@pytest.mark.parametrize(
    ("skipped", "values"),
    [
        ("null", [None]),
        ("boolean", [True]),
        ("int", [-(2**31)]),
        ("float", [0.5]),
        ("double", [0.5]),
        ("bytes", [b"", b"x" * 200]),
        (["null", "string", {"type": "fixed", "name": "F", "size": 3}], [None, "x", b"abc"]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["A", "B"]),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}]},
            [{"a": None}, {"a": 1}],
        ),
        ({"type": "array", "items": ["null", "long"]}, [[], [7], [None, 1 << 40, 3]]),
        ({"type": "map", "values": "string"}, [{}, {"a": "x", "b": ""}]),
    ],
)
def test_fields_of_every_type_are_passed_over(skipped: Any, values: list[Any]) -> None:
    row = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "s", "type": skipped}, {"name": "n", "type": "long"}],
    }
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    known = UPSERT.with_schemas(
        KnownSchemas((WriterSchema(1, json.dumps(key)), WriterSchema(2, json.dumps(row))))
    )
    found = [
        (framed(1, key, {"id": number}), framed(2, row, {"s": value, "n": number}))
        for number, value in enumerate([*values, *values])
    ]
    assert agree(known, KEYED, found)


def test_a_long_list_is_left_to_the_fallback_and_one_in_blocks_is_not() -> None:
    items = {"type": "array", "items": "long"}
    row = {"type": "record", "name": "Row", "fields": [{"name": "s", "type": items}]}
    schemas = KnownSchemas((WriterSchema(1, '"long"'), WriterSchema(2, json.dumps(row))))
    format_ = UpsertFormat(encoding="avro-registry", key="avro").with_schemas(schemas)
    key = framed(1, "long", 7)
    long = key, framed(2, row, {"s": [0] * 101})
    assert one_by_one(format_, KEYED, [long])
    assert not agree(format_, KEYED, [long])
    in_blocks = key, framed(2, row, {"s": []})[:5] + b"\x02\x0e\x02\x0e\x00"
    assert one_by_one(format_, KEYED, [in_blocks])
    assert agree(format_, KEYED, [in_blocks])
    assert agree(format_, KEYED, [(key, framed(2, row, {"s": [0] * 100}))] * 100)


def test_keys_in_other_forms_are_read_as_well() -> None:
    row = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}
    schemas = KnownSchemas((WriterSchema(2, json.dumps(row)),))
    forms: tuple[KeyForm, ...] = ("json", "text")
    for form in forms:
        format_ = UpsertFormat(encoding="avro-registry", key=form).with_schemas(schemas)
        assert agree(format_, KEYED, [(b"7", framed(2, row, {"n": 1})), (b"8", None)])
