"""Spark's columns and the strict twin of `upsert` agree on Avro by a schema registry, sound and broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from schemas.avro.registered import KnownSchemas, WriterSchema
from schemas.formats.upsert import KeyForm, UpsertFormat
from schemas.table import declare
from schemas.types import ColumnType
from tests.kit.avro_records import batches
from tests.kit.values import KEY_TYPES
from tests.property.test_upsert_twin import WIDE, by_the_twin, differences, drawn


@pytest.mark.parametrize("odd", [False, True], ids=["sound", "odd"])
@pytest.mark.timeout(600)
def test_records_of_every_type_are_the_same_to_both(spark: SparkSession, odd: bool) -> None:
    for schemas, found in drawn(batches(WIDE, key="record", odd=odd), 5):
        format_ = UpsertFormat(encoding="avro-registry").with_schemas(KnownSchemas(schemas))
        assert differences(spark, format_, WIDE, found) == []
        if not odd:
            assert not [each for each in by_the_twin(format_, WIDE, found) if isinstance(each, str)]


@pytest.mark.parametrize("form", ["record", "avro"])
@pytest.mark.parametrize("kind", KEY_TYPES, ids=str)
@pytest.mark.timeout(600)
def test_keys_of_every_type_are_the_same_to_both(
    spark: SparkSession, form: KeyForm, kind: ColumnType
) -> None:
    table = declare({"name": "t", "columns": {"id": str(kind), "note": "string"}, "primary_key": ["id"]})
    [(schemas, found)] = drawn(batches(table, key=form, odd=True, count=100), 1)
    format_ = UpsertFormat(encoding="avro-registry", key=form).with_schemas(KnownSchemas(schemas))
    assert differences(spark, format_, table, found) == []


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


def test_recorded_rows_are_the_same_to_both(spark: SparkSession) -> None:
    recorded = json.loads(RECORDED.read_text())
    schemas = [WriterSchema(int(number), json.dumps(each)) for number, each in recorded["schemas"].items()]
    found = [
        (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
        for key, value in recorded["records"]
    ]
    format_ = UpsertFormat(encoding="avro-registry").with_schemas(KnownSchemas(tuple(schemas)))
    assert differences(spark, format_, ORDERS, found) == []
    codes = [each for each in by_the_twin(format_, ORDERS, found) if isinstance(each, str)]
    assert codes == ["CHANGE_MALFORMED"]  # a timestamp of infinity, which is text
