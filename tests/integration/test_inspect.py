"""From somebody's topic to a configuration that is one, by the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from schemas.formats.debezium import DebeziumFormat
from schemas.settings.config import load
from streaming.cli.app import main
from tests.kit.debezium import recorded

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


def test_a_topic_that_is_not_there_is_an_error_in_one_line(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "nobody-made-it", "--bootstrap", bootstrap]) != 0
    assert capsys.readouterr().err.startswith("TOPIC_MISSING at nobody-made-it")
