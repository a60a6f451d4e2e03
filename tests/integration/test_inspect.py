"""From a topic to a configuration for it, by the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from schemas.formats.debezium import DebeziumFormat
from schemas.settings.config import load
from streaming.cli.app import main
from tests.kit.debezium import recorded, recorded_schemas
from tests.kit.registry import FakeRegistry

pytestmark = pytest.mark.kafka


def test_a_topic_becomes_a_configuration(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for each in recorded("schemas"):
        if "orders" in each.topic:
            producer.produce(name, each.value, each.key, each.partition)
    assert producer.flush(30) == 0
    assert main(["inspect", name, "--bootstrap", bootstrap]) == 0
    written = tmp_path / "config.yaml"
    written.write_text(capsys.readouterr().out, encoding="utf-8")
    config = load(written)
    assert (config.upstream, config.kafka.bootstrap) == (name, bootstrap)
    assert config.upstream_format == DebeziumFormat(time="adaptive", decimal="precise")
    assert len(config.table.columns) == 18


def test_columns_of_events_in_avro_come_from_the_registry(
    bootstrap: str, topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = topic(partitions=3)
    producer = Producer({"bootstrap.servers": bootstrap})
    for each in recorded("avro"):
        if "orders" in each.topic:
            producer.produce(name, each.value, each.key, each.partition)
    assert producer.flush(30) == 0
    with FakeRegistry().serving() as registry:
        for schema in recorded_schemas().schemas:
            registry.register(f"subject-{schema.id}", json.loads(schema.text), schema_id=schema.id)
        assert main(["inspect", name, "--bootstrap", bootstrap, "--registry", registry.url]) == 0
        section = tmp_path / "registry.yaml"
        section.write_text(f"registry:\n  url: {registry.url}\n", encoding="utf-8")
        written = tmp_path / "config.yaml"
        written.write_text(by_url := capsys.readouterr().out, encoding="utf-8")
        assert main(["inspect", name, "--bootstrap", bootstrap, "--registry", str(section)]) == 0
        assert capsys.readouterr().out == by_url
    config = load(written)
    assert config.upstream_format == DebeziumFormat(encoding="avro-registry")
    assert config.registry.url == registry.url
    assert len(config.table.columns) == 17
    assert main(["inspect", name, "--bootstrap", bootstrap, "--registry", "ftp://x"]) != 0
    assert capsys.readouterr().err.startswith("CONFIG_INVALID")


def test_a_topic_that_is_not_there_is_an_error_in_one_line(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "nobody-made-it", "--bootstrap", bootstrap]) != 0
    assert capsys.readouterr().err.startswith("TOPIC_MISSING at nobody-made-it")
