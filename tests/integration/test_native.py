"""Columns handed to librdkafka arrive as they are, in order, in the producer's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Message, Producer

from schemas.errors import Fenced
from streaming.kafka import native
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.kafka.native import NO_HEADERS, ColumnProducer, RecordProducer, open_columns
from streaming.kafka.transactions import TransactionalProducer
from tests.kit.real import await_condition

PARTITIONS = 4
NAMED: dict[str, Any] = {"client.id": "columns"}

pytestmark = pytest.mark.kafka


@pytest.fixture(params=["known layout", "unknown layout"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """Both ways have to send the same."""
    if request.param == "known layout":
        return ColumnProducer
    monkeypatch.setattr(native, "_KNOWN_VERSIONS", frozenset())
    return RecordProducer


def test_the_way_is_the_one_that_the_version_allows(bootstrap: str, way: type) -> None:
    producer = Producer(KafkaSettings(bootstrap).producer(**NAMED))
    assert type(open_columns(producer, "columns")) is way


def test_a_handle_that_answers_to_another_name_is_not_used(bootstrap: str) -> None:
    producer = Producer(KafkaSettings(bootstrap).producer(**NAMED))
    assert type(open_columns(producer, "others")) is RecordProducer


def test_a_topic_that_librdkafka_will_not_have_is_an_error(bootstrap: str) -> None:
    producer = Producer(KafkaSettings(bootstrap).producer(**NAMED))
    column = pa.array([b"x"], pa.binary())
    with pytest.raises(KafkaException):
        open_columns(producer, "columns").send("", None, column, column)


def test_a_producer_that_knows_itself_fenced_says_so_when_it_is_handed_columns(
    bootstrap: str, topic: Callable[..., str]
) -> None:
    # librdkafka refuses them with `_FATAL` then, which names no reason.
    kafka, name = KafkaSettings(bootstrap), topic(partitions=1)
    column = pa.array([b"late"], pa.binary())
    with TransactionalProducer(kafka, name, **NAMED) as old:
        columns = open_columns(old.producer, "columns")

        def is_sent() -> bool:
            columns.send(name, None, column, column)
            return True

        def write_until_refused() -> None:
            assert is_sent()
            TransactionalProducer(kafka, name).close()
            await_condition(lambda: not is_sent(), "a refusal")

        with pytest.raises(Fenced), old.transaction():
            write_until_refused()
        columns.close()


def send(
    kafka: KafkaSettings, topic: str, count: int, headers: Mapping[str, bytes] = NO_HEADERS, **over: Any
) -> None:
    numbers = np.arange(count)
    keys = pa.array([b"key %d" % number for number in numbers], pa.binary())
    values = pa.array([b"value %d" % number for number in numbers], pa.binary())
    with TransactionalProducer(kafka, "columns", **NAMED, **over) as transactions:
        columns = open_columns(transactions.producer, "columns")
        with transactions.transaction():
            columns.send(topic, (numbers % PARTITIONS).astype(np.int32), keys, values, headers)
        columns.close()


def test_leaders_of_all_expected_topics_are_asked_for_at_once(
    bootstrap: str, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And records go to each of them right away, within the transaction."""
    asked, ask = list[ColumnProducer](), ColumnProducer._ask_for_leaders

    def counted(self: ColumnProducer) -> None:
        asked.append(self)
        ask(self)

    monkeypatch.setattr(ColumnProducer, "_ask_for_leaders", counted)
    kafka, names = KafkaSettings(bootstrap), [topic(partitions=PARTITIONS) for _ in range(4)]
    numbers = np.arange(8)
    keys = pa.array([b"key %d" % number for number in numbers], pa.binary())
    values = pa.array([b"value %d" % number for number in numbers], pa.binary())
    with TransactionalProducer(kafka, "columns", **NAMED) as transactions:
        columns = open_columns(transactions.producer, "columns")
        columns.expect(names[:3])
        with transactions.transaction():
            for name in names:
                columns.send(name, (numbers % PARTITIONS).astype(np.int32), keys, values)
        columns.close()
    assert all(received(kafka, name) == expected(8) for name in names)
    assert len(asked) == (2 if isinstance(columns, ColumnProducer) else 0)


