"""Spark's columns and the strict twin of `debezium` agree on Avro by a schema registry, sound and broken."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from schemas.avro.registered import KnownSchemas
from schemas.errors import Code, InputError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Format
from schemas.position import Key
from schemas.table import TableSchema, declare
from state.columns import TRANSACTION
from streaming.source.decoded import POSITION, UNCHANGED
from tests.kit.avro_events import events
from tests.kit.debezium import UNLISTED, recorded, recorded_schemas
from tests.kit.drawn import drawn
from tests.property.test_debezium_twin import transactions_by_both
from tests.property.test_upsert_twin import WIDE, Record, by_the_twin, decoded, differences

RECORDED = DebeziumFormat(encoding="avro-registry").with_schemas(recorded_schemas())
JSON = DebeziumFormat(time="microseconds", decimal="precise")
WITHOUT_UNIT = declare(
    {
        "name": UNLISTED.name,
        "columns": {each.name: str(each.type) for each in UNLISTED.columns if each.name != "at_ms"},
        "primary_key": list(UNLISTED.primary_key),
    }
)
"""In JSON the unit of `at_ms` is in frames alone, and this recording has none."""


@pytest.mark.timeout(600)
def test_recorded_events_are_the_same_to_both(spark: SparkSession) -> None:
    found: list[Record] = [(each.key, each.value) for each in recorded("avro") if "orders" in each.topic]
    assert differences(spark, RECORDED, UNLISTED, found) == []
    refused = [said for said in by_the_twin(RECORDED, UNLISTED, found) if isinstance(said, str)]
    assert set(refused) == {Code.VALUE_OUT_OF_RANGE}  # "infinity" and 39 digits
    assert len(refused) < len(found) / 10
    rows = decoded(spark, RECORDED, UNLISTED, found).rows
    body = UNLISTED.column_names.index("body")
    assert [each for each in rows[UNCHANGED].to_pylist() if each] == [[body]]
    places = [tuple(each.values()) for each in rows[POSITION].to_pylist() if each]
    assert len(places) > 15
    assert TRANSACTION not in rows.column_names


@pytest.mark.timeout(600)
def test_recorded_changes_tell_their_transactions(spark: SparkSession) -> None:
    asked = RECORDED.with_transactions()
    found: list[Record] = [(each.key, each.value) for each in recorded("avro") if "orders" in each.topic]
    assert differences(spark, asked, UNLISTED, found) == []
    numbers = {each for each in transactions_by_both(spark, asked, UNLISTED, found) if each is not None}
    assert len(numbers) > 10


@pytest.mark.parametrize("topic", ["public.orders_default", "public.orders_full"])
def test_a_recording_in_avro_says_what_that_of_the_same_statements_in_json_says(topic: str) -> None:
    in_avro, in_json = (
        _by_key(name, format_, WITHOUT_UNIT, topic) for name, format_ in (("avro", RECORDED), ("plain", JSON))
    )
    assert in_avro == {key: in_json[key] for key in in_avro}
    assert len(in_avro) > 14


def _by_key(name: str, format_: Format, table: TableSchema, topic: str) -> dict[Key, list[Any]]:
    rows, found = format_.rows(table.columns, table.key_columns), defaultdict[Key, list[Any]](list)
    for each in recorded(name):
        if each.topic == topic and each.key is not None:
            try:
                record = rows.read_record(each.key, each.value)
                said: Any = record.change, record.unchanged, record.position is None
            except InputError as error:
                said = error.code
            found[rows.read_key(each.key)].append(said)
    return found


@pytest.mark.timeout(600)
def test_what_says_nothing_of_the_table_is_no_change_to_either(spark: SparkSession) -> None:
    [message] = [(each.key, each.value) for each in recorded("avro") if each.topic == "message"]
    rows = RECORDED.rows(UNLISTED.columns, UNLISTED.key_columns)
    assert rows.read_record(*message).change is None
    assert len(decoded(spark, RECORDED, UNLISTED, [message])) == 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("odd", [False, True], ids=["sound", "odd"])
@pytest.mark.parametrize("before", ["ignored", "full"])
def test_random_events_are_the_same_to_both(
    spark: SparkSession, before: Literal["ignored", "full"], odd: bool
) -> None:
    declared = DebeziumFormat(encoding="avro-registry", before=before)
    for schemas, found in drawn(events(WIDE, odd=odd, whole=declared.is_whole), 1):
        format_ = declared.with_schemas(KnownSchemas(schemas))
        assert differences(spark, format_, WIDE, found) == []
        refused = [each for each in by_the_twin(format_, WIDE, found) if isinstance(each, str)]
        assert bool(refused) is odd
