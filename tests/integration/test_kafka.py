"""Settings, topics, ranges, tails and transactions against a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

import streaming.kafka.consumer
from schemas.errors import Code, EnvironmentProblem, Fenced, InputError, TopicError
from streaming.broker.embedded import EmbeddedBroker
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, location
from streaming.kafka.topics import (
    Watermarks,
    admin,
    create_topic,
    end_offsets,
    partitions_of,
    require_topic,
    stable_offsets,
    watermarks,
)
from streaming.kafka.transactions import TransactionalProducer
from tests.kit.kafka_topics import read_tail
from tests.kit.real import await_condition

Topic = Callable[..., str]
NOBODY = "127.0.0.1:1"


def send(kafka: KafkaSettings, topic: str, values: list[bytes], *, partition: int = 0) -> None:
    producer = Producer(kafka.producer())
    for value in values:
        producer.produce(topic, value, partition=partition)
    producer.flush()


def committed(kafka: KafkaSettings, topic: str, partition: int = 0) -> list[bytes | None]:
    with RangeReader(kafka) as reader:
        marks = reader.watermarks(topic)[partition]
        chunks = reader.read(topic, {partition: (marks.earliest, marks.high)})
        return [message.value() for chunk in chunks for message in chunk]


def test_a_broker_that_is_not_there_is_named_within_the_bounded_wait() -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        require_topic(KafkaSettings(NOBODY, wait_s=1), "orders")
    assert caught.value.code is Code.BROKER_UNREACHABLE
    assert NOBODY in str(caught.value)


def test_librdkafka_writes_nothing_to_the_terminal_not_even_when_fenced(
    kafka: KafkaSettings, topic: Topic
) -> None:
    script = """
import sys
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import require_topic
from streaming.kafka.transactions import TransactionalProducer
from schemas.errors import BackfillError, Fenced
kafka, topic = KafkaSettings(sys.argv[1]), sys.argv[2]
old, new = (TransactionalProducer(kafka, topic) for _ in range(2))
try:
    with old.transaction() as producer:
        producer.produce(topic, b"late")
except Fenced:
    try:
        require_topic(KafkaSettings("127.0.0.1:1", wait_s=1), topic)
    except BackfillError:
        sys.exit(9)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, kafka.bootstrap, topic()], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (9, "", "")


