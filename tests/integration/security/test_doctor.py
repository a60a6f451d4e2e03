"""`backfill doctor` on a broker with logins and rights, and on one without."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from schemas.records import Change, Op
from streaming.cli.app import main
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.secure import USER, SecureBroker, secure_broker
from tests.kit.tables import table

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with secure_broker(tmp_path_factory.mktemp("guarded"), settings=settings) as running:
        yield running


def asked(
    kafka: dict[str, Any], upstream: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, dict[str, str]]]:
    path = folder / "config.json"
    job = {"name": "copy", "output": f"{upstream}-copy"}
    declared = {
        "kafka": kafka,
        "upstream": upstream,
        "state": "state",
        "table": table().to_dict(),
        "jobs": [job],
    }
    path.write_text(json.dumps(declared))
    capsys.readouterr()
    status = main(["doctor", str(path), "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    return status, {each["subject"]: each for each in found}


def grant(broker: SecureBroker, kind: Any, name: str, *operations: str, prefix: bool = False) -> None:
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    admin = AdminClient(KafkaSettings(broker.broker.bootstrap).client())
    bindings = [
        AclBinding(kind, name, pattern, f"User:{USER}", "*", AclOperation[each], AclPermissionType.ALLOW)
        for each in operations
    ]
    for answer in admin.create_acls(bindings).values():
        answer.result(30)


def test_rights_that_are_missing_are_named_and_seen_once_granted(
    guarded: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = KafkaSettings(guarded.broker.bootstrap)
    create_topic(plain, "orders", 3)
    status, found = asked(guarded.section("SCRAM"), "orders", tmp_path, capsys)
    assert status == 7
    assert found["broker"]["verdict"] == "ok", found["broker"]
    assert found["topic orders"]["found"].startswith("AUTH_FAILED at orders: ")
    assert found["transactions"]["verdict"] == "warning"

    grant(guarded, ResourceType.TOPIC, "orders", "READ")
    status, found = asked(guarded.section("SCRAM"), "orders", tmp_path, capsys)
    said = (
        "AUTH_FAILED at orders: found 3 partitions, without the right to DESCRIBE_CONFIGS, WRITE; expected "
    )
    assert status == 7
    assert found["topic orders"]["found"].startswith(said)

    grant(guarded, ResourceType.TOPIC, "orders", "WRITE", "DESCRIBE_CONFIGS")
    for name in ("orders.control", "orders-copy"):
        grant(guarded, ResourceType.TOPIC, name, "READ", "WRITE", "DESCRIBE_CONFIGS", "CREATE")
    grant(guarded, ResourceType.TRANSACTIONAL_ID, "backfill-", "WRITE", prefix=True)
    status, found = asked(guarded.section("SCRAM"), "orders", tmp_path, capsys)
    assert status == 0
    assert {name: each["verdict"] for name, each in found.items()}["transactions"] == "ok"
    assert found["topic orders-copy"]["found"].startswith("not there yet")


def test_a_wrong_password_is_the_broker_line(
    guarded: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WRONG", "not this one")
    section = guarded.section("SCRAM", password_file=None, password_env="WRONG")
    status, found = asked(section, "orders", tmp_path, capsys)
    assert (status, found["broker"]["found"][:11]) == (7, "AUTH_FAILED")
    assert "topic orders" not in found


def test_a_record_of_tomorrow_and_a_topic_that_is_missing(
    guarded: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the plain listener, whose user may do all."""
    plain = KafkaSettings(guarded.broker.bootstrap)
    status, found = asked({"bootstrap": plain.bootstrap}, "late", tmp_path, capsys)
    assert (status, found["topic late"]["found"][:13]) == (5, "TOPIC_MISSING")

    create_topic(plain, "late", 1)
    status, found = asked({"bootstrap": plain.bootstrap}, "late", tmp_path, capsys)
    assert (status, found["clock"]["found"]) == (0, "no record to compare with yet")
    assert "initial" not in found
    producer = Producer(plain.producer())
    key, value = KeyCodec(table().key_columns), ChangeCodec(table().columns)
    row = (1, *(None for _ in table().columns[1:]))
    change = value.encode(Change(Op.INSERT, None, row))
    producer.produce("late", change, key.encode((1,)), timestamp=round((time.time() + 3_000) * 1_000))
    producer.flush(30)
    status, found = asked({"bootstrap": plain.bootstrap}, "late", tmp_path, capsys)
    assert (status, found["clock"]["verdict"]) == (0, "warning")
    assert " s in the future" in found["clock"]["found"]
