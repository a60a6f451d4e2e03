"""Spark's columns and the strict twin of `upsert` agree on Avro by a schema registry, sound and broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.formats.upsert import KeyForm, UpsertFormat
from schemas.records import Op
from schemas.table import declare
from schemas.types import ColumnType
from state.columns import OFFSET, OP
from streaming.kafka.clients import KafkaSettings
from streaming.source.decoded import AWAITS, VALUE
from streaming.source.kafka import UpstreamSource
from tests.kit.avro_records import batches
from tests.kit.drawn import drawn
from tests.kit.thorough import pairs
from tests.kit.values import KEY_TYPES
from tests.property.test_upsert_twin import SCHEMA, WIDE, by_the_twin, differences


@pytest.mark.parametrize("odd", [False, True], ids=["sound", "odd"])
@pytest.mark.timeout(600)
def test_records_of_every_type_are_the_same_to_both(spark: SparkSession, odd: bool) -> None:
    for schemas, found in drawn(batches(WIDE, key="record", odd=odd), 2):
        format_ = UpsertFormat(encoding="avro-registry").with_schemas(KnownSchemas(schemas))
        assert differences(spark, format_, WIDE, found) == []
        if not odd:
            assert not [each for each in by_the_twin(format_, WIDE, found) if isinstance(each, str)]


@pytest.mark.parametrize(("form", "kind"), pairs(("record", "avro"), KEY_TYPES))
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
    assert codes == ["VALUE_OUT_OF_RANGE"]  # a timestamp of infinity, which is text


def test_a_record_that_names_an_unknown_schema_comes_to_every_lane(spark: SparkSession) -> None:
    recorded = json.loads(RECORDED.read_text())
    schemas = [WriterSchema(int(number), json.dumps(each)) for number, each in recorded["schemas"].items()]
    known = UpsertFormat(encoding="avro-registry").with_schemas(KnownSchemas(tuple(schemas)))
    sound = bytes.fromhex(recorded["records"][0][0]), bytes.fromhex(recorded["records"][0][1])
    found = [
        sound,
        (sound[0], frame(99) + sound[1][5:]),
        (frame(98) + sound[0][5:], None),
        (sound[0], b"\x01" + sound[1][1:]),
    ]
    rows = [(0, offset, *record, None) for offset, record in enumerate(found)]
    source = UpstreamSource(
        lambda: spark, KafkaSettings("unused"), "up", ORDERS, format_=known, holds_barriers=False
    )

    def lanes() -> dict[int, tuple[int | None, set[int], int]]:
        decoded = source.lane_rows(spark.createDataFrame(rows, SCHEMA), 3)
        came = decoded.select(OFFSET, OP, VALUE, F.spark_partition_id().alias("lane")).collect()
        return {
            offset: (
                next(row[OP] for row in came if row[OFFSET] == offset),
                {row["lane"] for row in came if row[OFFSET] == offset},
                max(len(row[VALUE] or b"") for row in came if row[OFFSET] == offset),
            )
            for offset in range(len(found))
        }

    before = lanes()
    assert before[1] == (AWAITS, {0, 1, 2}, 5)
    assert before[2] == (AWAITS, {0, 1, 2}, 0)
    assert before[3] == (None, {0}, len(sound[1]))
    assert before[0][0] == Op.INSERT.value
    more = [WriterSchema(99, schemas[1].text), WriterSchema(98, schemas[0].text)]
    source.read_as(known.with_schemas(KnownSchemas((*schemas, *more))))
    after = lanes()
    own = before[0][1]
    assert len(own) == 1
    assert {offset: each[:2] for offset, each in after.items()} == {
        0: (Op.INSERT.value, own),
        1: (Op.INSERT.value, own),
        2: (Op.DELETE.value, own),
        3: (None, {0}),
    }