def test_creating_a_topic_twice_is_one_topic_and_another_partition_count_is_an_error(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic(partitions=3)
    create_topic(kafka, name, 3)
    assert require_topic(kafka, name) == 3
    with pytest.raises(TopicError) as caught:
        create_topic(kafka, name, 4)
    assert caught.value.code is Code.OUTPUT_TOPIC_MISMATCH


def test_a_topic_made_here_can_be_written_to_at_once(kafka: KafkaSettings) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    create_topic(kafka, name, 8)
    for partition in range(8):
        send(kafka, name, [b"x"], partition=partition)
    assert [marks.high for marks in watermarks(kafka, name)] == [1] * 8


def test_offsets_of_a_topic_made_here_can_be_asked_for_at_once(kafka: KafkaSettings) -> None:
    # With one partition the broker is nearly always ready; with many, one of them denies to lead at first.
    client = admin(kafka)
    for _ in range(5):
        name = uuid.uuid4().hex
        create_topic(kafka, name, 64)
        assert all(marks.high == 0 for marks in watermarks(kafka, name))
        client.delete_topics([name])[name].result(30)


def test_a_missing_topic_has_no_partitions_and_is_an_error_when_required(kafka: KafkaSettings) -> None:
    assert partitions_of(kafka, "nowhere") is None
    with pytest.raises(TopicError) as caught:
        require_topic(kafka, "nowhere")
    assert caught.value.code is Code.TOPIC_MISSING


def test_an_error_in_the_block_comes_out_though_the_client_is_dead_by_then(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic()

    def fail(producer: Producer) -> None:
        producer.produce(name, b"of the old one", partition=0)
        producer.flush()
        TransactionalProducer(kafka, "followed").close()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), TransactionalProducer(kafka, "followed") as transactions:  # noqa: SIM117
        with transactions.transaction() as producer:
            fail(producer)


def test_an_open_transaction_holds_the_stable_offset_back(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    with TransactionalProducer(kafka, name) as transactions, transactions.transaction() as producer:
        producer.produce(name, b"open")
        producer.flush()
        marks = watermarks(kafka, name)[0]
        assert (marks.stable, marks.high) == (0, 1)
        with RangeReader(kafka) as reader, pytest.raises(TopicError, match="BARRIER_STALLED"):
            reader.await_stable(name, timeout_s=0.2)


def test_only_committed_records_are_read_and_markers_are_no_records(
    kafka: KafkaSettings, topic: Topic
) -> None:
    name = topic()
    with TransactionalProducer(kafka, name) as transactions:
        with transactions.transaction() as producer:
            producer.produce(name, b"kept")
        with suppress(ZeroDivisionError), transactions.transaction() as producer:
            producer.produce(name, b"aborted")
            producer.flush()  # it is in the log, and has to be passed over
            raise ZeroDivisionError
    assert committed(kafka, name) == [b"kept"]
    tail = read_tail(kafka, name, 0)
    assert tail is not None
    assert location(tail) == f"{name}-0@0"


def test_a_range_ends_where_it_says_in_every_partition(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        send(kafka, name, [b"%d" % n for n in range(50)], partition=partition)
    with RangeReader(kafka) as reader:
        chunks = list(reader.read(name, {0: (10, 20), 1: (0, 5)}))
        assert list(reader.read(name, {0: (7, 7)})) == []
    read = {(m.partition(), m.offset()) for chunk in chunks for m in chunk}
    assert read == {(0, n) for n in range(10, 20)} | {(1, n) for n in range(5)}


class Consumers(Consumer):
    """Remembers those that were made."""

    made: ClassVar[list[Consumer]] = []

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.made.append(self)


def test_a_caller_that_reads_no_further_leaves_nothing_assigned(
    kafka: KafkaSettings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the consumer goes on asking the broker, and the next read waits for the answer to that."""
    name = topic()
    send(kafka, name, [b"one", b"two"])
    monkeypatch.setattr(streaming.kafka.consumer, "Consumer", Consumers)
    with RangeReader(kafka) as reader:
        assert next(reader.read(name, {0: (0, 2)}))
        [consumer] = Consumers.made
        assert consumer.assignment() == []


def test_the_end_of_a_partition_is_no_end_of_a_range_that_goes_on(bootstrap: str, topic: Topic) -> None:
    kafka, name = KafkaSettings(bootstrap, wait_s=1), topic()
    send(kafka, name, [b"seen"])
    with RangeReader(kafka) as reader, pytest.raises(EnvironmentProblem, match="BROKER_UNREACHABLE"):
        list(reader.read(name, {0: (0, 2)}))


def test_the_last_wanted_record_is_found_behind_many_others(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    producer = Producer(kafka.producer())
    producer.produce(name, b"first", headers=[("mark", b"1")])
    producer.produce(name, b"second", headers=[("mark", b"2")])
    for n in range(20_000):
        producer.produce(name, b"%d" % n)
    producer.flush()
    found = read_tail(kafka, name, 0, lambda record: header_of(record, "mark") is not None)
    assert found is not None
    assert found.value() == b"second"
    assert read_tail(kafka, name, 0, lambda record: header_of(record, "other") is not None) is None
    assert read_tail(kafka, topic(), 0) is None


class CountingReader(RangeReader):
    asked = 0

    def watermarks(self, topic: str) -> tuple[Watermarks, ...]:
        self.asked += 1
        return super().watermarks(topic)


def test_records_are_looked_for_in_many_partitions_at_once(kafka: KafkaSettings, topic: Topic) -> None:
    """A start asks for the last barrier of a thousand partitions: none may cost a question about all of them."""
    name = topic(partitions=12)
    producer = Producer(kafka.producer())
    for number in range(11):  # the last one stays empty
        producer.produce(name, b"mark", partition=number)
        for _ in range(number * 60):
            producer.produce(name, b"", partition=number)
    producer.flush()
    with CountingReader(kafka) as reader:
        found = reader.look_back(name, range(12), lambda record: record.value() == b"mark", most=500)
    assert reader.asked == 1
    marks = {number: look.message.offset() for number, look in found.items() if look.message is not None}
    assert marks == dict.fromkeys(range(9), 0)
    assert [found[number].since for number in (9, 10, 11)] == [41, 101, 0]


def test_a_newer_producer_fences_the_older_one(kafka: KafkaSettings, topic: Topic) -> None:
    name = topic()
    with TransactionalProducer(kafka, name) as old, TransactionalProducer(kafka, name) as new:
        with pytest.raises(Fenced), old.transaction() as producer:
            producer.produce(name, b"old")
        with new.transaction() as producer:
            producer.produce(name, b"new")
    assert committed(kafka, name) == [b"new"]


class FillingReader(RangeReader):
    """A reader whose topic gets three more records before it is asked for its ends."""

    def watermarks(self, topic: str) -> tuple[Watermarks, ...]:
        send(self._settings, topic, [b""] * 3)
        return super().watermarks(topic)


def test_an_offset_is_lost_only_if_the_topic_lacks_it(kafka: KafkaSettings, topic: Topic) -> None:
    """A broker may not have it yet: a leader that has just become one shows less than the one before."""
    name = topic()
    send(kafka, name, [b""] * 3)
    with FillingReader(kafka) as reader, pytest.raises(EnvironmentProblem) as passing:
        list(reader.read(name, {0: (5, 6)}))
    assert passing.value.code is Code.BROKER_FAILED
    assert "fetch failed due to requested offset" in passing.value.found
    with RangeReader(kafka) as reader, pytest.raises(InputError) as lost:
        list(reader.read(name, {0: (7, 9)}))
    assert lost.value.code is Code.DATA_LOST
    assert lost.value.where == f"{name}-0@7"
    assert "offsets 0 to 5" in lost.value.found


class StoppingClient(AdminClient):
    """A client whose broker stands still from the moment that offsets are asked for."""

    pid: int

    def list_offsets(self, *asked: Any, **options: Any) -> Any:
        os.kill(self.pid, signal.SIGSTOP)
        broker = psutil.Process(self.pid)  # some of its threads go on for a moment
        await_condition(lambda: broker.status() == psutil.STATUS_STOPPED, "a broker that stands still")
        return super().list_offsets(*asked, **options)


@contextmanager
def going_on(pid: int) -> Iterator[None]:
    """Let the process run again afterwards."""
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.kafka
def test_offsets_that_do_not_come_in_time_are_no_offsets(tmp_path: Path) -> None:
    """A broker that stands still has lost no record, and none of its partitions is empty."""
    with EmbeddedBroker(data=tmp_path / "data", log=tmp_path / "kafka.log") as broker:
        kafka, places = KafkaSettings(broker.bootstrap), [("kept", 0), ("kept", 1)]
        create_topic(kafka, "kept", 2)
        client, soon = StoppingClient(kafka.client()), replace(kafka, wait_s=1)
        assert broker.pid is not None
        client.pid = broker.pid
        for ask in (
            lambda: watermarks(soon, "kept", client=client),
            lambda: stable_offsets(soon, "kept", 2, client=client),
            lambda: end_offsets(soon, places, client=client),
        ):
            client.list_topics("kept", timeout=kafka.wait_s)
            with going_on(broker.pid), pytest.raises(EnvironmentProblem) as caught:
                ask()
            assert caught.value.code is Code.BROKER_UNREACHABLE
        assert set(end_offsets(kafka, places, client=admin(kafka)).values()) == {0}
