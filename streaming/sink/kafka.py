"""Exactly once per lane and batch: all that a lane sends for a batch becomes visible together and once, or never.

    1. init_transactions      fences whoever used this lane's id before, and ends his open transaction
    2. is it still our state?  a successor writes the journal before he fences; so after (1) this look is decisive
    3. look at the tails      once all in them is decided (of another lane, if there were more or fewer before). Is the
                              batch's last barrier there already? Then this batch was sent: by a run before a
                              crash, by a task that Spark runs again, or by the successor of a dead driver
    4. begin, send, commit

A producer whose commit has no known outcome is never used again: the error ends the task, the next one begins at
(1), and (3) tells what became of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka.admin import AdminClient

from schemas.avro.codec import barrier_header, decode_barrier, encode_barrier
from schemas.avro.limits import MAX_VALUE_BYTES
from schemas.errors import Code, StateError, TopicError
from schemas.records import BARRIER_HEADER, Barrier
from schemas.settings.limits import HEADROOM_BYTES
from streaming.kafka.clients import TRANSACTION_TIMEOUT_MS, KafkaSettings, translated
from streaming.kafka.column_batches import ColumnBatches
from streaming.kafka.consumer import RangeReader, place
from streaming.kafka.native import ColumnProducer, open_columns
from streaming.kafka.topics import Partition, admin, end_offsets, partitions_of, watermarks
from streaming.kafka.transactions import TransactionalProducer
from streaming.sink.dead_letters import Letter

_FULL_QUEUE_POLL_S = 0.02
UNDECIDED_S = 15 + TRANSACTION_TIMEOUT_MS / 1_000
"""The broker ends a transaction some seconds after its time is over."""

_THROUGHPUT: Mapping[str, object] = {
    "batch.size": 1_000_000,
    "message.max.bytes": MAX_VALUE_BYTES + HEADROOM_BYTES,  # each topic's own limit decides
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 131_072,
}


class OutputClient(Protocol):
    """What a lane needs of Kafka: a producer fresh from `init_transactions`, and answers about its partitions."""

    def ends(self, places: Collection[Partition]) -> dict[Partition, int]:
        """One past the last record of each, committed or not, markers included."""

    def last_barrier(self, topic: str, partition: int) -> int | None:
        """The epoch that a partition ends with for committed readers, None when it is empty.

        Not before all that lies in it is decided: behind a transaction whose marker is late, committed readers see
        nothing, also not what this lane has committed since.
        Raises: TopicError(FOREIGN_RECORDS) when its last committed record is no barrier of ours.
        """

    def first_offset(self, topic: str, partition: int) -> int:
        """Where what a partition still holds begins: 0 unless retention or somebody deleted records."""

    def send(self, topic: str, partitions: npt.NDArray[np.int32], keys: pa.Array, values: pa.Array) -> None:
        """Queue records, record i for `partitions[i]`."""

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        """Queue a barrier behind what was queued for its partition."""

    def send_letter(self, topic: str, letter: Letter) -> None:
        """Queue a dead letter for the topic of these."""

    def transaction(self) -> AbstractContextManager[object]:
        """Committed when its block ends, aborted when it raises.

        Raises: Fenced, OutcomeUnknown (never use this client again), EnvironmentProblem when it was aborted.
        """


class LaneOutput:
    """What a lane sends, and what it found before. See `lane_output`."""

    def __init__(self, client: OutputClient) -> None:
        self._client = client
        self._ends: dict[Partition, int] = {}
        self._sent: Counter[Partition] = Counter()

    def already_sent(
        self, before: Mapping[Partition, int | None], epoch: int, known_ends: Mapping[Partition, int]
    ) -> bool:
        """Whether the batch that ends with `epoch` is in these partitions (step 3).

        `before` says with which barrier each ends if it is not: there is no third. A partition whose end is where the
        last batch left it (`known_ends`) holds nothing new: no read needed.
        Raises: TopicError(FOREIGN_RECORDS) when a partition ends with something that is no barrier, or when
        partitions of this lane, which are written together, differ; TopicError(OUTPUT_TOPIC_MISSING), also for one
        whose records are gone: nobody can say then what was in it;
        StateError(OUTPUT_OUT_OF_STEP) when one ends with a third barrier.
        """
        self._ends = self._client.ends(list(before))
        changed = [where for where, end in self._ends.items() if known_ends.get(where, -1) != end]
        tails = {where: self._client.last_barrier(*where) for where in changed}
        for where, tail in tails.items():
            if tail is None:
                self._refuse_emptied(where, before[where])
            else:
                _check_step(where, tail, before[where], epoch)
        sent = {tail == epoch for tail in tails.values()}
        if len(sent) > 1:
            raise _foreign(
                f"{changed[0][0]}", "partitions of one transaction that end with different barriers"
            )
        return sent == {True}

    def _refuse_emptied(self, where: Partition, before: int | None) -> None:
        """A partition without committed records: it never had any, or they are gone.

        Transactions that were aborted leave offsets behind, at a job's first batch too; so an end above 0 proves
        nothing as long as the partition still begins at 0.
        """
        end = self._ends[where]
        if before is not None and not end:
            raise output_missing(where[0], "an empty topic in the place of one with records")
        if before is not None or (end and self._client.first_offset(*where)):
            raise output_missing(where[0], f"no record in partition {where[1]}, whose end is offset {end}")

    def send(
        self, topic: str, partitions: npt.NDArray[np.int32] | int, keys: pa.Array, values: pa.Array
    ) -> None:
        """Queue records; a single number sends them all to that partition."""
        if isinstance(partitions, int):
            partitions = np.full(len(values), partitions, dtype=np.int32)
        for partition, count in enumerate(np.bincount(partitions).tolist()):
            self._sent[topic, partition] += count
        self._client.send(topic, partitions, keys, values)

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        """Queue a barrier behind what was queued for its partition."""
        self._sent[topic, partition] += 1
        self._client.send_barrier(topic, partition, barrier)

    def send_letter(self, topic: str, letter: Letter) -> None:
        """Queue a dead letter for the topic of these."""
        self._client.send_letter(topic, letter)

    def transaction(self) -> AbstractContextManager[object]:
        """The one transaction (step 4), as `OutputClient.transaction`."""
        return self._client.transaction()

    def ends(self) -> dict[Partition, int]:
        """Where the partitions end after the commit: what they held, what was sent, and the commit's marker.

        Asking is no use: the broker answers a commit before its markers are there.
        """
        return {where: end + self._sent[where] + bool(self._sent[where]) for where, end in self._ends.items()}


OpenOutput = Callable[[str, int], AbstractContextManager[LaneOutput]]
"""Opens an output with a transactional id and a timeout, see `lane_output`. It goes to the lanes by pickle."""


class _KafkaClient:
    """`OutputClient` on a broker."""

    def __init__(
        self,
        kafka: KafkaSettings,
        transactions: TransactionalProducer,
        columns: ColumnProducer | ColumnBatches,
    ) -> None:
        self._kafka, self._transactions, self._columns = kafka, transactions, columns
        self._producer = transactions.producer
        self._reader: RangeReader | None = None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def ends(self, places: Collection[Partition]) -> dict[Partition, int]:
        try:
            return end_offsets(self._kafka, places, client=_asker(self._kafka))
        except TopicError as error:
            if error.code is not Code.TOPIC_MISSING:
                raise
            topics = sorted({topic for topic, _ in places})
            gone = next((topic for topic in topics if partitions_of(self._kafka, topic) is None), topics[0])
            raise output_missing(gone, "no such topic") from error

    def last_barrier(self, topic: str, partition: int) -> int | None:
        if self._reader is None:
            self._reader = RangeReader(self._kafka)
        return last_barrier(self._reader, topic, partition)

    def first_offset(self, topic: str, partition: int) -> int:
        return watermarks(self._kafka, topic, client=_asker(self._kafka))[partition].earliest

    def send(self, topic: str, partitions: npt.NDArray[np.int32], keys: pa.Array, values: pa.Array) -> None:
        with translated(self._kafka, what=topic):
            self._columns.send(topic, partitions, keys, values)

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        headers = {BARRIER_HEADER: barrier_header(barrier)}
        self._produce(topic, encode_barrier(barrier), partition=partition, headers=headers)

    def send_letter(self, topic: str, letter: Letter) -> None:
        self._produce(topic, letter.value, key=letter.key, partition=0, headers=letter.headers)

    def _produce(self, topic: str, value: bytes | None, **record: Any) -> None:
        while True:
            try:
                with translated(self._kafka, what=topic):
                    self._producer.produce(topic, value, **record)
            except BufferError:
                self._producer.poll(_FULL_QUEUE_POLL_S)
            else:
                return

    def transaction(self) -> AbstractContextManager[object]:
        return self._transactions.transaction()


@cache
def _asker(kafka: KafkaSettings) -> AdminClient:
    """For questions about offsets, kept for the life of this worker.

    It knows the leaders: asking takes 2 ms. A fresh producer has to find them first, and librdkafka can miss its own
    wake-up while it does (`rd_kafka_metadata_cache_wait_change`), which cost a whole second in every third batch.
    """
    return admin(kafka)


@contextmanager
def lane_output(kafka: KafkaSettings, transactional_id: str, timeout_ms: int) -> Iterator[LaneOutput]:
    """The output behind a fresh producer (step 1); what is to be sent goes into `with output.transaction(): …`.

    The broker aborts a transaction that takes longer than `timeout_ms`.
    Raises: Fenced, OutcomeUnknown, EnvironmentProblem as `TransactionalProducer`.
    """
    over: dict[str, Any] = {**_THROUGHPUT, "client.id": transactional_id}
    with (
        TransactionalProducer(kafka, transactional_id, timeout_ms=timeout_ms, **over) as transactions,
        closing(open_columns(transactions.producer, transactional_id)) as columns,
        closing(_KafkaClient(kafka, transactions, columns)) as client,
    ):
        yield LaneOutput(client)


def last_barrier(reader: RangeReader, topic: str, partition: int) -> int | None:
    """The epoch that an output partition ends with, None when it is empty, as `OutputClient.last_barrier`.

    Raises: TopicError(FOREIGN_RECORDS) when its last committed record is no barrier of ours; TopicError
    (BARRIER_STALLED) when somebody's transaction in it does not end.
    """
    reader.await_stable(topic, timeout_s=UNDECIDED_S, partition=partition)
    message = reader.last(topic, partition)
    if message is None:
        return None
    headers = dict(message.headers() or [])
    if BARRIER_HEADER not in headers:
        raise _foreign(place(message), "a record behind the last barrier")
    header, value = headers[BARRIER_HEADER], message.value()
    assert isinstance(header, bytes)
    assert isinstance(value, bytes)
    return decode_barrier(header, value, where=place(message)).curr


def _check_step(where: Partition, tail: int, before: int | None, epoch: int) -> None:
    topic, partition = where
    if tail not in (before, epoch):
        raise StateError(
            Code.OUTPUT_OUT_OF_STEP,
            where=f"{topic}-{partition}",
            found=f"a partition that ends with barrier {tail}",
            expected=f"{before} or {epoch}, as the state says",
        )


def output_missing(topic: str, found: str) -> TopicError:
    """The error for an output that is gone. It is not made again: it would lack what was in it."""
    return TopicError(Code.OUTPUT_TOPIC_MISSING, where=topic, found=found)


def _foreign(where: str, found: str) -> TopicError:
    return TopicError(Code.FOREIGN_RECORDS, where=where, found=found)
