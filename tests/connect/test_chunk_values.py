"""A value that is read in a chunk is the value that a real connector's event of the row has, for every type."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import BackfillError, Code
from schemas.formats.debezium import DebeziumFormat
from schemas.json.debezium_values import TimeMode
from schemas.position import Key
from schemas.records import Row
from schemas.table import TableSchema, declare
from state.values.chunks import KeyRange
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.postgres.checks import Declared
from streaming.postgres.columns import EventForms
from streaming.postgres.reader import ChunkReader
from streaming.postgres.start import Connector, Expected, check_connector, connector_at
from tests.connect.test_postgres_in import FRAMES
from tests.connect.test_records import fold
from tests.kit.connect import orders
from tests.kit.connect.postgres import Postgres
from tests.kit.connect.source import Source
from tests.kit.connect.table import Database, Pieces, by_key
from tests.kit.connect.worker import Connect
from tests.kit.connect.writers import Writers

pytestmark = [pytest.mark.connect, pytest.mark.timeout(600)]
FORMS: Mapping[TimeMode, Mapping[str, str]] = {
    "microseconds": {"time.precision.mode": "microseconds"},
    "connect": {"time.precision.mode": "connect"},
    "adaptive": {"time.precision.mode": "adaptive", **FRAMES},
    "isostring": {"time.precision.mode": "isostring"},
}
# Name: what the database has it as, what it is declared as (in the mode isostring), and values of it.
FURTHER: dict[str, tuple[str, str, Sequence[str]]] = {
    "id": ("bigint PRIMARY KEY", "bigint", ()),
    "padded": ("char(6)", "string", ("'ab'", "'ü'", "''")),
    "short": ("varchar(9)", "string", ("'NULL'", "E'a\\tb'", "'\\.'")),
    "address": ("inet", "string", ("'10.1.2.3'", "'10.0.0.0/8'", "'::1'")),
    "network": ("cidr", "string", ("'10.0.0.0/8'", "'10.1.2.3/32'")),
    "card": ("macaddr", "string", ("'08:00:2b:01:02:03'",)),
    "plain": ("json", "string", ('\'{"b" :  1, "a": [1, 2.50]}\'', "'\"x\"'")),
    "marked": ("xml", "string", ("'<a b=\"1\">x &amp; y</a>'",)),
    "small_numbers": ("smallint[]", "string", ("'{1,NULL,-3}'", "'{}'")),
    "big_numbers": ("bigint[]", "string", ("'{9223372036854775807}'", "'{-1,0}'")),
    "flags": ("boolean[]", "string", ("'{t,f,NULL}'",)),
    "ids": ("uuid[]", "string", ("'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}'",)),
    "words": (
        "text[]",
        "string",
        ("ARRAY['ü', '🙂', E'\\x1f', E'\\n', '\"', NULL, '\\\\']", "ARRAY['NULL', '']"),
    ),
    "whole": ("numeric(12)", "decimal(12,0)", ("123456789012", "-1", "'NaN'")),
    "wider": ("numeric(9,2)", "decimal(20,5)", ("1.5", "-0.01", "'NaN'")),
    "millis": ("timestamp(3)", "timestamp", ("'2024-02-29 12:00:00.123456'", "'1969-12-31 23:59:59.9995'")),
    "zoned_millis": ("timestamptz(3)", "timestamp", ("'2024-02-29 12:00:00.123456+02'",)),
    "at": (
        "timestamp",
        "timestamp",
        ("'2024-02-29 12:00:00.123456'", "'1969-12-31 23:59:59.999999'", "'0001-01-01'"),
    ),
    "clock": ("time", "bigint", ("'23:59:59.999999'", "'00:00'", "'12:30:15.5'")),
    "clock_millis": ("time(3)", "bigint", ("'23:59:59.9994'", "'00:00:00.001'")),
    "day": ("date", "date", ("'1582-10-15'", "'1582-10-04'", "'0001-01-01'", "'9999-12-31'")),
}


SCALED = ("wider",)
"""Whose scale is another one than declared, which only records with their schema tell."""


def declared_further(time: TimeMode) -> dict[str, str]:
    """A time of day is text in the mode `isostring`, and a number else."""
    return {
        name: "string" if time == "isostring" and name.startswith("clock") else kind
        for name, (_, kind, _) in FURTHER.items()
        if time == "adaptive" or name not in SCALED
    }


def further() -> list[str]:
    made = ", ".join(f"{name} {kind}" for name, (kind, _, _) in FURTHER.items())
    most = max(len(values) for _, _, values in FURTHER.values())
    rows = [
        [
            str(number),
            *(
                values[number] if number < len(values) else "NULL"
                for _, _, values in list(FURTHER.values())[1:]
            ),
        ]
        for number in range(most + 1)
    ]
    return [
        f"CREATE TABLE further ({made})",
        *(f"INSERT INTO further VALUES ({', '.join(row)})" for row in rows),  # noqa: S608
    ]


def chunks(database: Database, table: TableSchema, name: str, time: TimeMode) -> dict[Key, Row]:
    """All rows of a table, read in chunks."""
    pieces = Pieces()
    forms = EventForms(time, scale_is_in_events=time == "adaptive")
    declared = Declared(table, name, database.name, "chunks", forms)
    reader, _ = ChunkReader.open(database.access, declared, starts=True)
    try:
        for keys in reader.survey(2).ranges:
            left: KeyRange | None = keys
            while left is not None:
                found = reader.read(left, 13, pieces).chunk.keys
                left = None if found.upto == keys.upto else KeyRange(found.upto, keys.upto)
    finally:
        reader.close()
    return without_key(by_key(pieces.rows, declared), table)


def without_key(rows: dict[Key, Row], table: TableSchema) -> dict[Key, Row]:
    assert all(table.key_of(row) == key for key, row in rows.items())
    return orders.comparable(rows)


@pytest.mark.parametrize("time", FORMS)
def test_values_of_every_type(
    postgres: Postgres, connect: Connect, bootstrap: str, tmp_path: Path, time: TimeMode
) -> None:
    kafka, name = KafkaSettings(bootstrap), f"v{uuid.uuid4().hex[:8]}"
    postgres.create(name, *orders.MADE)
    tables = {
        "orders": declare(orders.declared(("clock",) if time == "isostring" else ())),
        "further": declare({"name": "further", "columns": declared_further(time), "primary_key": ["id"]}),
    }
    database = Database(postgres, name, tmp_path)
    [made, *rows] = further()
    database.execute(made)
    for table in tables:
        create_topic(kafka, f"{name}.public.{table}", 2)
    source = Source(
        connect, postgres, name, "public.orders,public.further", {**FORMS[time], "snapshot.mode": "no_data"}
    )
    writers = Writers(postgres, name, seed=3)
    source.begin()
    try:
        database.execute(*rows)
        writers.write(300)
        source.await_all()
        read = {table: chunks(database, tables[table], f"public.{table}", time) for table in tables}
    finally:
        writers.close()
        source.end()
    format_ = DebeziumFormat.model_validate({"decimal": "precise", "time": time})
    for table, schema in tables.items():
        events = orders.comparable(fold(kafka, f"{name}.public.{table}", schema, format_))
        assert len(events) > 3
        differing = {
            (key, column, event, chunk)
            for key in events
            for column, event, chunk in zip(schema.column_names, events[key], read[table][key], strict=True)
            if event != chunk
        }
        assert differing == set()
        assert read[table].keys() == events.keys()


def connector_with(connect: Connect, postgres: Postgres, settings: dict[str, str]) -> Connector:
    """A connector with these settings, as Kafka Connect tells of it; it is made and ended."""
    name = f"k{uuid.uuid4().hex[:8]}"
    postgres.create(name, "CREATE TABLE orders (id int PRIMARY KEY)")
    source = Source(connect, postgres, name, "public.orders", {"snapshot.mode": "no_data", **settings})
    source.begin()
    try:
        return connector_at(connect.url_of(name))
    finally:
        source.end()


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"lsn.flush.mode": "connector_and_driver"}, "lsn.flush.mode=connector"),
        ({"decimal.handling.mode": "double"}, "decimal.handling.mode=precise"),
        ({"time.precision.mode": "connect"}, "time.precision.mode=adaptive"),
        ({"skipped.operations": "u,t"}, "skipped.operations=t"),
        ({"binary.handling.mode": "hex"}, "binary.handling.mode=bytes"),
        ({"snapshot.mode": "initial"}, "snapshot.mode=no_data"),
    ],
)
def test_a_connectors_settings_that_do_not_fit(
    connect: Connect, postgres: Postgres, settings: dict[str, str], wanted: str
) -> None:
    found = connector_with(connect, postgres, settings)
    assert found.states == ("RUNNING",)
    expected = expected_of(found)
    with pytest.raises(BackfillError) as refused:
        check_connector(found, expected)
    assert refused.value.code is Code.CONNECTOR_MISFIT
    assert wanted in str(refused.value)


def expected_of(found: Connector, **over: Any) -> Expected:
    usual = {"database": found.setting("database.dbname"), "plugin": "pgoutput", "time": "adaptive"}
    return Expected(**{"slot": found.setting("slot.name"), "decimal": "precise", **usual, **over})


def test_a_connector_that_fits_but_in_its_slot_or_its_state(connect: Connect, postgres: Postgres) -> None:
    found = connector_with(connect, postgres, {})
    assert "unused" not in repr(found)  # its password
    check_connector(found, expected_of(found))
    for over in ({"slot": "another"}, {"database": "another"}, {"plugin": "decoderbufs"}):
        with pytest.raises(BackfillError) as refused:
            check_connector(found, expected_of(found, **over))
        assert refused.value.code is Code.CONNECTOR_MISFIT
    for state, states in (("PAUSED", ("PAUSED",)), ("RUNNING", ("FAILED",)), ("RUNNING", ())):
        with pytest.raises(BackfillError) as refused:
            check_connector(Connector(found.settings, state, states), expected_of(found))
        assert refused.value.code is Code.POSTGRES_NOT_STREAMING


def test_a_connector_that_is_not_there(connect: Connect) -> None:
    for url in (
        connect.url_of("nobody"),
        "http://127.0.0.1:1/connectors/x",
        f"{connect.url_of('x')}/../../..",
    ):
        with pytest.raises(BackfillError) as refused:
            connector_at(url)
        assert refused.value.code is Code.CONNECTOR_UNREACHABLE
