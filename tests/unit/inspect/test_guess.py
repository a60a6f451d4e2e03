"""From records to the sections of a configuration, which is one: it is read back."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.formats.append import AppendFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.upsert import UpsertFormat
from schemas.settings.config import ServiceConfig, load
from streaming.inspect.guess import Guess, configuration, guess
from streaming.inspect.samples import Sample
from tests.kit.debezium import RECORDED, UNLISTED, recorded, recorded_schemas
from tests.kit.servers import SERVERS, folded, server_rows, server_table
from tests.kit.single_records import single_records


def samples(*pairs: tuple[object, object]) -> list[Sample]:
    def written(value: object) -> bytes | None:
        return None if value is None else json.dumps(value).encode()

    return [Sample(written(key), written(value)) for key, value in pairs]


def loaded(
    found: Guess, folder: Path, topic: str = "shop.public.orders", registry: str | None = None
) -> ServiceConfig:
    path = folder / "config.yaml"
    page = configuration(topic, "127.0.0.1:9092", found, "12 records", registry)
    path.write_text(page, encoding="utf-8")
    return load(path)


def test_a_debezium_topic_with_schemas_needs_no_decision(tmp_path: Path) -> None:
    found = guess([Sample(each.key, each.value) for each in recorded("schemas") if "orders" in each.topic])
    config = loaded(found, tmp_path)
    assert config.upstream_format == DebeziumFormat(time="adaptive", decimal="precise")
    assert config.state == str(tmp_path / "shop.public.orders-state")
    assert found.unsure == {}
    types = {column.name: str(column.type) for column in config.table.columns}
    declared = {column.name: str(column.type) for column in RECORDED.columns}
    assert types == {**declared, "free": "decimal(38,10)"}
    assert [each.name for each in found.fields if each.notes] == ["free", "tags"]
    assert set(config.table.primary_key) == set(RECORDED.primary_key)


def test_a_debezium_topic_without_schemas_says_what_is_to_be_decided(tmp_path: Path) -> None:
    found = guess([Sample(each.key, each.value) for each in recorded("plain") if "orders" in each.topic])
    config = loaded(found, tmp_path)
    assert isinstance(config.upstream_format, DebeziumFormat)
    assert found.unsure.keys() == {"decimal"}
    assert config.upstream_format.time is None
    units = {column.name: (str(column.type), column.time) for column in config.table.columns}
    assert units["at_plain"] == ("timestamp", "microseconds")
    notes = {each.name: each.notes for each in found.fields}
    assert notes["at_plain"] == ["numbers that are times in microseconds; bigint, if they are none"]
    types = {column.name: str(column.type) for column in config.table.columns}
    assert (types["id"], types["region"], types["price"], types["ok"]) == (
        "bigint",
        "string",
        "string",
        "boolean",
    )
    text = (tmp_path / "config.yaml").read_text(encoding="utf-8")
    assert "    at_plain: {type: timestamp, time: microseconds}  # numbers that are times" in text


def test_a_connector_whose_positions_are_not_compared_is_named() -> None:
    def note(connector: object) -> list[str]:
        event = {"before": None, "after": {"id": 1}, "op": "c", "source": {"connector": connector}}
        return [each for each in guess(samples(({"id": 1}, event))).notes if "not compared" in each]

    assert note("postgresql") == note("mariadb") == note(None) == note({"x": 1}) == []
    assert note("oracle") == [
        'Positions of the connector "oracle" are not compared: events that it sends again are taken as they come.'
    ]


def test_rows_by_key_are_upserts_with_the_form_of_their_keys(tmp_path: Path) -> None:
    row = {
        "id": 7,
        "region": "EU",
        "amount": 2.5,
        "day": "2026-01-31",
        "at": "2026-01-31T12:00:00Z",
        "no": None,
    }
    found = guess(samples(({"id": 7}, row), ({"id": 8}, None), ({"id": 9}, {"id": 9, "day": None})))
    config = loaded(found, tmp_path)
    assert config.upstream_format == UpsertFormat()
    types = {column.name: str(column.type) for column in config.table.columns}
    assert types == {
        "id": "bigint",
        "region": "string",
        "amount": "double",
        "day": "date",
        "at": "timestamp",
        "no": "string",
    }
    assert config.table.primary_key == ("id",)


@pytest.mark.parametrize(
    ("key", "form", "primary_key"),
    [(b"7", "json", "id"), (b'"EU"', "json", "region"), (b"EU-7", "text", "key")],
)
def test_keys_of_one_column_are_found_in_the_row(
    tmp_path: Path, key: bytes, form: str, primary_key: str
) -> None:
    found = guess([Sample(key, b'{"id":7,"region":"EU"}')])
    config = loaded(found, tmp_path, "orders")
    assert config.upstream_format == UpsertFormat(key=form)  # type: ignore[arg-type]
    assert config.table.primary_key == (primary_key,)
    assert ("key" in found.unsure) is (primary_key == "key")


def test_a_debezium_topic_in_avro_takes_its_columns_from_the_registry(tmp_path: Path) -> None:
    found = [Sample(each.key, each.value) for each in recorded("avro") if "orders" in each.topic]
    said = guess(found, recorded_schemas())
    path = tmp_path / "config.yaml"
    page = configuration("shop.public.orders", "127.0.0.1:9092", said, "45 records", "http://127.0.0.1:8081")
    path.write_text(page, encoding="utf-8")
    config = load(path)
    assert config.upstream_format == DebeziumFormat(encoding="avro-registry")
    assert config.registry.url == "http://127.0.0.1:8081"
    assert said.unsure == {}
    types = {column.name: str(column.type) for column in config.table.columns}
    declared = {column.name: str(column.type) for column in UNLISTED.columns}
    assert types == {**declared, "free": "decimal(38,10)"}
    assert set(config.table.primary_key) == set(UNLISTED.primary_key)
    assert "# Field tags has a type that no column has." in page


def test_rows_in_avro_are_upserts_and_have_the_columns_of_their_keys() -> None:
    found = [Sample(frame(1) + b"\x0e", frame(2) + b"\x00")]
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    row = {"type": "record", "name": "Row", "fields": [{"name": "note", "type": ["null", "string"]}]}
    known = KnownSchemas(tuple(WriterSchema(n, json.dumps(each)) for n, each in ((1, key), (2, row))))
    said = guess(found, known)
    assert said.upstream == {"format": "upsert", "encoding": "avro-registry"}
    assert [(each.name, each.kind) for each in said.fields] == [("id", "bigint"), ("note", "string")]
    assert said.primary_key == ["id"]
    assert "say --registry" in guess(found).notes[0]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "No record with a value"),
        ([Sample(b"k", None)], "No record with a value"),
        ([Sample(b"k", b"plain text")], "no JSON objects"),
        ([Sample(None, b"\x02", ("barrier",))], "barriers in the topic"),
        ([Sample(b"\x00\x00\x00\x00\x07a", b"\x00\x00\x00\x00\x08abc")], "schema registry (ids 8)"),
    ],
)
def test_what_can_not_be_determined_is_said(found: list[Sample], said: str) -> None:
    page = configuration("orders", "127.0.0.1:9092", guess(found), "1 record")
    assert said in page
    assert "# no key was found in the records" in page


def test_names_that_yaml_would_take_for_something_else_are_in_quotes(tmp_path: Path) -> None:
    found = guess(samples(({"no": 1}, {"no": 1, "a b": 2, "on": "x"})))
    names = [each.name for each in found.fields]
    assert names == ["no", "a b", "on"]
    page = configuration("orders", "127.0.0.1:9092", found, "1 record")
    assert (
        '    "no": bigint\n    a_b: {type: bigint, field: "a b"}\n    "on": string\n  primary_key: ["no"]\n'
        in page
    )


def test_rows_without_a_key_have_no_identity(tmp_path: Path) -> None:
    found = guess(samples((None, {"at": "2026-01-31T12:00:00Z", "n": 7}), ({"id": 1}, {"n": 8, "s": "x"})))
    config = loaded(found, tmp_path)
    assert config.upstream_format == AppendFormat()
    assert (config.table.has_key, config.table.column_names) == (False, ("at", "n", "s"))
    assert "rows without identity" in " ".join(found.notes)
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    known = KnownSchemas((WriterSchema(7, json.dumps(schema)),))
    found = guess([Sample(None, frame(7) + b"\x02")], known)
    assert (found.upstream, [each.name for each in found.fields]) == (
        {"format": "append", "encoding": "avro-registry"},
        ["n"],
    )


def test_names_that_no_column_can_have_become_the_names_of_fields(tmp_path: Path) -> None:
    row = {"order-id": 1, "Order_Id": 2, "größe": 3, "/VSO/R": 4, "3ALPHA": 5, "_bf_x": 6, "??": 7, "!": 8}
    found = guess(samples(({"order-id": 1}, row)))
    config = loaded(found, tmp_path)
    assert {column.name: column.in_records.name for column in config.table.columns} == {
        "order_id": "order-id",
        "Order_Id_2": "Order_Id",
        "grosse": "größe",
        "VSO_R": "/VSO/R",
        "c_3ALPHA": "3ALPHA",
        "c_bf_x": "_bf_x",
        "column": "??",
        "column_2": "!",
    }
    assert config.table.primary_key == ("order_id",)
    read = single_records(config.upstream_format, config.table.columns, config.table.key_columns)
    change = read.read_change(b'{"order-id":1}', json.dumps(row).encode())
    assert change.after == (1, 2, 3, 4, 5, 6, 7, 8)


def test_a_field_that_says_that_a_row_is_deleted_is_no_column(tmp_path: Path) -> None:
    rows = samples(({"id": 1}, {"v": 1, "__deleted": "false"}), ({"id": 1}, {"v": None, "__deleted": "true"}))
    found = guess(rows)
    config = loaded(found, tmp_path)
    assert config.upstream_format == UpsertFormat(deleted_field="__deleted")
    assert config.table.column_names == ("id", "v")


def test_rows_in_frames_have_the_columns_of_their_schema(tmp_path: Path) -> None:
    fields = [
        {"field": "id", "type": "int64"},
        {"field": "n", "type": "int32"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.Timestamp"},
        {
            "field": "d",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "-2"},
        },
    ]
    value = {
        "schema": {"type": "struct", "fields": fields},
        "payload": {"id": 1, "n": 2, "at": 1, "d": "Ag=="},
    }
    key = {"schema": {"type": "int64"}, "payload": 1}
    for given, form in (({"id": 1}, "record"), (key, "json")):
        config = loaded(guess(samples((given, value))), tmp_path)
        assert config.upstream_format == UpsertFormat(key=form)  # type: ignore[arg-type]
        assert config.table.primary_key == ("id",)
        types = {column.name: str(column.type) for column in config.table.columns}
        assert types == {"id": "bigint", "n": "int", "at": "timestamp", "d": "decimal(38,0)"}
        read = single_records(config.upstream_format, config.table.columns, config.table.key_columns)
        data = [json.dumps(each).encode() for each in (given, value)]
        assert read.read_change(*data).after == (
            1,
            2,
            dt.datetime(1970, 1, 1, 0, 0, 0, 1_000, dt.UTC),
            Decimal(200),
        )


def events(connector: str, *rows: dict[str, object]) -> list[Sample]:
    return samples(
        *(({"id": 1}, {"op": "c", "after": row, "source": {"connector": connector}}) for row in rows)
    )


def test_units_of_each_column_come_from_the_sizes_of_its_numbers(tmp_path: Path) -> None:
    second = 1_769_862_896
    row = {
        "id": second * 1_000,
        "ms": second * 1_000,
        "us": second * 1_000_000,
        "ns": second * 1_000_000_000 + 100,
        "snowflake": second * 1_000_000_000 + 1,
        "zoned": "2026-01-31T12:00:00Z",
        "day": 20_484,
    }
    config = loaded(guess(events("sqlserver", row, dict.fromkeys(row))), tmp_path)
    units = {column.name: (str(column.type), column.time) for column in config.table.columns}
    assert units == {
        "id": ("bigint", None),
        "ms": ("timestamp", "milliseconds"),
        "us": ("timestamp", "microseconds"),
        "ns": ("timestamp", "nanoseconds"),
        "snowflake": ("bigint", None),
        "zoned": ("timestamp", "isostring"),
        "day": ("bigint", None),
    }


def test_negative_numbers_may_be_large_ones_where_connectors_wrap_them() -> None:
    def notes(connector: str) -> list[str]:
        [_, found] = guess(events(connector, {"id": 1, "u": -1}, {"id": 1, "u": 7})).fields
        return found.notes

    said = ['of BIGINT UNSIGNED: {type: "decimal(20,0)", unsigned: wrapped}']
    assert [notes(each) for each in ("mysql", "mariadb", "postgresql")] == [said, said, []]


PLACEHOLDER = "__debezium_unavailable_value"


def test_a_placeholder_says_nothing_of_its_column() -> None:
    rows = (
        {"id": 1, "at": "2026-01-31T12:00:00Z", "t": PLACEHOLDER},
        {"id": 1, "at": PLACEHOLDER, "t": PLACEHOLDER},
    )
    found = guess(events("postgresql", *rows))
    assert [(each.name, each.kind) for each in found.fields] == [
        ("id", "bigint"),
        ("at", "timestamp"),
        ("t", "string"),
    ]


@pytest.mark.parametrize("form", ["plain", "schemas", "avro"])
@pytest.mark.parametrize("server", SERVERS)
def test_what_is_written_for_a_servers_topic_reads_its_instants(
    server: str, form: str, tmp_path: Path
) -> None:
    """In the default mode a record has milliseconds and microseconds."""
    records = [each for each in recorded(form, server) if each.topic.endswith(".shop.types")]
    schemas = recorded_schemas(server) if form == "avro" else None
    found = guess([Sample(each.key, each.value) for each in records], schemas)
    config = loaded(found, tmp_path, registry="http://127.0.0.1:8081")
    format_ = config.upstream_format if schemas is None else config.upstream_format.with_schemas(schemas)
    rows = folded(records, format_, config.table)
    right = server_rows(server, server_table("types", without=["biu", "dec4", "dec0"]))
    instants = ("dt0", "dt3", "dt6")
    numbers = {1, 2, 3, 11} & {number for (number,) in rows}
    assert numbers
    for number in numbers:
        assert [rows[number,][name] for name in instants] == [right[number,][name] for name in instants]
    wrapped = [each.name for each in found.fields if any("UNSIGNED" in note for note in each.notes)]
    assert {"bi", "biu"} & set(wrapped)
