"""The embedded broker: transactions, crashes, and an end with its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from schemas.errors import Code, EnvironmentProblem
from streaming.broker.embedded import EmbeddedBroker

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One for all that leave it running."""
    folder = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(data=folder / "data", log=folder / "kafka.log", heap="256m") as running:
        yield running


def test_what_was_committed_is_there_after_a_kill_and_what_was_open_is_not(broker: EmbeddedBroker) -> None:
    address = broker.bootstrap
    _create(address, "t", 1)
    producer = Producer({"bootstrap.servers": address, "transactional.id": "first", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"committed")
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce("t", b"open")
    assert producer.flush(30) == 0

    broker.kill()
    broker.start()

    assert broker.bootstrap == address
    successor = Producer({"bootstrap.servers": address, "transactional.id": "first"})
    successor.init_transactions(30)
    assert _read_committed(address, "t") == [b"committed"]


def test_a_stopped_broker_goes_on_where_it_was(broker: EmbeddedBroker) -> None:
    _create(broker.bootstrap, "kept", 3)
    broker.stop()
    assert broker.pid is None
    broker.start()
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
    assert len(topics["kept"].partitions) == 3


def test_a_mistyped_topic_is_not_created(broker: EmbeddedBroker) -> None:
    refused: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "topic.metadata.propagation.max.ms": 100,
            "message.timeout.ms": 5000,
        }
    )
    producer.produce(
        "mistyped", b"v", on_delivery=lambda error, _: refused.append(error.code() if error else 0)
    )
    producer.flush(30)
    assert refused == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert (
        "mistyped" not in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
    )


def test_a_port_in_use_is_a_named_error(tmp_path: Path) -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        with (
            pytest.raises(EnvironmentProblem) as failure,
            EmbeddedBroker(port=port, log=tmp_path / "kafka.log"),
        ):
            pass
    assert failure.value.code is Code.BROKER_FAILED
    assert (tmp_path / "kafka.log").read_text().count("Address already in use") >= 1


_PARENT = """
import sys
from pathlib import Path
from streaming.broker.embedded import EmbeddedBroker
with EmbeddedBroker(data=Path("data"), log=Path("kafka.log")) as broker:
    print(broker.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_killed_parent_takes_the_broker_along(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    ) as parent:
        assert parent.stdout is not None
        broker = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
        _gone, alive = psutil.wait_procs([broker], timeout=30)
        assert alive == []


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_its_address_and_stops_cleanly(stop: signal.Signals, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "streaming.cli.app",
        "kafka",
        "--port",
        "0",
        "--data",
        str(tmp_path / "data"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).brokers
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(stop)
        assert process.wait(30) == 0
        assert not any(child.is_running() for child in children)
    assert (tmp_path / "data" / "topics" / ".kafka_cleanshutdown").exists()


def _create(address: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(30)


def _read_committed(address: str, topic: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while (message := consumer.poll(30)) is not None and not message.error():
        values.append(message.value() or b"")
    consumer.close()
    return values
