"""Kafka as a lane's writer uses it: a producer fresh from `init_transactions`, and the ends of its partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from confluent_kafka.admin import AdminClient

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.avro.limits import MAX_VALUE_BYTES
from schemas.errors import Code, TopicError
from schemas.json.barriers import encode_beside
from schemas.records import BARRIER_HEADER, Barrier
from schemas.settings.limits import HEADROOM_BYTES
from streaming.kafka.barriers import barrier_in, beside_barrier_in
from streaming.kafka.clients import TRANSACTION_TIMEOUT_MS, KafkaSettings
from streaming.kafka.column_batches import ColumnBatches
from streaming.kafka.consumer import RangeReader, located, location
from streaming.kafka.errors import translated
from streaming.kafka.native import ColumnProducer, open_columns
from streaming.kafka.topics import PartitionId, admin, end_offsets, partitions_of, watermarks
from streaming.kafka.transactions import TransactionalProducer
from streaming.sink.columns import EncodedRecords
from streaming.sink.dead_letters import DeadLetter
from streaming.sink.output import SinkPartition
from streaming.sink.protocol import foreign_records, output_missing

_FULL_QUEUE_POLL_S = 0.02
UNDECIDED_S = 15 + TRANSACTION_TIMEOUT_MS / 1_000
"""The longest wait for the end of a transaction: the broker ends it some seconds after its timeout."""

THROUGHPUT: Mapping[str, object] = {
    "batch.size": 1_000_000,
    "message.max.bytes": MAX_VALUE_BYTES + HEADROOM_BYTES,  # each topic's own limit decides
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 131_072,
}


@dataclass(frozen=True, slots=True)
class LastBarrier:
    """The last barrier of a partition. `end`: for one in a separate topic, the exclusive end of the data it closes."""

    epoch: int
    end: int = 0


class OutputClient:
    """A producer fresh from `init_transactions`, and the ends of the output partitions that it writes to."""

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
        """Close the reader, if one was opened; the producer stays its owner's."""
        if self._reader is not None:
            self._reader.close()

    def ends(self, logs: Collection[PartitionId]) -> dict[PartitionId, int]:
        """One past the last record of each, committed or not, markers included."""
        try:
            return end_offsets(self._kafka, logs, client=_asker(self._kafka))
        except TopicError as error:
            if error.code is not Code.TOPIC_MISSING:
                raise
            counts = {topic: partitions_of(self._kafka, topic) for topic, _ in logs}
            for topic, partition in sorted(logs):
                if (count := counts[topic]) is None:
                    raise output_missing(topic, "no such topic") from error
                if partition >= count:
                    raise output_missing(
                        topic, f"no partition {partition}, but {count} partitions"
                    ) from error
            raise

    def last_barriers(self, targets: Collection[SinkPartition]) -> dict[SinkPartition, LastBarrier | None]:
        """The last barrier of each partition for committed readers, None where it is empty.

        Waits until everything in them is decided: behind a transaction whose marker is late, committed readers see
        nothing, including what this lane has committed since.
        Raises: as `last_barriers` of this module.
        """
        ends = self.ends({log for target in targets for log in target.logs})
        # Connecting a reader would take most of a job's first batch, where all partitions are empty.
        filled = [target for target in targets if any(ends[log] for log in target.logs)]
        found: dict[SinkPartition, LastBarrier | None] = dict.fromkeys(targets)
        if filled and self._reader is None:
            self._reader = RangeReader(self._kafka)
        if self._reader is not None:
            found |= last_barriers(self._reader, filled)
        return found

    def first_offset(self, topic: str, partition: int) -> int:
        """The partition's first offset: above 0 once retention, or a request to delete records, has removed some."""
        return watermarks(self._kafka, topic, client=_asker(self._kafka))[partition].earliest

    def expect(self, topics: Collection[str]) -> None:
        """Announce topics that records may be sent to: their leaders are then looked up in one request."""
        self._columns.expect(topics)

    def send(self, topic: str, records: EncodedRecords, headers: Mapping[str, bytes]) -> None:
        """Queue records, each with these headers and its own behind them."""
        if records.headers is not None:
            self._send_one_by_one(topic, records, headers)
            return
        with translated(self._kafka, what=topic):
            self._columns.send(topic, records.partitions, records.keys, records.values, headers)

    def _send_one_by_one(self, topic: str, records: EncodedRecords, headers: Mapping[str, bytes]) -> None:
        # Columns have the same headers for all records.
        own = records.headers or ()
        rows = zip(
            records.partitions.tolist(),
            records.keys.to_pylist(),
            records.values.to_pylist(),
            own,
            strict=True,
        )
        for partition, key, value, further in rows:
            self._produce(topic, value, key=key, partition=partition, headers=[*headers.items(), *further])
        self._producer.poll(0)

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        """Queue a barrier behind what was queued for its partition."""
        headers = {BARRIER_HEADER: barrier_header(barrier)}
        self._produce(topic, encode_barrier(barrier), partition=partition, headers=headers)

    def send_barrier_beside(self, topic: str, partition: int, barrier: Barrier, end: int) -> None:
        """Queue a barrier for a barrier topic. `end` is the exclusive end offset of the data that it closes."""
        headers = {BARRIER_HEADER: barrier_header(barrier)}
        key, value = str(partition).encode(), encode_beside(barrier, end)
        self._produce(topic, value, key=key, partition=partition, headers=headers)

    def send_letter(self, topic: str, letter: DeadLetter) -> None:
        """Queue a dead letter for partition 0 of `topic`."""
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
        """Committed when its block ends, aborted when it raises.

        Raises: Fenced, OutcomeUnknown (never use this client again), EnvironmentProblem when it was aborted.
        """
        return self._transactions.transaction()


