"""The registry's client, and the page's example, with a real registry."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from schemas.errors import Code, EnvironmentProblem
from schemas.settings.registry import RegistryConfig
from streaming.registry.client import Registry
from tests.conftest import TopicFactory
from tests.integration.test_formats_page import COLUMNS, is_as_printed
from tests.kit.apicurio import Apicurio, apicurio

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
    config = {
        "upstream": {"topic": name, "format": "upsert", "encoding": "avro-registry"},
        "table": {"name": "orders", "columns": COLUMNS, "primary_key": ["id"]},
        "registry": {"url": registry.url},
    }
    assert is_as_printed(1, bootstrap, name, tmp_path, **config)


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
        assert not client(registry).answers()
    finally:
        registry.process.send_signal(signal.SIGCONT)
    assert client(registry).answers()
