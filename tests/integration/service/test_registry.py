"""Rows in Avro by a schema registry: new schemas in the middle of a run, and a registry that is away or knows less."""

from __future__ import annotations

import json
import operator
import zlib
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.avro.registered import frame
from schemas.errors import Code, EnvironmentProblem, InputError
from schemas.position import Key
from schemas.records import Change
from streaming.kafka.consumer import header_of
from streaming.registry.client import AskedSchemas, Registry
from streaming.sink.dead_letters import CODE_HEADER
from tests.kit.avro_records import encoded
from tests.kit.real import SetUp, Stage, records
from tests.kit.real_upstream import RealUpstream
from tests.kit.registry import FakeRegistry

COPY, OTHER = {"name": "copy"}, {"name": "other", "columns": ["note"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


MORE: tuple[dict[str, Any], ...] = (
    {"name": "x", "type": "int", "default": 7},
    {"name": "y", "type": "string", "default": "y"},
)


def row_schema(*more: dict[str, Any]) -> dict[str, Any]:
    fields = [
        {"name": "region", "type": ["null", "string"]},
        {"name": "amount", "type": [DECIMAL, "null"]},
        {"name": "note", "type": ["null", "string"]},
    ]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": [*fields, *more]}


class RegistryUpstream(RealUpstream):
    """Rows by key as Confluent's own serializer writes them. `schema` is that of the values from now on."""

    form: ClassVar[dict[str, str]] = {"format": "upsert", "encoding": "avro-registry"}
    schema: dict[str, Any] = row_schema()

    def attach(self, registry: FakeRegistry) -> None:
        self.sections = {"registry": {"url": registry.url}}
        self._client = SchemaRegistryClient({"url": registry.url})

    def _append(self, key: Key, change: Change) -> None:
        data = self.written("key", KEY, dict(zip(self.table.primary_key, key, strict=True)))
        row = None
        if change.after is not None:
            row = dict(zip(self.table.column_names, change.after, strict=True))
            row |= {field["name"]: field["default"] for field in self.schema["fields"] if "default" in field}
        value = None if row is None else self.written("value", self.schema, row)
        self._producer.produce(self.name, value, data, zlib.crc32(data) % self.partitions)
        self._producer.poll(0)

    def written(self, half: str, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
        serializer = AvroSerializer(self._client, json.dumps(schema))
        known = {field["name"] for field in schema["fields"]}
        chosen = {name: value for name, value in row.items() if name in known}
        data: bytes | None = serializer(
            chosen, SerializationContext(self.name, getattr(MessageField, half.upper()))
        )
        assert data is not None
        return data


def staged(set_up: SetUp, registry: FakeRegistry, *jobs: dict[str, Any], lanes: int = 4) -> Stage:
    stage = set_up(*jobs, upstream_type=RegistryUpstream, lanes=lanes)
    assert isinstance(stage.upstream, RegistryUpstream)
    stage.upstream.attach(registry)
    return stage


def order(number: int, version: int = 0) -> tuple[Any, ...]:
    return number, "EU", Decimal(number * 37 + version).quantize(Decimal("0.01")), f"n{version}"


def assert_lawful(stage: Stage, number: int = 0, **how: Any) -> None:
    config = stage.config()
    asked = AskedSchemas(Registry(config.registry))
    formats = (config.upstream_format.with_schemas(asked), config.jobs[number].format)
    stage.assert_lawful(number, formats=formats, **how)


def test_a_new_schema_in_the_middle_of_a_batch_costs_no_record(set_up: SetUp, registry: FakeRegistry) -> None:
    stage = staged(set_up, registry, COPY, OTHER)
    upstream = stage.upstream
    assert isinstance(upstream, RegistryUpstream)
    for number in range(200):
        upstream.put(order(number))
    with stage.running() as run:
        run.reach(upstream.barrier())
        for version, more in enumerate(MORE):
            for number in range(0, 200, 3):
                upstream.put(order(number, version + 1))
            upstream.schema = row_schema(more)  # new to the service, with rows for every lane
            for number in range(1, 200, 3):
                upstream.put(order(number, version + 2))
            upstream.delete(197 - version)
            run.reach(upstream.barrier())
        stage.finish(run, "copy", "other")
    kept = sorted(path.name for path in (stage.folder / "state" / "schemas").iterdir())
    assert kept == sorted(f"{number}.json" for number in registry.schemas)
    assert len(kept) == 4
    assert_lawful(stage)
    assert_lawful(stage, 1)


def test_a_registry_that_is_away_delays_only_what_it_alone_knows(
    set_up: SetUp, registry: FakeRegistry
) -> None:
    stage = staged(set_up, registry, COPY)
    upstream = stage.upstream
    assert isinstance(upstream, RegistryUpstream)
    for number in range(50):
        upstream.put(order(number))
    with stage.running() as run:
        run.reach(upstream.barrier())
    late = row_schema({"name": "late", "type": "int", "default": 1})
    row = dict(zip(upstream.table.column_names, order(7, 9), strict=True))
    known = upstream.written("value", late, {**row, "late": 1})
    key = upstream.written("key", KEY, {"id": 7})
    usual = upstream.written("value", row_schema(), {**row, "note": "usual"})
    registry.status = 503
    asked = len(registry.asked)
    with stage.running() as run:  # a start without it, and a batch
        upstream.send(zlib.crc32(key) % upstream.partitions, key, usual)
        run.reach(upstream.barrier())
        troubles: list[Code] = []

        def note(problem: Any) -> None:
            troubles.append(problem.code)
            registry.status = None

        run.service.on_trouble = note
        upstream.send(zlib.crc32(key) % upstream.partitions, key, known)
        run.reach(upstream.barrier())
        stage.finish(run, "copy")
    assert troubles == [Code.REGISTRY_UNREACHABLE]
    assert len(registry.asked) > asked
    assert_lawful(stage)


@pytest.mark.parametrize("part", ["key", "value"])
def test_an_id_that_the_registry_does_not_know_stops_the_lanes_that_it_may_be_for_and_may_be_learnt_later(
    set_up: SetUp, registry: FakeRegistry, part: str
) -> None:
    stage = staged(set_up, registry, COPY)
    upstream = stage.upstream
    assert isinstance(upstream, RegistryUpstream)
    for number in range(50):
        upstream.put(order(number))
    with stage.running() as run:
        run.reach(upstream.barrier())
        run.reach(upstream.barrier())
    sent = [len(part) for part in records(upstream.kafka, stage.config().jobs[0].output)]
    for number in range(50):
        upstream.put(order(number, 1))
    upstream.flush()
    key = upstream.written("key", KEY, {"id": 7})
    row = {"region": "EU", "amount": b"\x01", "note": "late"}
    partition, value = zlib.crc32(key) % upstream.partitions, frame(77) + encoded(row_schema(), row)
    if part == "key":
        key, value = frame(77) + key[5:], upstream.written("value", row_schema(), row)
    place = upstream.send(partition, key, value)
    upstream.barrier()
    stage.fails(InputError, Code.SCHEMA_UNKNOWN, f"{upstream.name}-{partition}@{place}")
    found = [len(each) for each in records(upstream.kafka, stage.config().jobs[0].output)]
    assert (found == sent) is (part == "key")  # whose record it is, is not known
    assert any(map(operator.eq, found, sent))
    registry.register(f"{upstream.name}-{part}", KEY if part == "key" else row_schema(), schema_id=77)
    with stage.running() as run:
        run.reach(upstream.barrier())
        stage.finish(run, "copy")
    assert_lawful(stage)


def test_records_at_fault_are_parked_once_whatever_is_wrong_with_them(
    set_up: SetUp, registry: FakeRegistry
) -> None:
    stage = staged(set_up, registry, COPY)
    upstream = stage.upstream
    assert isinstance(upstream, RegistryUpstream)
    for number in range(50):
        upstream.put(order(number))
    key = upstream.written("key", KEY, {"id": 7})
    good = upstream.written("value", row_schema(), {"region": "EU", "amount": None, "note": "x" * 9})
    odd = registry.register("odd", {**row_schema(), "fields": [{"name": "note", "type": "int"}]})
    broken = {
        Code.SCHEMA_UNKNOWN: frame(77) + good[5:],
        Code.SCHEMA_INCOMPATIBLE: frame(odd) + b"\x02",
        Code.CHANGE_MALFORMED: b"\x01" + good[1:],
        Code.AVRO_TRUNCATED: good[:-3],
        Code.AVRO_TRAILING: good + b"\x00",
    }
    home = zlib.crc32(key) % upstream.partitions
    with stage.running(on_bad_record="park") as run:
        run.reach(upstream.barrier())
        for value in broken.values():
            upstream.send(home, key, value)
        upstream.send(home, frame(78) + key[5:], None)
        run.reach(upstream.barrier())
        stage.finish(run, "copy")
    letters = records(upstream.kafka, stage.config().jobs[0].dead_letters)
    codes = sorted((header_of(message, CODE_HEADER) or b"").decode() for part in letters for message in part)
    assert codes == sorted([*map(str, broken), str(Code.SCHEMA_UNKNOWN)])
    assert_lawful(stage)


def test_an_error_of_the_registry_ends_a_service_that_can_not_go_on(
    set_up: SetUp, registry: FakeRegistry
) -> None:
    stage = staged(set_up, registry, COPY)
    stage.upstream.put(order(1))
    stage.upstream.barrier()
    registry.status = 403
    stage.fails(EnvironmentProblem, Code.REGISTRY_REFUSED, registry.url)
