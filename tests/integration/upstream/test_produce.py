"""Producing to a real topic, folding it, and going on with it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from schemas.errors import BackfillError, Code, EnvironmentProblem, TopicError
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Images, UpstreamFormat
from schemas.formats.registry import DEFAULT
from schemas.position import Key
from schemas.records import NO_DATA
from schemas.settings.registry import RegistryConfig
from schemas.table import declare
from streaming.events.forms import FORMATS, EventForm, TopicSchemas, events_of, invented
from streaming.events.generator import ChangeGenerator, ChangeMix
from streaming.events.sender import ChangeSender, LiveLoad, produce_rows, resume
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of
from streaming.registry.client import AskedSchemas, Registry
from streaming.source.barriers.injecting.injector import BarrierInjector
from streaming.source.barriers.injecting.target import DataTopicTarget
from tests.kit.memory_registry import MemoryRegistry
from tests.kit.real import records
from tests.kit.single_records import single_records

Topic = Callable[..., str]
TABLE = declare(
    {
        "name": "orders",
        "columns": {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "at": "timestamp"},
        "primary_key": ["id"],
    }
)


def load(kafka: KafkaSettings, topic: str, generator: ChangeGenerator, rows: int) -> None:
    produce_rows(ChangeSender(kafka, topic), generator, rows)


def folded(kafka: KafkaSettings, topic: str, format_: UpstreamFormat = DEFAULT) -> dict[Key, Any]:
    """The table after all committed changes, each of which must be legal and in its key's partition."""
    decoder, table = format_.decoder(TABLE.columns, TABLE.key_columns), dict[Key, Any]()
    with RangeReader(kafka) as reader:
        marks = reader.await_stable(topic, timeout_s=60)
        for chunk in reader.read(topic, {p: (mark.earliest, mark.stable) for p, mark in enumerate(marks)}):
            data = [message for message in chunk if header_of(message, "barrier") is None]
            for message in data:
                assert message.partition() == zlib.crc32(message.key() or b"") % len(marks)
            key_bytes = pa.array([message.key() for message in data], pa.binary())
            keys = decoder.decode_keys(key_bytes)
            found = decoder.decode(key_bytes, pa.array([message.value() for message in data], pa.binary()))
            assert not keys.errors
            assert not found.errors
            assert NO_DATA not in found.ops.to_pylist()
            rows = (each.to_pylist() for each in (keys.structs, found.before, found.after))
            for key, before, after in zip(*rows, strict=True):
                previous = table.pop(tuple(key.values()), None)
                assert format_.images is not Images.FULL or previous == before
                if after is not None:
                    table[tuple(key.values())] = after
    return table


def test_rows_arrive_once_each_in_the_partition_of_their_key(kafka: KafkaSettings, topic: Topic) -> None:
    name, heard = topic(partitions=4), list[int]()
    sender = ChangeSender(kafka, name)
    produce_rows(sender, ChangeGenerator(TABLE), 100_000, on_sent=heard.append)
    assert sender.sent.inserts == sum(heard) == 100_000
    assert len(folded(kafka, name)) == 100_000


def test_live_changes_are_legal_counted_and_at_the_rate(kafka: KafkaSettings, topic: Topic) -> None:
    name, generator = topic(partitions=3), ChangeGenerator(TABLE)
    load(kafka, name, generator, 200)
    with LiveLoad(kafka, name, generator, 2_000, ChangeMix(0.4, 0.3)) as live:
        while live.sent.total < 1_000:
            assert not live.wait(0.01), live.failure
    sent = live.sent
    assert min(sent.inserts, sent.updates, sent.deletes) > 0
    assert sent.total <= 2_000 * ((sent.last_at_ms - sent.first_at_ms) / 1000 + 1)
    assert len(folded(kafka, name)) == generator.live == 200 + sent.inserts - sent.deletes


def test_a_later_run_goes_on_legally_with_barriers_in_between(kafka: KafkaSettings, topic: Topic) -> None:
    name, injector = topic(partitions=2), None
    injector = BarrierInjector(kafka, DataTopicTarget(name), 3_600_000)
    total = 0
    for _ in range(3):
        generator = ChangeGenerator(TABLE, seed=7)
        assert resume(kafka, name, generator) == total
        load(kafka, name, generator, 100)
        injector.inject_one()
        sender = ChangeSender(kafka, name)
        sender.send(generator.mixed(400, ChangeMix(0.5, 0.3)))
        sender.flush()
        total += 500
        assert len(folded(kafka, name)) == generator.live
    injector.stop()


OF_TABLES = [form for form in EventForm if form not in (EventForm.CHANGE, EventForm.APPEND_JSON)]