@cache
def _asker(kafka: KafkaSettings) -> AdminClient:
    """A client for reading offsets, kept for the life of this worker.

    It has the leaders: a request takes 2 ms. A fresh producer has to find them first, and librdkafka can miss its own
    wake-up while it does (`rd_kafka_metadata_cache_wait_change`), which cost a whole second in every third batch.
    """
    return admin(kafka)


@contextmanager
def open_client(kafka: KafkaSettings, transactional_id: str, timeout_ms: int) -> Iterator[OutputClient]:
    """A client with a fresh producer, which fences those before it. Raises: as `TransactionalProducer`."""
    over: dict[str, Any] = {**THROUGHPUT, **kafka.passed_to("producer"), "client.id": transactional_id}
    with (
        TransactionalProducer(kafka, transactional_id, timeout_ms=timeout_ms, **over) as transactions,
        closing(open_columns(transactions.producer, transactional_id)) as columns,
        closing(OutputClient(kafka, transactions, columns)) as client,
    ):
        yield client


def last_barriers(
    reader: RangeReader, targets: Iterable[SinkPartition]
) -> dict[SinkPartition, LastBarrier | None]:
    """The last barriers of output partitions, as `OutputClient.last_barriers`; those of a topic are read together.

        Raises: TopicError: FOREIGN_RECORDS when the last committed record is no barrier of ours, or lies behind the
        last one;
    OUTPUT_TOPIC_MISSING when data that a barrier closes is gone; BARRIER_STALLED when an open transaction does not end.
    """
    of_topics = defaultdict[tuple[str, str | None], list[SinkPartition]](list)
    for target in targets:
        of_topics[target.topic, target.barriers].append(target)
    found = dict[SinkPartition, LastBarrier | None]()
    for (topic, barriers), group in of_topics.items():
        numbers = [target.partition for target in group]
        last = (
            _last_inline(reader, topic, numbers)
            if barriers is None
            else _last_beside(reader, topic, barriers, numbers)
        )
        found |= {target: last[target.partition] for target in group}
    return found


def _last_inline(
    reader: RangeReader, topic: str, partitions: Collection[int]
) -> dict[int, LastBarrier | None]:
    """The last record of each partition has to be a barrier."""
    reader.await_stable(topic, timeout_s=UNDECIDED_S, partitions=partitions)
    found = dict[int, LastBarrier | None]()
    for number, (message, _) in reader.look_back(topic, partitions).items():
        barrier = None if message is None else barrier_in(message, beside=False)
        if message is not None and barrier is None:
            raise foreign_records(location(message), "a record behind the last barrier")
        found[number] = None if barrier is None else LastBarrier(barrier.curr)
    return found


def _last_beside(
    reader: RangeReader, topic: str, barriers: str, partitions: Collection[int]
) -> dict[int, LastBarrier | None]:
    """The last record of each partition of the barrier topic; the data must end at the offset it names, or before.

    Before, because compaction may have taken the last record.
    """
    reader.await_stable(barriers, timeout_s=UNDECIDED_S, partitions=partitions)
    lasts = reader.look_back(barriers, partitions)
    marks = reader.await_stable(topic, timeout_s=UNDECIDED_S, partitions=partitions)
    data = reader.look_back(topic, partitions)
    found = dict[int, LastBarrier | None]()
    for number in partitions:
        message, last = lasts[number].message, data[number].message
        barrier = None if message is None else beside_barrier_in(message)
        if message is not None and barrier is None:
            raise foreign_records(location(message), "a record that is no barrier")
        end = 0 if barrier is None else barrier.end
        if marks[number].high < end:
            gone = f"partition {number}, which ends before offset {end} of its last barrier"
            raise output_missing(topic, gone)
        if last is not None and located(last)[1] >= end:
            raise foreign_records(location(last), "a record behind the last barrier")
        found[number] = None if barrier is None else LastBarrier(barrier.barrier.curr, end)
    return found
