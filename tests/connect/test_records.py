"""Records of real connectors, and records for real ones, without a service between: every type, in every form."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer

from schemas.formats.debezium import DebeziumFormat
from schemas.formats.outputs.formats import DebeziumOutput, UpsertOutput
from schemas.formats.protocol import OutputFormat
from schemas.position import Key
from schemas.records import EPOCH_HEADER, Change, Op, Row
from schemas.table import TableSchema, declare
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from tests.connect.test_postgres_in import FORMS
from tests.kit.connect import orders
from tests.kit.connect.postgres import Postgres
from tests.kit.connect.sink import Sink
from tests.kit.connect.source import Source
from tests.kit.connect.worker import Connect
from tests.kit.connect.writers import Writers
from tests.kit.real import records
from tests.kit.sent_records import sent_change, sent_key, sent_row
from tests.kit.single_records import single_records

pytestmark = pytest.mark.connect


def fold(kafka: KafkaSettings, topic: str, table: TableSchema, format_: DebeziumFormat) -> dict[Key, Row]:
    """The rows that a connector's records add up to, read one by one."""
    reader, rows = single_records(format_, table.columns, table.key_columns), dict[Key, Row]()
    for message in (message for part in records(kafka, topic) for message in part):
        raw, value = message.key(), message.value()
        assert isinstance(raw, bytes)
        assert value is None or isinstance(value, bytes)
        found, key = reader.read_record(raw, value), reader.read_key(raw)
        assert found.change is not None
        if found.change.after is None:
            rows.pop(key, None)
            continue
        after = list(found.change.after)
        for index in found.unchanged:
            after[index] = rows[key][index]
        rows[key] = tuple(after)
    return rows


@pytest.mark.parametrize("form", FORMS)
def test_a_connectors_records_read_as_what_the_database_has(
    postgres: Postgres, connect: Connect, bootstrap: str, form: str
) -> None:
    kafka, name = KafkaSettings(bootstrap), f"r{uuid.uuid4().hex[:8]}"
    read_as, settings = FORMS[form]
    table = declare(orders.declared(("clock",) if form == "text" else ()))
    postgres.create(name, *orders.MADE)
    create_topic(kafka, topic := f"{name}.public.orders", 3)
    writers, source = (
        Writers(postgres, name, seed=len(form)),
        Source(connect, postgres, name, "public.orders", settings),
    )
    writers.write(400)
    source.begin()
    try:
        for identity in ("DEFAULT", "FULL", "DEFAULT"):
            with postgres.connect(name) as session:
                session.execute(f"ALTER TABLE orders REPLICA IDENTITY {identity}")
            writers.write(500)
        source.await_all()
    finally:
        writers.close()
        source.end()
    format_ = DebeziumFormat.model_validate({"decimal": "precise", **read_as})
    found = orders.comparable(fold(kafka, topic, table, format_))
    assert found == orders.selected(postgres, name, table.column_names)
    assert len(found) > 50


OUTPUTS: dict[str, OutputFormat] = {
    "events": DebeziumOutput(encoding="json-schema"),
    "events without tombstones": DebeziumOutput(encoding="json-schema", tombstones=False),
    "rows": UpsertOutput(encoding="json-schema"),
}
SIMPLE = {"header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"}
"""Connect's own, which guesses a type from the text of a header."""


def send(
    kafka: KafkaSettings, topic: str, format_: OutputFormat, old: Mapping[Key, Row], new: Mapping[Key, Row]
) -> None:
    """All of the old rows as a snapshot, then what makes the new ones of them."""
    table = declare(orders.declared())
    producer = Producer(kafka.producer())

    def produce(key: Key, value: bytes | None) -> None:
        headers: list[tuple[str, str | bytes | None]] = [(EPOCH_HEADER, b"10002471321600000")]
        producer.produce(topic, value, sent_key(format_, table.key_columns, key), 0, headers=headers)

    for key, row in old.items():
        produce(key, sent_row(format_, table.columns, row))
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
        produce(key, sent_change(format_, table.columns, Change(op, before, after)))
        if op is Op.DELETE and format_.tombstone_follows:
            produce(key, None)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("form", OUTPUTS)
def test_a_sink_keeps_a_table_of_every_type(
    postgres: Postgres, connect: Connect, bootstrap: str, form: str
) -> None:
    kafka, name = KafkaSettings(bootstrap), f"s{uuid.uuid4().hex[:8]}"
    postgres.create(name, *orders.MADE)
    writers = Writers(postgres, name, seed=7)
    writers.write(300)
    old = orders.read(postgres, name)
    writers.write(300)
    new = orders.read(postgres, name)
    writers.close()
    assert old.keys() - new.keys()
    assert new.keys() - old.keys()
    create_topic(kafka, name, 1)
    over: dict[str, Any] = SIMPLE if form == "rows" else {}
    sink = Sink(connect, postgres, name, f"kept_{name}", name, over)
    send(kafka, name, OUTPUTS[form], old, new)
    sink.begin()
    try:
        sink.await_all(kafka)
        assert sink.differences(orders.NAMES, orders.through_json(new).values()) == (0, 0)
        assert sink.count() == len(new)
    finally:
        sink.end()
