"""Each way in, and each way to be kept out, with the client that all commands use."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from ruamel.yaml import YAML

from schemas.errors import BackfillError, Code, EnvironmentProblem
from schemas.settings.kafka import load_kafka
from streaming.cli.app import main
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.topics import create_topic, partitions_of
from streaming.kafka.transactions import TransactionalProducer
from tests.kit.secure import Certificates, SecureBroker, private

pytestmark = pytest.mark.kafka
REFUSAL_LIMIT_S = 30


def settings(folder: Path, section: dict[str, Any]) -> KafkaSettings:
    """Settings of clients, as a command reads them from a file."""
    path = folder / "kafka.yaml"
    with path.open("w") as file:
        YAML(typ="safe").dump(section, file)
    return KafkaSettings.from_config(load_kafka(path, None))


def there_and_back(kafka: KafkaSettings, topic: str) -> list[bytes | None]:
    create_topic(kafka, topic, 1)
    with TransactionalProducer(kafka, topic) as transactions, transactions.transaction() as producer:
        producer.produce(topic, b"in a transaction")
    idempotent = Producer(kafka.producer())
    idempotent.produce(topic, b"alone")
    assert idempotent.flush(30) == 0
    with RangeReader(kafka) as reader:
        marks = reader.await_stable(topic, timeout_s=30)[0]
        return [m.value() for chunk in reader.read(topic, {0: (marks.earliest, marks.stable)}) for m in chunk]


WAYS: dict[str, dict[str, Any]] = {
    "SCRAM-SHA-512": {"listener": "SCRAM"},
    "SCRAM-SHA-256": {"listener": "SCRAM", "sasl_mechanism": "SCRAM-SHA-256"},
    "PLAIN": {"listener": "PLAIN"},
    "SASL_PLAINTEXT": {"listener": "CLEAR", "security": "sasl_plaintext", "ca_file": None},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_logs_in_writes_and_reads(secured: SecureBroker, tmp_path: Path, way: str) -> None:
    kafka = settings(tmp_path, secured.section(**WAYS[way]))
    assert there_and_back(kafka, f"by-{way}") == [b"in a transaction", b"alone"]


@pytest.mark.parametrize("password", [None, "key password"])
def test_a_client_with_a_certificate_writes_and_reads(
    secured: SecureBroker, tmp_path: Path, password: str | None
) -> None:
    kafka = settings(tmp_path, secured.mutual(password=password))
    assert there_and_back(kafka, f"by-mtls-{bool(password)}") == [b"in a transaction", b"alone"]


def test_a_password_in_the_environment_does_as_well(
    secured: SecureBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = secured.section("SCRAM")
    monkeypatch.setenv("KAFKA_PASSWORD", Path(section.pop("password_file")).read_text().rstrip("\n"))
    kafka = settings(tmp_path, {**section, "password_env": "KAFKA_PASSWORD"})
    assert partitions_of(kafka, "nowhere") is None


def wrong_password(secured: SecureBroker, folder: Path) -> dict[str, Any]:
    return secured.section("SCRAM", password_file=str(private(folder / "wrong", "hunter2")))


def wrong_plain_password(secured: SecureBroker, folder: Path) -> dict[str, Any]:
    return secured.section("PLAIN", password_file=str(private(folder / "wrong", "hunter2")))


def unknown_user(secured: SecureBroker, _: Path) -> dict[str, Any]:
    return secured.section("SCRAM", username="nobody")


def wrong_mechanism(secured: SecureBroker, _: Path) -> dict[str, Any]:
    return secured.section("PLAIN", sasl_mechanism="SCRAM-SHA-512")


def wrong_authority(secured: SecureBroker, folder: Path) -> dict[str, Any]:
    return secured.section("SCRAM", ca_file=str(Certificates(folder / "another").ca_file))


def expired(secured: SecureBroker, _: Path) -> dict[str, Any]:
    return secured.section("EXPIRED")


def other_host(secured: SecureBroker, _: Path) -> dict[str, Any]:
    return secured.section("OTHER")


def no_certificate(secured: SecureBroker, _: Path) -> dict[str, Any]:
    return secured.section("MTLS")


def expired_client(secured: SecureBroker, _: Path) -> dict[str, Any]:
    certificate, key = secured.certificates.issue("old-client", "client.example", expired=True)
    return secured.section("MTLS", certificate_file=str(certificate), key_file=str(key))


def foreign_client(secured: SecureBroker, folder: Path) -> dict[str, Any]:
    certificate, key = Certificates(folder / "foreign").issue("client", "client.example")
    return secured.section("MTLS", certificate_file=str(certificate), key_file=str(key))


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (wrong_password, "kafka.username"),
        (wrong_plain_password, "kafka.username"),
        (unknown_user, "kafka.username"),
        (wrong_mechanism, "kafka.sasl_mechanism"),
        (wrong_authority, "unable to get local issuer certificate"),
        (expired, "certificate has expired"),
        (other_host, "certificate is not valid for '127.0.0.1'"),
        (no_certificate, "alert"),
        (expired_client, "alert"),
        (foreign_client, "alert"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_who_is_not_let_in_is_named_why_in_time(
    secured: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Any, text: str
) -> None:
    settings(tmp_path, refused(secured, tmp_path))
    table = tmp_path / "table.yaml"
    table.write_text("{name: t, columns: {id: bigint}, primary_key: [id]}")
    begin = time.monotonic()
    how = ["--kafka", str(tmp_path / "kafka.yaml"), "--table", str(table), "--topic", "t"]
    assert main(["consume", *how]) == EnvironmentProblem.exit_status
    took_s = time.monotonic() - begin
    line = capsys.readouterr().err
    assert line.startswith("AUTH_FAILED")
    assert line.count("\n") == 1
    assert text in line
    assert "hunter2" not in line
    assert took_s < REFUSAL_LIMIT_S


def test_two_who_do_not_speak_the_same_protocol_are_named_where_to_look(
    secured: SecureBroker, tmp_path: Path
) -> None:
    tls = settings(tmp_path, secured.section("SCRAM", bootstrap=secured.broker.bootstrap)).security
    for kafka in (
        KafkaSettings(secured.broker.bootstrap, 2, tls),
        KafkaSettings(secured.broker.address("SCRAM"), 2),
    ):
        with pytest.raises(EnvironmentProblem, match=r"correct .*kafka\.security"):
            partitions_of(kafka, "t")


def test_a_password_that_was_changed_later_is_refused_by_name_too(
    secured: SecureBroker, tmp_path: Path
) -> None:
    kafka = settings(tmp_path, secured.section("SCRAM", password_file=str(private(tmp_path / "p", "wrong"))))
    with pytest.raises(BackfillError) as caught:
        TransactionalProducer(KafkaSettings(kafka.bootstrap, 5, kafka.security), "later")
    assert caught.value.code is Code.AUTH_FAILED


def test_settings_that_travel_hold_no_secret(secured: SecureBroker, tmp_path: Path) -> None:
    kafka = settings(tmp_path, secured.mutual("traveller", password="key password"))
    login = settings(tmp_path, secured.section("SCRAM"))
    for each in (kafka, login):
        for text in (repr(each).encode(), pickle.dumps(each)):
            assert b"quoted" not in text
            assert b"key password" not in text
            assert b"BEGIN" not in text
    assert "quoted" in str(login.client())
    assert pickle.loads(pickle.dumps(login)) == login  # noqa: S301  # our own bytes
