"""The registry's client, and the page's example, with a real registry."""

from __future__ import annotations

import datetime as dt
import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.avro.output_schemas import text_of
from schemas.errors import Code, ConfigError, EnvironmentProblem
from schemas.job import JobDefinition
from schemas.records import Op, Row
from schemas.settings.registry import RegistryConfig
from schemas.table import TableSchema, declare
from streaming.registry.client import Registry
from streaming.registry.outputs import OutputSchemas
from tests.conftest import TopicFactory
from tests.integration.test_tutorials import is_as_printed, registered
from tests.kit.apicurio import Apicurio, apicurio
from tests.kit.columns import BARRIER, origins

pytestmark = pytest.mark.connect
PRICE = '{"type":"record","name":"Price","namespace":"shop","fields":[{"name":"net","type":"long"}]}'
ROW = '{"type":"record","name":"Row","fields":[{"name":"price","type":"shop.Price"}]}'


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with apicurio(tmp_path_factory.mktemp("apicurio")) as running:
        yield running


def client(registry: Apicurio) -> Registry:
    return Registry(RegistryConfig.model_validate({"url": registry.url}))


def test_consume_reads_what_the_page_produces(
    bootstrap: str, topic: TopicFactory, tmp_path: Path, registry: Apicurio
) -> None:
    name = topic(1, name="orders")
    assert is_as_printed(1, bootstrap, name, tmp_path, **registered(name, registry.url))


def test_schemas_are_found_with_what_they_refer_to_and_what_is_not_there_is_none(registry: Apicurio) -> None:
    producer = SchemaRegistryClient({"url": registry.url})
    producer.register_schema("price", Schema(PRICE, "AVRO"))
    reference = SchemaReference(name="shop.Price", subject="price", version=1)
    number = producer.register_schema("row-value", Schema(ROW, "AVRO", [reference]))
    found = client(registry).schema(number)
    assert found is not None
    assert "shop.Price" in found.text
    assert len(found.references) == 1
    assert client(registry).newest("row-value") == found
    assert client(registry).schema(99_999) is None
    assert client(registry).newest("no-such-subject") is None


COPY = {"name": "copy", "encoding": "avro-registry"}
ORDERS = {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "day": "date", "at": "timestamp"}
AT = dt.datetime(2026, 1, 31, 12, 0, 0, 123_456, dt.UTC)
OLD: Row = (7, "EU", Decimal("250.00"), None, None)
NEW: Row = (7, None, Decimal("-1.28"), dt.date(2026, 1, 31), AT)


def declared(format_: str, output: str, **columns: str) -> tuple[JobDefinition, TableSchema]:
    table = declare({"name": "orders", "columns": {**ORDERS, **columns}, "primary_key": ["id"]})
    return JobDefinition.declare({**COPY, "format": format_, "output": output}, table), table


def schemas(registry: Apicurio, table: TableSchema) -> OutputSchemas:
    return OutputSchemas(RegistryConfig.model_validate({"url": registry.url}), table)


@pytest.mark.parametrize("format_", ["upsert", "debezium"])
def test_confluents_own_deserializer_reads_an_output(registry: Apicurio, format_: str) -> None:
    job, table = declared(format_, f"shop.{format_}-1")
    job = job.with_ids(schemas(registry, table).register(job))
    assert schemas(registry, table).registered(declared(format_, job.output)[0]) == job
    read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    before, after = (
        [pa.array([row[index]], column.type.arrow) for index, column in enumerate(table.columns)]
        for row in (OLD, NEW)
    )
    encode_keys = job.format.keys(table.key_columns)
    assert encode_keys is not None
    keys = encode_keys([before[0]]).to_pylist()
    encoder = job.format.values(table.columns)
    [value] = encoder.changes(pa.array([Op.UPDATE], pa.int8()), before, after, origins(1)).to_pylist()
    found = read(value, SerializationContext(job.output, MessageField.VALUE))
    old, new = (dict(zip(table.column_names, row, strict=True)) for row in (OLD, NEW))
    assert read(keys[0], SerializationContext(job.output, MessageField.KEY)) == {"id": 7}
    if format_ == "upsert":
        assert found == new
    else:
        assert (found["before"], found["after"], found["op"]) == (old, new, "u")
        assert found["source"]["epoch"] == str(BARRIER.curr)


def test_what_the_subject_forbids_is_refused_and_nothing_of_it_is_registered(registry: Apicurio) -> None:
    owner = SchemaRegistryClient({"url": registry.url})
    job, table = declared("upsert", "shop.evolving")
    first = schemas(registry, table).register(job)
    for subject in ("shop.evolving-key", "shop.evolving-value"):
        owner.set_compatibility(subject, "BACKWARD")
    wider, wide_table = declared("upsert", "shop.evolving", more="string")
    assert dict(schemas(registry, wide_table).subject_states(wider)) == dict.fromkeys(
        ("shop.evolving-key", "shop.evolving-value"), "compatible"
    )
    second = schemas(registry, wide_table).register(wider)
    assert (second.key, second.value > first.value) == (first.key, True)
    other, other_table = declared("upsert", "shop.evolving", amount="boolean", id="string")
    assert [verdict for _, verdict in schemas(registry, other_table).subject_states(other)] == [None, None]
    asking = schemas(registry, other_table)
    with pytest.raises(ConfigError) as caught:
        asking.register(other)
    assert caught.value.code is Code.OUTPUT_SCHEMA_INCOMPATIBLE
    subject, text = "shop.evolving-value", text_of(other.schemas(other_table)["value"])
    with pytest.raises(ConfigError) as caught:
        client(registry).register(subject, text)
    assert caught.value.code is Code.OUTPUT_SCHEMA_INCOMPATIBLE
    assert client(registry).id_of(subject, text) is None
    assert owner.get_versions("shop.evolving-value") == [1, 2]


def test_a_path_that_is_none_of_its_is_refused(registry: Apicurio) -> None:
    elsewhere = registry.url.replace("/ccompat/v7", "/nowhere")
    with pytest.raises(EnvironmentProblem) as caught:
        Registry(RegistryConfig.model_validate({"url": elsewhere})).schema(1)
    assert caught.value.code is Code.REGISTRY_REFUSED


def test_one_that_hangs_is_away_until_it_goes_on(registry: Apicurio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.registry.client.WAIT_S", 0.5)
    registry.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(EnvironmentProblem) as caught:
            client(registry).schema(1)
        assert caught.value.code is Code.REGISTRY_UNREACHABLE
        assert not client(registry).is_reachable()
    finally:
        registry.process.send_signal(signal.SIGCONT)
    assert client(registry).is_reachable()
