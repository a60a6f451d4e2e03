"""Rows of `upsert` in Avro by a schema registry are decoded to what the reference decoder reads, sound and broken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.formats.upsert import KeyForm, UpsertFormat
from schemas.records import Op
from schemas.table import declare
from schemas.types import ColumnType
from state.columns import OP
from streaming.source.decoded import AWAITED, AWAITS, ERROR, RecordDecoder
from streaming.source.records import RecordVnodes, Routes
from tests.kit.avro_records import batches
from tests.kit.decoding import by_reference, differences, raw
from tests.kit.thorough import pairs
from tests.kit.values import KEY_TYPES, drawn
from tests.property.test_decoded_upserts import WIDE


@pytest.mark.parametrize("odd", [False, True], ids=["sound", "odd"])
def test_records_of_every_type_are_the_same_to_columns_and_reference(odd: bool) -> None:
    for schemas, found in drawn(batches(WIDE, key="record", odd=odd), 2):
        format_ = UpsertFormat(encoding="avro-registry").with_schemas(KnownSchemas(schemas))
        assert differences(format_, WIDE, found) == []
        if not odd:
            assert not [each for each in by_reference(format_, WIDE, found) if isinstance(each, str)]


@pytest.mark.parametrize(("form", "kind"), pairs(("record", "avro"), KEY_TYPES))
def test_keys_of_every_type_are_the_same_to_columns_and_reference(form: KeyForm, kind: ColumnType) -> None:
    table = declare({"name": "t", "columns": {"id": str(kind), "note": "string"}, "primary_key": ["id"]})
    [(schemas, found)] = drawn(batches(table, key=form, odd=True, count=100), 1)
    format_ = UpsertFormat(encoding="avro-registry", key=form).with_schemas(KnownSchemas(schemas))
    assert differences(format_, table, found) == []


RECORDED = Path(__file__).parents[1] / "kit" / "recorded_orders.json"
"""Keys and rows that Debezium's Avro converter wrote for a table in PostgreSQL, the envelope taken off."""
ORDERS = declare(
    {
        "name": "orders",
        "columns": {
            "region": "string",
            "id": "bigint",
            "amount": "decimal(18,2)",
            "price": "double",
            "at": "timestamp",
            "at_plain": "timestamp",
            "at_ms": "timestamp",
            "day": "date",
            "tm": "bigint",
            "doc": "string",
            "ok": "boolean",
            "raw": "binary",
            "mood": "string",
            "new": "int",
        },
        "primary_key": ["region", "id"],
    }
)


def test_recorded_rows_are_the_same_to_columns_and_reference() -> None:
    recorded = json.loads(RECORDED.read_text())
    schemas = [WriterSchema(int(number), json.dumps(each)) for number, each in recorded["schemas"].items()]
    found = [
        (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        for key, value in recorded["records"]
    ]
    format_ = UpsertFormat(encoding="avro-registry").with_schemas(KnownSchemas(tuple(schemas)))
    assert differences(format_, ORDERS, found) == []
    codes = [each for each in by_reference(format_, ORDERS, found) if isinstance(each, str)]
    assert codes == ["VALUE_OUT_OF_RANGE"]  # a timestamp of infinity, which is text


def test_a_record_that_names_an_unknown_schema_awaits_it_in_the_lanes_that_it_may_be_for() -> None:
    recorded = json.loads(RECORDED.read_text())
    schemas = [WriterSchema(int(number), json.dumps(each)) for number, each in recorded["schemas"].items()]
    known = UpsertFormat(encoding="avro-registry").with_schemas(KnownSchemas(tuple(schemas)))
    key, value = bytes.fromhex(recorded["records"][0][0]), bytes.fromhex(recorded["records"][0][1])
    records = raw(
        [
            (key, value),
            (key, frame(99) + value[5:]),
            (frame(98) + key[5:], None),
            (frame(98) + key[5:], frame(99) + value[5:]),
            (b"\x01" + key[1:], value),
            (key, b"\x01" + value[1:]),
        ]
    )

    def seen(format_: UpsertFormat) -> list[tuple[int | None, list[int] | None, str | None, set[int]]]:
        vnodes = RecordVnodes(format_, ORDERS).of(records)
        placed = Routes(3, ORDERS.vnode_count).placed(records, vnodes)
        batch = RecordDecoder(format_, ORDERS).decoded(records, vnodes.numbers)
        errors = (error and error["code"] for error in batch[ERROR].to_pylist())
        lanes = ({lane for lane in range(3) if placed.among(lane)[row]} for row in range(len(batch)))
        return list(zip(batch[OP].to_pylist(), batch[AWAITED].to_pylist(), errors, lanes, strict=True))

    own = seen(known)[0][3]
    assert len(own) == 1
    every, insert, delete = {0, 1, 2}, Op.INSERT.value, Op.DELETE.value
    broken = [(None, None, "KEY_MISMATCH", {0}), (None, None, "CHANGE_MALFORMED", own)]
    assert seen(known) == [
        (insert, None, None, own),
        (AWAITS, [99], None, own),
        (AWAITS, [98], None, every),
        (AWAITS, [98, 99], None, every),
        *broken,
    ]
    refused = known.with_schemas(replace(known.known, refused=frozenset({98, 99})))
    unknown = "SCHEMA_UNKNOWN"
    assert seen(refused) == [
        (insert, None, None, own),
        (None, None, unknown, own),
        *[(None, None, unknown, every)] * 2,
        *broken,
    ]
    more = [WriterSchema(99, schemas[1].text), WriterSchema(98, schemas[0].text)]
    sound = [(insert, None, None, own)] * 2 + [(delete, None, None, own), (insert, None, None, own)]
    assert seen(known.with_schemas(KnownSchemas((*schemas, *more)))) == [*sound, *broken]
