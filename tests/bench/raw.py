"""The rate of librdkafka alone: an output's records, already encoded, sent in transactions as fast as they go.

No service can send a table faster than that on the same machine: it is the limit that a snapshot is compared with.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.records import BARRIER_HEADER
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of
from streaming.kafka.native import open_columns
from streaming.kafka.topics import create_topic, partitions_of
from streaming.kafka.transactions import TransactionalProducer
from streaming.sink.kafka_writer import THROUGHPUT

_SENDERS = 2
"""As many as a service with the default settings has lanes on this machine."""
_SAMPLE = 200_000
_TRANSACTION = 1_000_000
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class _Work:
    """One process's: `keys` and `values`, binary arrays, are sent over and over until it has sent `count` records."""

    kafka: KafkaSettings
    topic: str
    number: int
    partitions: Sequence[int]
    keys: pa.Array
    values: pa.Array
    count: int


def raw_rows_per_s(kafka: KafkaSettings, output: str, target: str, rows: int) -> float:
    """Records a second of `rows` records like the output's, into a new topic with as many partitions.

    Raises: threading.BrokenBarrierError at once when a sender fails, or when one is not done in ten minutes.
    """
    keys, values = _encoded(kafka, output)
    partitions = partitions_of(kafka, output) or 1
    create_topic(kafka, target, partitions)
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(_SENDERS + 1)
    senders = [
        spawn.Process(
            target=_send,
            args=(
                _Work(
                    kafka, target, number, range(number, partitions, _SENDERS), keys, values, rows // _SENDERS
                ),
                together,
            ),
        )
        for number in range(_SENDERS)
    ]
    for sender in senders:
        sender.start()
    try:
        together.wait(_TIMEOUT_S)
        began = time.perf_counter()
        together.wait(_TIMEOUT_S)
        took_s = time.perf_counter() - began
    finally:
        for sender in senders:
            sender.join(_TIMEOUT_S)
    return rows / took_s


def _encoded(kafka: KafkaSettings, output: str) -> tuple[pa.Array, pa.Array]:
    """Keys and values of the first rows of an output, barriers left out."""
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    with RangeReader(kafka) as reader:
        for partition, marks in enumerate(reader.watermarks(output)):
            for chunk in reader.read(output, {partition: (marks.earliest, marks.stable)}):
                rows = [message for message in chunk if header_of(message, BARRIER_HEADER) is None]
                keys += [message.key() for message in rows]
                values += [message.value() for message in rows]
                if len(values) >= _SAMPLE:
                    return pa.array(keys, pa.binary()), pa.array(values, pa.binary())
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary())


def _send(work: _Work, together: Barrier) -> None:
    """A sender's process. One that fails ends the wait of the others."""
    try:
        _send_together(work, together)
    except BaseException:
        together.abort()
        raise


def _send_together(work: _Work, together: Barrier) -> None:
    """Warm once, then all at once when every sender is ready."""
    client = f"bench-raw-{work.number}"
    over: dict[str, Any] = {**THROUGHPUT, "client.id": client}
    with (
        TransactionalProducer(work.kafka, client, **over) as transactions,
        closing(open_columns(transactions.producer, client)) as columns,
    ):
        places = np.resize(np.asarray(work.partitions, np.int32), len(work.values))
        places.sort()  # a vnode's rows go to one partition, one after the other

        def send(count: int) -> None:
            with transactions.transaction():
                while count > 0:
                    part = slice(0, min(count, len(work.values)))
                    columns.send(work.topic, places[part], work.keys[part], work.values[part])
                    count -= len(work.values)

        send(len(work.values))
        together.wait(_TIMEOUT_S)
        for sent in range(0, work.count, _TRANSACTION):
            send(min(_TRANSACTION, work.count - sent))
        together.wait(_TIMEOUT_S)
