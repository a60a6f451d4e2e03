"""Settings of Kafka's clients that a configuration passes through, by role."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import Code, ConfigError
from streaming.kafka.clients import KafkaSettings
from tests.kit import config_files
from tests.kit.config_files import LEAST


def read(folder: Path, kafka: object) -> KafkaSettings:
    return KafkaSettings.from_config(config_files.read(folder, LEAST | {"kafka": kafka}).kafka)


def refusal_of(folder: Path, kafka: object) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, kafka)
    assert caught.value.code is Code.CONFIG_INVALID
    return caught.value.found


PASSED = {"consumer": {"client.rack": "a", "fetch.min.bytes": 10}, "producer": {"linger.ms": 20}}


def test_settings_of_a_role_reach_its_clients_and_no_others(tmp_path: Path) -> None:
    declared = {"bootstrap": "localhost:9092", **PASSED, "admin": {"socket.keepalive.enable": True}}
    kafka = read(tmp_path, declared)
    consumer, producer, admin = kafka.consumer(), kafka.transactional("t"), kafka.admin()
    assert (consumer["client.rack"], consumer["fetch.min.bytes"]) == ("a", "10")
    assert (producer["linger.ms"], kafka.producer()["linger.ms"]) == ("20", "20")
    assert admin["socket.keepalive.enable"] == "true"
    assert not {"client.rack", "socket.keepalive.enable"} & set(producer)
    assert {"kafka.client.rack", "kafka.fetch.min.bytes"} <= set(kafka.spark_options())
    assert hash(kafka) == hash(read(tmp_path, declared))


@pytest.mark.parametrize("role", ["consumer", "producer", "admin"])
@pytest.mark.parametrize(
    "name",
    [
        "isolation.level",
        "group.id",
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.idempotence",
        "acks",
        "transactional.id",
        "transaction.timeout.ms",
        "max.in.flight.requests.per.connection",
        "partitioner",
        "key.serializer",
        "value.deserializer",
        "bootstrap.servers",
        "sasl.password",
        "ssl.ca.location",
        "security.protocol",
        "enable.ssl.certificate.verification",
        "plugin.library.paths",
        "error_cb",
        "default.topic.config",
        "delivery.report.only.error",
        "logger",
        "on_commit",
        "test.mock.num.brokers",
    ],
)
def test_a_setting_that_a_promise_rests_on_or_that_has_a_key_is_refused_by_name(
    tmp_path: Path, role: str, name: str
) -> None:
    found = refusal_of(tmp_path, {"bootstrap": "localhost:9092", role: {name: "hunter2"}})
    assert "hunter2" not in found
    assert f"kafka.{role}.{name}, which " in found


def test_a_producers_name_and_largest_record_are_the_services_own(tmp_path: Path) -> None:
    own = {"client.id": "a", "message.max.bytes": 7}
    found = refusal_of(tmp_path, {"bootstrap": "localhost:9092", "producer": own})
    assert all(f"kafka.producer.{name}, which is the service's own" in found for name in own)
    assert (
        read(tmp_path, {"bootstrap": "localhost:9092", "consumer": {"client.id": "a"}}).consumer()[
            "client.id"
        ]
        == "a"
    )


@pytest.mark.parametrize("role", ["consumer", "producer", "admin"])
@pytest.mark.parametrize(
    "setting", [("fetch.min.byte", 1), ("linger.ms", "soon"), ("reconnect.backoff.ms", -1)]
)
def test_a_setting_that_librdkafka_does_not_take_is_refused(
    tmp_path: Path, role: str, setting: tuple[str, object]
) -> None:
    name, value = setting
    found = refusal_of(tmp_path, {"bootstrap": "localhost:9092", role: {name: value}})
    assert f'"{name}"' in found or "queue.buffering.max.ms" in found


def test_settings_are_a_mapping_of_texts_numbers_and_truth(tmp_path: Path) -> None:
    assert "kafka.consumer" in refusal_of(tmp_path, {"bootstrap": "localhost:9092", "consumer": ["a"]})
    assert "kafka.consumer.a" in refusal_of(
        tmp_path, {"bootstrap": "localhost:9092", "consumer": {"a": ["b"]}}
    )
