"""Events in Avro by a schema registry are decoded to what the reference decoder reads, sound and broken."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal

import pytest

from schemas.avro.registered import KnownSchemas
from schemas.errors import Code, InputError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import UpstreamFormat
from schemas.position import Key
from schemas.table import TableSchema, declare
from state.columns import TRANSACTION
from streaming.source.decoded import POSITION, UNCHANGED
from tests.kit.avro_events import events
from tests.kit.debezium import UNLISTED, recorded, recorded_schemas
from tests.kit.decoding import Record, by_reference, changes_of, differences
from tests.kit.single_records import single_records
from tests.kit.values import drawn
from tests.property.test_decoded_upserts import WIDE

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


def test_recorded_events_are_the_same_to_columns_and_reference() -> None:
    found: list[Record] = [(each.key, each.value) for each in recorded("avro") if "orders" in each.topic]
    assert differences(RECORDED, UNLISTED, found) == []
    refused = [said for said in by_reference(RECORDED, UNLISTED, found) if isinstance(said, str)]
    assert set(refused) == {Code.VALUE_OUT_OF_RANGE}  # "infinity" and 39 digits
    assert len(refused) < len(found) / 10
    rows = changes_of(RECORDED, UNLISTED, found).rows
    body = UNLISTED.column_names.index("body")
    assert [each for each in rows[UNCHANGED].to_pylist() if each] == [[body]]
    places = [tuple(each.values()) for each in rows[POSITION].to_pylist() if each]
    assert len(places) > 15
    assert TRANSACTION not in rows.column_names


def test_recorded_changes_tell_their_transactions() -> None:
    asked = RECORDED.with_transactions()
    found: list[Record] = [(each.key, each.value) for each in recorded("avro") if "orders" in each.topic]
    assert differences(asked, UNLISTED, found) == []
    numbers = set(changes_of(asked, UNLISTED, found).rows[TRANSACTION].drop_null().to_pylist())
    assert len(numbers) > 10


@pytest.mark.parametrize("topic", ["public.orders_default", "public.orders_full"])
def test_a_recording_in_avro_says_what_that_of_the_same_statements_in_json_says(topic: str) -> None:
    in_avro, in_json = (
        _by_key(name, format_, WITHOUT_UNIT, topic) for name, format_ in (("avro", RECORDED), ("plain", JSON))
    )
    assert in_avro == {key: in_json[key] for key in in_avro}
    assert len(in_avro) > 14


def _by_key(name: str, format_: UpstreamFormat, table: TableSchema, topic: str) -> dict[Key, list[Any]]:
    rows, found = single_records(format_, table.columns, table.key_columns), defaultdict[Key, list[Any]](list)
    for each in recorded(name):
        if each.topic == topic and each.key is not None:
            try:
                record = rows.read_record(each.key, each.value)
                said: Any = record.change, record.unchanged, record.position is None
            except InputError as error:
                said = error.code
            found[rows.read_key(each.key)].append(said)
    return found


def test_what_says_nothing_of_the_table_is_no_change_to_either() -> None:
    [message] = [(each.key, each.value) for each in recorded("avro") if each.topic == "message"]
    rows = single_records(RECORDED, UNLISTED.columns, UNLISTED.key_columns)
    assert rows.read_record(*message).change is None
    assert len(changes_of(RECORDED, UNLISTED, [message])) == 0


@pytest.mark.parametrize("odd", [False, True], ids=["sound", "odd"])
@pytest.mark.parametrize("before", ["ignored", "full"])
def test_random_events_are_the_same_to_columns_and_reference(
    before: Literal["ignored", "full"], odd: bool
) -> None:
    declared = DebeziumFormat(encoding="avro-registry", before=before)
    for schemas, found in drawn(events(WIDE, odd=odd, whole=declared.is_whole), 1):
        format_ = declared.with_schemas(KnownSchemas(schemas))
        assert differences(format_, WIDE, found) == []
        refused = [each for each in by_reference(format_, WIDE, found) if isinstance(each, str)]
        assert bool(refused) is odd