def test_rows_without_identity_go_on_as_well(kafka: KafkaSettings, topic: Topic) -> None:
    name, format_ = topic(partitions=2), FORMATS[EventForm.APPEND_JSON]
    columns = {name: str(column.type) for name, column in TABLE.by_name.items()}
    table = declare({"name": "orders", "columns": columns}, has_key=False)
    rows = single_records(format_, table.columns, ())
    for run in range(3):
        made = invented(table)
        generator = ChangeGenerator(made, seed=7, events=events_of(format_, made))
        assert resume(kafka, name, generator) == run * 500
        load(kafka, name, generator, 100)
        sender = ChangeSender(kafka, name)
        sender.send(generator.mixed(400, ChangeMix(0.5, 0.3)))
        sender.flush()
    found = [message for part in records(kafka, name) for message in part]
    read = [rows.read_record(None, message.value()).change for message in found]
    assert (len(found), 0 < read.count(None) < 600) == (1_500, True)
    assert len({message.key() for message in found}) < len(found) - read.count(None)


@pytest.mark.parametrize("form", OF_TABLES)
def test_a_later_run_goes_on_in_every_form(kafka: KafkaSettings, topic: Topic, form: EventForm) -> None:
    name, format_ = topic(partitions=2), FORMATS[form]
    for run in range(3):
        generator = ChangeGenerator(TABLE, seed=7, events=events_of(format_, TABLE))
        assert resume(kafka, name, generator) == run * 500
        load(kafka, name, generator, 100)
        sender = ChangeSender(kafka, name)
        sender.send(generator.mixed(400, ChangeMix(0.5, 0.3)))
        sender.flush()
        assert len(folded(kafka, name, format_)) == generator.live


def test_a_later_run_goes_on_with_events_by_registered_schemas(kafka: KafkaSettings, topic: Topic) -> None:
    name, format_ = topic(partitions=2), DebeziumFormat(encoding="avro-registry")
    with MemoryRegistry().serving() as served:
        registry = Registry(RegistryConfig.model_validate({"url": served.url}))
        for run in range(3):
            events = events_of(format_, TABLE, TopicSchemas(registry, name))
            generator = ChangeGenerator(TABLE, seed=7, events=events)
            assert resume(kafka, name, generator) == run * 500
            load(kafka, name, generator, 100)
            sender = ChangeSender(kafka, name)
            sender.send(generator.mixed(400, ChangeMix(0.5, 0.3)))
            sender.flush()
            known = format_.with_schemas(AskedSchemas(registry))
            assert len(folded(kafka, name, known)) == generator.live


@pytest.mark.parametrize("other", ["seed", "table", "values"])
def test_a_topic_of_somebody_else_is_left_alone(kafka: KafkaSettings, topic: Topic, other: str) -> None:
    name = topic(partitions=2)
    load(kafka, name, ChangeGenerator(TABLE, seed=1), 50)
    seed, columns = 1, {name: str(column.type) for name, column in TABLE.by_name.items()}
    match other:
        case "seed":
            seed = 2
        case "table":
            columns["amount"] = "decimal(18,3)"
        case _:
            producer = Producer(kafka.producer())
            producer.produce(name, b"\x00not a change", key=b"\x02")
            producer.flush()
    table = declare({"name": "orders", "columns": columns, "primary_key": ["id"]})
    with pytest.raises(TopicError) as caught:
        resume(kafka, name, ChangeGenerator(table, seed))
    assert caught.value.code is Code.FOREIGN_RECORDS


def test_a_topic_of_another_form_is_left_alone(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic(partitions=2)
    load(kafka, name, ChangeGenerator(TABLE), 50)
    for form in OF_TABLES:
        with pytest.raises(TopicError) as caught:
            resume(kafka, name, ChangeGenerator(TABLE, events=events_of(FORMATS[form], TABLE)))
        assert caught.value.code is Code.FOREIGN_RECORDS


@pytest.mark.slow  # a client looks for its broker for a while
def test_changes_that_were_not_delivered_are_an_error_and_not_silence() -> None:
    nobody = KafkaSettings("127.0.0.1:1", wait_s=1)
    sender = ChangeSender(nobody, "t", **{"message.timeout.ms": 300})
    with pytest.raises(EnvironmentProblem) as caught:
        produce_rows(sender, ChangeGenerator(TABLE), 10)
    assert caught.value.code is Code.BROKER_UNREACHABLE


def test_a_change_that_the_broker_refuses_is_an_error(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic(partitions=2, config={"max.message.bytes": "100"})
    with pytest.raises(BackfillError) as caught:
        load(kafka, name, ChangeGenerator(TABLE), 1_000)
    assert "MSG_SIZE_TOO_LARGE" in str(caught.value)
