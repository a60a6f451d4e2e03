"""Columns handed to librdkafka arrive as they are, in order, in the producer's transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streaming.runtime.consumer import RangeReader
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.native import ColumnProducer
from streaming.runtime.transactions import TransactionalProducer

PARTITIONS = 4
NAMED: dict[str, Any] = {"client.id": "columns"}

pytestmark = pytest.mark.kafka


def send(kafka: KafkaSettings, topic: str, count: int, **over: Any) -> None:
    numbers = np.arange(count)
    keys = pa.array([b"key %d" % number for number in numbers], pa.binary())
    values = pa.array([b"value %d" % number for number in numbers], pa.binary())
    with TransactionalProducer(kafka, "columns", **NAMED, **over) as transactions:
        columns = ColumnProducer(transactions.producer, "columns")
        with transactions.transaction():
            columns.send(topic, (numbers % PARTITIONS).astype(np.int32), keys, values)
        columns.close()


def received(kafka: KafkaSettings, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {number: [] for number in range(PARTITIONS)}
    with RangeReader(kafka) as reader:
        # A commit is answered before its markers are in all partitions.
        marks = reader.await_stable(topic, timeout_s=30)
        ranges = {number: (mark.earliest, mark.high) for number, mark in enumerate(marks)}
        for chunk in reader.read(topic, ranges):
            for message in chunk:
                partition = message.partition()
                assert partition is not None
                found[partition].append((message.key(), message.value()))
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


def test_order_is_kept_when_the_queue_is_full_again_and_again(
    bootstrap: str, topic: Callable[..., str]
) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(partitions=PARTITIONS)
    send(kafka, name, 50_000, **{"queue.buffering.max.messages": 1_000})
    assert received(kafka, name) == expected(50_000)


def test_a_slice_of_a_column_sends_that_slice(bootstrap: str, topic: Callable[..., str]) -> None:
    kafka, name = KafkaSettings(bootstrap), topic(partitions=PARTITIONS)
    values = pa.array([b"%d" % number for number in range(10)], pa.binary()).slice(3, 4)
    with TransactionalProducer(kafka, "columns", **NAMED) as transactions:
        columns = ColumnProducer(transactions.producer, "columns")
        with transactions.transaction():
            columns.send(name, np.zeros(4, np.int32), values, values)
        columns.close()
    assert received(kafka, name)[0] == [(b"%d" % n, b"%d" % n) for n in range(3, 7)]
