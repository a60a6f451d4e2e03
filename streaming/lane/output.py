"""The lane's transaction: everything that it sends for a batch becomes visible together, or never.

    1. init_transactions      fences whoever used this lane's id before, and ends his open transaction
    2. is it still our state?  a successor writes the journal before he fences; so after (1) this look is decisive
    3. look at the tails      is the batch's last barrier there already? Then this batch was sent: by a run before a
                              crash, by a task that Spark runs again, or by the successor of a dead driver
    4. begin, send, commit

A producer whose commit has no known outcome is never used again: the error ends the task, the next one begins at
(1), and (3) tells what became of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from schemas.codec import barrier_header, decode_barrier, encode_barrier
from schemas.errors import Code, TopicError
from schemas.records import BARRIER_HEADER, Barrier
from streaming.lane.native import ColumnProducer
from streaming.runtime.consumer import place, read_tail
from streaming.runtime.kafka import KafkaSettings, translated
from streaming.runtime.topics import Partition, admin, end_offsets
from streaming.runtime.transactions import TransactionalProducer

_FULL_QUEUE_POLL_S = 0.02

_THROUGHPUT: Mapping[str, object] = {
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 131_072,
}


class LaneOutput:
    """What a lane sends, between `begin` and the end of its block. See `lane_output`."""

    def __init__(self, kafka: KafkaSettings, producer: Producer, columns: ColumnProducer) -> None:
        self._kafka, self._producer, self._columns = kafka, producer, columns
        self._ends: dict[Partition, int] = {}
        self._sent: Counter[Partition] = Counter()

    def already_sent(
        self, places: Iterable[Partition], epoch: int, known_ends: Mapping[Partition, int]
    ) -> bool:
        """Whether the batch that ends with `epoch` is in these partitions (step 3).

        A partition whose end is where the last batch left it (`known_ends`) holds nothing new: no read needed.
        Raises: TopicError(FOREIGN_RECORDS) when a partition ends with something that is no barrier, or when
        partitions of this lane, which are written together, differ.
        """
        self._ends = end_offsets(self._kafka, list(places), client=_asker(self._kafka))
        changed = [where for where, end in self._ends.items() if known_ends.get(where, -1) != end]
        tails = {where: last_barrier(self._kafka, *where) for where in changed}
        sent = {(tail or 0) >= epoch for tail in tails.values()}
        if len(sent) > 1:
            raise _foreign(
                f"{changed[0][0]}", "partitions of one transaction that end with different barriers"
            )
        return sent == {True}

    def send(
        self, topic: str, partitions: npt.NDArray[np.int32] | int, keys: pa.Array, values: pa.Array
    ) -> None:
        """Queue records; a single number sends them all to that partition."""
        if isinstance(partitions, int):
            partitions = np.full(len(values), partitions, dtype=np.int32)
        for partition, count in enumerate(np.bincount(partitions).tolist()):
            self._sent[topic, partition] += count
        with translated(self._kafka, what=topic):
            self._columns.send(topic, partitions, keys, values)

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        """Queue a barrier behind what was queued for its partition."""
        headers: list[tuple[str, str | bytes | None]] = [(BARRIER_HEADER, barrier_header(barrier))]
        value = encode_barrier(barrier)
        self._sent[topic, partition] += 1
        while True:
            try:
                with translated(self._kafka, what=topic):
                    self._producer.produce(topic, value, partition=partition, headers=headers)
            except BufferError:
                self._producer.poll(_FULL_QUEUE_POLL_S)
            else:
                return

    def ends(self) -> dict[Partition, int]:
        """Where the partitions end after the commit: what they held, what was sent, and the commit's marker.

        Asking is no use: the broker answers a commit before its markers are there.
        """
        return {where: end + self._sent[where] + bool(self._sent[where]) for where, end in self._ends.items()}


@cache
def _asker(kafka: KafkaSettings) -> AdminClient:
    """For questions about offsets, kept for the life of this worker.

    It knows the leaders: asking takes 2 ms. A fresh producer has to find them first, and librdkafka can miss its own
    wake-up while it does (`rd_kafka_metadata_cache_wait_change`), which cost a whole second in every third batch.
    """
    return admin(kafka)


@contextmanager
def lane_output(
    kafka: KafkaSettings, transactional_id: str
) -> Iterator[tuple[LaneOutput, TransactionalProducer]]:
    """A fresh producer (step 1) and the transaction to send in: `with transaction.transaction(): …`.

    Raises: Fenced, OutcomeUnknown, EnvironmentProblem as `TransactionalProducer`.
    """
    over: dict[str, Any] = {**_THROUGHPUT, "client.id": transactional_id}
    with TransactionalProducer(kafka, transactional_id, **over) as transactions:
        columns = ColumnProducer(transactions.producer, transactional_id)
        try:
            yield LaneOutput(kafka, transactions.producer, columns), transactions
        finally:
            columns.close()


def last_barrier(kafka: KafkaSettings, topic: str, partition: int) -> int | None:
    """The epoch that an output partition ends with, None when it is empty.

    Raises: TopicError(FOREIGN_RECORDS) when its last committed record is no barrier of ours.
    """
    message = read_tail(kafka, topic, partition)
    if message is None:
        return None
    headers = dict(message.headers() or [])
    if BARRIER_HEADER not in headers:
        raise _foreign(place(message), "a record behind the last barrier")
    header, value = headers[BARRIER_HEADER], message.value()
    assert isinstance(header, bytes)
    assert isinstance(value, bytes)
    return decode_barrier(header, value, where=place(message)).curr


def _foreign(where: str, found: str) -> TopicError:
    return TopicError(
        Code.FOREIGN_RECORDS,
        where=where,
        found=found,
        expected="an output topic that nobody else writes to",
        next_step="see who writes to this topic; create the job again with a new output topic",
    )