def messages(kafka: KafkaSettings, topic: str) -> Iterator[Message]:
    with RangeReader(kafka) as reader:
        # A commit is answered before its markers are in all partitions.
        marks = reader.await_stable(topic, timeout_s=30)
        ranges = {number: (mark.earliest, mark.high) for number, mark in enumerate(marks)}
        for chunk in reader.read(topic, ranges):
            yield from chunk


def received(kafka: KafkaSettings, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {number: [] for number in range(PARTITIONS)}
    for message in messages(kafka, topic):
        found[located(message)[0]].append((message.key(), message.value()))
    return found


def expected(count: int) -> dict[int, list[tuple[bytes, bytes]]]:
    return {
        partition: [(b"key %d" % n, b"value %d" % n) for n in range(partition, count, PARTITIONS)]
        for partition in range(PARTITIONS)
    }


def test_columns_may_be_the_first_that_a_producer_sends(bootstrap: str, topic: Callable[..., str]) -> None:
    kafka = KafkaSettings(bootstrap)
    for _ in range(5):
        name = topic(partitions=PARTITIONS)
        send(kafka, name, 1_000)
        assert received(kafka, name) == expected(1_000)


@pytest.mark.parametrize("headers", [{}, {"epoch": b"42"}])
def test_order_is_kept_when_the_queue_is_full_again_and_again(
    bootstrap: str, topic: Callable[..., str], headers: dict[str, bytes]
) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(partitions=PARTITIONS)
    send(kafka, name, 50_000, headers, **{"queue.buffering.max.messages": 1_000})
    assert received(kafka, name) == expected(50_000)


def test_every_record_has_the_headers(bootstrap: str, topic: Callable[..., str]) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(partitions=PARTITIONS)
    headers = {"epoch": b"4294967296", "of": b"columns"}
    send(kafka, name, 25_000, headers)
    assert received(kafka, name) == expected(25_000)
    assert all(message.headers() == list(headers.items()) for message in messages(kafka, name))


@pytest.mark.parametrize("headers", [{}, {"epoch": b"42"}])
def test_a_null_is_a_record_without_it(
    bootstrap: str, topic: Callable[..., str], headers: dict[str, bytes]
) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(partitions=PARTITIONS)
    keys = pa.array([b"a", None, b"c"], pa.binary())
    values = pa.array([None, b"2", b"3"], pa.binary()).take(pa.array([0, 1, 0]))
    with TransactionalProducer(kafka, "columns", **NAMED) as transactions:
        columns = open_columns(transactions.producer, "columns")
        with transactions.transaction():
            columns.send(name, np.zeros(3, np.int32), keys, values, headers)
        columns.close()
    assert received(kafka, name)[0] == [(b"a", None), (None, b"2"), (b"c", None)]


def test_a_slice_of_a_column_sends_that_slice(bootstrap: str, topic: Callable[..., str]) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(partitions=PARTITIONS)
    values = pa.array([b"%d" % number for number in range(10)], pa.binary()).slice(3, 4)
    with TransactionalProducer(kafka, "columns", **NAMED) as transactions:
        columns = open_columns(transactions.producer, "columns")
        with transactions.transaction():
            columns.send(name, np.zeros(4, np.int32), values, values)
        columns.close()
    assert received(kafka, name)[0] == [(b"%d" % n, b"%d" % n) for n in range(3, 7)]


@pytest.mark.parametrize("headers", [{}, {"epoch": b"42"}])
@pytest.mark.parametrize("keys", [[None, b"", b"k"], [b""], [None]], ids=["mixed", "empty", "none"])
def test_bytes_of_no_length_are_not_null(
    bootstrap: str, topic: Callable[..., str], keys: list[bytes | None], headers: dict[str, bytes]
) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(partitions=PARTITIONS)
    pairs = [(key, value) for key in keys for value in (b"", None)]
    column, values = (pa.array(half, pa.binary()) for half in zip(*pairs, strict=True))
    with TransactionalProducer(kafka, "columns", **NAMED) as transactions:
        columns = open_columns(transactions.producer, "columns")
        with transactions.transaction():
            columns.send(name, np.zeros(len(pairs), np.int32), column, values, headers)
        columns.close()
    assert received(kafka, name)[0] == pairs
