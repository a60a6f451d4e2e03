"""Declared columns are looked for in a topic's first records: by `doctor`, and by a service before it makes a state."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from schemas.errors import Code, ConfigError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import UpstreamFormat
from schemas.formats.row_names import SeenNames, refuse_absent
from schemas.formats.upsert import UpsertFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.settings.config import check
from schemas.table import TableSchema, declare
from schemas.topics import UpstreamSection
from streaming.cli.app import main
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import watermarks
from streaming.service.checks.first_records import OF_PARTITION, FirstRecords, read_first
from streaming.source.direct_read import OF_A_LOOK, NewestRows
from tests.kit.debezium import UNLISTED, recorded, recorded_schemas

pytestmark = pytest.mark.kafka


def table(**columns: Any) -> TableSchema:
    return declare({"name": "t", "columns": {"id": "bigint"} | columns, "primary_key": ["id"]})


def first(
    kafka: KafkaSettings, topic: str, format_: UpstreamFormat, table: TableSchema, begins: Sequence[int] = ()
) -> FirstRecords:
    """The first records of a topic in this format, as a start judges them."""
    declared = {"upstream": topic, "state": "state", "table": table.to_dict()}
    config = check(declared, path=Path("config.yaml"))
    source = UpstreamSection(topic, format_)
    schemas = format_.schemas_by_id if isinstance(format_, RegistryFormat) else None
    as_given = config.model_copy(update={"source": source, "table": table})
    return read_first(as_given, kafka, begins, schemas=schemas)


def check_columns(
    kafka: KafkaSettings, topic: str, format_: UpstreamFormat, table: TableSchema, begins: Sequence[int] = ()
) -> SeenNames:
    seen = first(kafka, topic, format_, table, begins).names
    assert seen is not None
    refuse_absent(seen, topic)
    return seen


def send(bootstrap: str, topic: str, rows: list[tuple[int, Any]], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, (partition, row) in enumerate(rows):
        value = None if row is None else json.dumps(row)
        producer.produce(topic, value, json.dumps({"id": number}), partition, **more)
    assert producer.flush(30) == 0


def test_columns_are_looked_for_in_the_first_rows_of_each_partition(
    bootstrap: str, topic: Callable[..., str]
) -> None:
    name, kafka, rows = topic(partitions=3), KafkaSettings(bootstrap), UpsertFormat()
    assert check_columns(kafka, name, rows, table(a="bigint")).rows == 0  # there is nothing to judge
    beyond: list[tuple[int, Any]] = [(0, {"x": 1})] * OF_PARTITION + [(0, {"a": 1})]
    send(bootstrap, name, [*beyond, (1, None), (2, {"y": None})])
    with pytest.raises(ConfigError) as caught:
        check_columns(kafka, name, rows, table(a="bigint", x="bigint"))
    assert (caught.value.code, caught.value.where) == (Code.COLUMN_ABSENT, name)
    assert "1,001 rows without column a; their other fields: 'y'" in caught.value.found
    seen = check_columns(kafka, name, rows, table(a="bigint", x="bigint"), [1, 0, 0])
    assert seen.rows == OF_PARTITION + 1
    assert check_columns(kafka, name, rows, table(x="int", y="int")).rows == OF_PARTITION + 1


@pytest.mark.parametrize("form", ["plain", "schemas", "avro"])
def test_columns_of_recorded_events_are_found(bootstrap: str, topic: Callable[..., str], form: str) -> None:
    name = topic(partitions=3)
    producer = Producer({"bootstrap.servers": bootstrap})
    for each in recorded(form):
        if "orders" in each.topic:
            producer.produce(name, each.value, each.key, each.partition)
    assert producer.flush(30) == 0
    format_ = DebeziumFormat(time="microseconds", decimal="precise")
    if form == "avro":
        format_ = DebeziumFormat(encoding="avro-registry").with_schemas(recorded_schemas())
    seen = check_columns(KafkaSettings(bootstrap), name, format_, UNLISTED)
    assert "tags" in seen.undeclared
    declared = UNLISTED.to_dict()
    wrong = declare({**declared, "columns": declared["columns"] | {"amout": "decimal(18,2)"}})
    with pytest.raises(ConfigError, match="column amout"):
        check_columns(KafkaSettings(bootstrap), name, format_, wrong)


def test_doctor_says_it_as_a_start_would(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = topic(partitions=1)
    send(bootstrap, name, [(0, {"a": number, "more": 1}) for number in range(3)])

    def columns(**declared: Any) -> dict[str, str]:
        config = {
            "kafka": {"bootstrap": bootstrap},
            "upstream": {"topic": name, "format": "upsert"},
            "state": "state",
            "table": {"name": "t", "columns": {"id": "int"} | declared, "primary_key": ["id"]},
        }
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        capsys.readouterr()
        main(["doctor", str(path), "--json"])
        [found] = [
            each for each in json.loads(capsys.readouterr().out)["findings"] if each["subject"] == "columns"
        ]
        return dict(found)

    found = columns(a="int")
    assert (found["verdict"], found["found"]) == (
        "ok",
        "each is in some of 3 first rows, which have 1 fields that are not declared: more",
    )
    found = columns(b="int")
    assert found["verdict"] == "failed"
    assert found["found"].startswith(f"COLUMN_ABSENT at {name}: found 3 rows without column b")
    assert columns(a="int", b={"type": "int", "fill": None})["verdict"] == "ok"


def test_newest_rows_are_looked_at_as_they_come(bootstrap: str, topic: Callable[..., str]) -> None:
    name, kafka = topic(partitions=2), KafkaSettings(bootstrap)
    newest = NewestRows(kafka, name, UpsertFormat(), table(a="bigint", b="bigint"))
    try:
        assert newest.look(watermarks(kafka, name)).rows == 0
        send(bootstrap, name, [(0, {"a": 1, "x": 1}), (1, None), (1, {"b": None})])
        assert newest.look(watermarks(kafka, name))[:4] == (2, (), (), ("x",))
        assert newest.look(watermarks(kafka, name)).rows == 2
        send(bootstrap, name, [(0, {"a": 1})] * OF_A_LOOK)
        assert newest.look(watermarks(kafka, name)).rows == 2 + OF_A_LOOK // 2
    finally:
        newest.close()


def event(number: int, lsn: int, ts_ms: int) -> dict[str, Any]:
    source = {"connector": "postgresql", "name": "shop", "db": "shop", "snapshot": "false", "ts_ms": ts_ms}
    place = {"sequence": f'["{lsn}","{lsn}"]', "lsn": lsn}
    return {"op": "c", "before": None, "after": {"id": number, "a": 1}, "source": source | place}


def test_two_connectors_under_one_name_are_reported(bootstrap: str, topic: Callable[..., str]) -> None:
    name, kafka, format_ = topic(partitions=2), KafkaSettings(bootstrap), DebeziumFormat()
    assert first(kafka, name, format_, table(a="bigint")).log_count == 0
    one = [event(n, 5_000 + n, n) for n in range(20)]
    send(bootstrap, name, [(0, each) for each in one])
    alone = first(kafka, name, format_, table(a="bigint"))
    alone.refuse_shared_logs()
    assert (alone.log_count, alone.count, alone.faults) == (1, 20, [])
    # The other database's changes come between, in the other partition.
    two = [event(n, n % 2 * 900_000 + n, 100 + n) for n in range(10)]
    send(bootstrap, name, [(1, each) for each in two])
    with pytest.raises(ConfigError) as caught:
        first(kafka, name, format_, table(a="bigint")).refuse_shared_logs()
    assert (caught.value.code, caught.value.where) == (Code.LOG_SHARED, f"{name}-1")
    assert "postgresql shop/shop goes back and forth" in caught.value.found
    accepting = DebeziumFormat(on_log_reset="accept")
    assert first(kafka, name, accepting, table(a="bigint")).logs is None
    assert first(kafka, name, UpsertFormat(), table(a="bigint")).logs is None
