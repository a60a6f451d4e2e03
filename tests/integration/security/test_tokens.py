"""A broker that takes tokens (OAUTHBEARER), with a token server that gives them: both Kafka clients, and refusals."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from cryptography.hazmat.primitives.asymmetric import rsa
from ruamel.yaml import YAML

from schemas.errors import Code, EnvironmentProblem
from schemas.settings.config import load_kafka
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.topics import create_topic, partitions_of
from streaming.kafka.transactions import TransactionalProducer
from tests.kit.canary import Canary
from tests.kit.secure import Certificates, private
from tests.kit.token_server import SECRET, TokenBroker, token_broker

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    with token_broker(tmp_path_factory.mktemp("tokens")) as both:
        yield both


@pytest.fixture
def tokens(running: TokenBroker) -> Iterator[TokenBroker]:
    """Clients that got no token are freed here, on this thread.

    They are in the tracebacks of their errors, which the collector may free on any thread. One that is to ask again
    waits for that, seconds each: on the thread that accepts the token server's connections, for itself.
    """
    server = running.server
    url, key = server.url, server.key
    gc.disable()
    try:
        yield running
    finally:
        server.url, server.key, server.status, server.audience, server.life_s = (
            url,
            key,
            None,
            "the-broker",
            3_600,
        )
        gc.collect()
        gc.enable()


def settings(folder: Path, section: dict[str, Any], wait_s: float = 10.0) -> KafkaSettings:
    path = folder / "kafka.yaml"
    with path.open("w") as file:
        YAML(typ="safe").dump(section, file)
    read = KafkaSettings.from_config(load_kafka(path, None))
    return KafkaSettings(read.bootstrap, wait_s, read.security)


def there_and_back(kafka: KafkaSettings, topic: str) -> list[bytes | None]:
    create_topic(kafka, topic, 1)
    with TransactionalProducer(kafka, topic) as transactions, transactions.transaction() as producer:
        producer.produce(topic, b"in a transaction")
    with RangeReader(kafka) as reader:
        marks = reader.await_stable(topic, timeout_s=30)[0]
        return [m.value() for chunk in reader.read(topic, {0: (marks.earliest, marks.stable)}) for m in chunk]


def test_a_client_that_has_a_token_writes_and_reads(tokens: TokenBroker, tmp_path: Path) -> None:
    kafka = settings(tmp_path, tokens.section())
    assert there_and_back(kafka, "by-token") == [b"in a transaction"]
    assert tokens.server.asked[-1] == {"grant_type": "client_credentials", "scope": "kafka"}
    assert SECRET not in repr(kafka)


def test_a_client_goes_on_when_its_token_has_ended(tokens: TokenBroker, tmp_path: Path) -> None:
    tokens.server.life_s = 4
    create_topic(KafkaSettings(tokens.broker.bootstrap), "longer", 1)
    producer = Producer(settings(tmp_path, tokens.section()).producer())
    end_s = time.monotonic() + 10
    failed: list[KafkaError] = []

    def noted(error: KafkaError | None, _: object) -> None:
        failed.extend([error] if error else [])

    before = len(tokens.server.given)
    while time.monotonic() < end_s:
        producer.produce("longer", b"x", on_delivery=noted)
        assert producer.flush(10) == 0
        threading.Event().wait(0.2)
    assert not failed
    assert len(tokens.server.given) - before >= 3


def wrong_secret(_: TokenBroker, folder: Path) -> dict[str, Any]:
    return {"client_secret_file": str(private(folder / "wrong", "hunter2"))}


def unknown_client(_: TokenBroker, __: Path) -> dict[str, Any]:
    return {"client_id": "nobody"}


def refused_by_the_token_server(tokens: TokenBroker, _: Path) -> dict[str, Any]:
    tokens.server.status = 403
    return {}


def token_server_in_trouble(tokens: TokenBroker, _: Path) -> dict[str, Any]:
    tokens.server.status = 503
    return {}


def token_server_away(_: TokenBroker, __: Path) -> dict[str, Any]:
    return {"token_url": "https://127.0.0.1:1/token"}


def token_server_of_another_authority(_: TokenBroker, folder: Path) -> dict[str, Any]:
    return {"ca_file": str(Certificates(folder / "another").ca_file)}


def token_for_others(tokens: TokenBroker, _: Path) -> dict[str, Any]:
    tokens.server.audience = "somebody-else"
    return {}


def token_of_another_key(tokens: TokenBroker, _: Path) -> dict[str, Any]:
    tokens.server.key = rsa.generate_private_key(65_537, 2_048)
    return {}


@pytest.mark.parametrize(
    ("trouble", "code", "expected"),
    [
        (wrong_secret, Code.AUTH_FAILED, "no token from the token server (status 401)"),
        (
            token_server_away,
            Code.BROKER_UNREACHABLE,
            "no answer from the token server (ConnectionRefusedError)",
        ),
        (token_of_another_key, Code.AUTH_FAILED, "refused a login by token"),
        *(
            pytest.param(*further, marks=pytest.mark.thorough)
            for further in (
                (unknown_client, Code.AUTH_FAILED, "no token from the token server (status 401)"),
                (
                    refused_by_the_token_server,
                    Code.AUTH_FAILED,
                    "no token from the token server (status 403)",
                ),
                (
                    token_server_in_trouble,
                    Code.BROKER_UNREACHABLE,
                    "no answer from the token server (status 503)",
                ),
                (token_server_of_another_authority, Code.BROKER_UNREACHABLE, "(SSLCertVerificationError)"),
                (token_for_others, Code.AUTH_FAILED, "refused a login by token"),
            )
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_why_there_is_no_login_is_named(
    tokens: TokenBroker, tmp_path: Path, trouble: Any, code: Code, expected: str
) -> None:
    kafka = settings(tmp_path, tokens.section(**trouble(tokens, tmp_path)))
    for attempt in (lambda: partitions_of(kafka, "nowhere"), lambda: TransactionalProducer(kafka, "nobody")):
        with pytest.raises(EnvironmentProblem) as caught:
            attempt()
        assert caught.value.code is code
        assert expected in str(caught.value)
        assert "hunter2" not in str(caught.value)
        assert "details" not in str(caught.value)


TABLE = {
    "name": "orders",
    "columns": {"id": "bigint", "note": "string"},
    "primary_key": ["id"],
    "vnode_count": 8,
}
ROWS = 400


@pytest.mark.spark
@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_table_goes_the_whole_way_by_tokens_that_end_meanwhile(tokens: TokenBroker, tmp_path: Path) -> None:
    """Spark's client logs in as well. What was written and said holds neither the secret nor a token."""
    tokens.server.life_s = 12
    scratch, logs = tmp_path / "scratch", tmp_path / "logs"
    config = tmp_path / "config.json"
    declared = {
        "kafka": tokens.section(),
        "upstream": "by-tokens",
        "state": "state",
        "barrier_interval": "200ms",
        "table": TABLE,
        "jobs": [{"name": "copy", "output": "by-tokens-copy", "output_partitions": 2, "rate_limit": 20}],
        "lanes": 2,
        "spark": {"driver_memory": "512m"},
    }
    config.write_text(json.dumps(declared))
    environment = {"BACKFILL_LOGS": str(logs), "TMPDIR": str(scratch)}
    for folder in (scratch, logs):
        folder.mkdir()
    with Canary({"secret": SECRET.split("+")[0]}, scratch) as canary:

        def run(*arguments: str) -> str:
            done = subprocess.run(
                [sys.executable, "-m", "streaming.cli.app", arguments[0], str(config), *arguments[1:]],
                capture_output=True, text=True, timeout=300, env={**os.environ, **environment}, check=False,
            )  # fmt: skip
            canary.look_at_output(f"{arguments[0]} says", done.stdout + done.stderr)
            assert done.returncode == 0, done.stderr
            return done.stdout

        run("produce", "--rows", str(ROWS), "--partitions", "2")
        before = len(tokens.server.given)
        run("run", "--exit-when-complete", "--log-json")
        by_service = len(tokens.server.given) - before
        assert json.loads(run("consume", "--job", "copy", "--count", "--format", "json"))["inserts"] == ROWS
        run("verify", "--require-complete", "--json")
        canary.look(logs, tmp_path / "state")
    signatures = {f"token {number}": text.split(".")[2] for number, text in enumerate(tokens.server.given)}
    given = Canary(signatures, scratch)
    given.look(logs, tmp_path / "state", scratch)
    assert canary.hits | given.hits == set()
    assert any("_delta_log" in place for place in given.looked_at)
    assert by_service > 0
