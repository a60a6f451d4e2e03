"""Exactly once per lane and batch: all that a lane sends for a batch becomes visible together and once, or never.

    1. init_transactions      fences the earlier producer with this lane's id, and aborts its open transaction
    2. check the ownership    a successor writes the journal before it fences; so after (1) this check is decisive
    3. read the tails         once all in them is decided (of another lane, if there were more or fewer before). Is the
                              batch's last barrier there already? Then this batch was sent: by a run before a
                              crash, by a task that Spark runs again, or by the successor of a dead driver
    4. begin, send, commit

A producer whose commit has no known outcome is never used again: the error ends the task, the next one begins at
(1), and (3) finds whether the commit took effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from confluent_kafka.admin import AdminClient

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.errors import Code, TopicError
from schemas.json.barriers import encode_beside
from schemas.records import BARRIER_HEADER, EPOCH_HEADER, Barrier
from schemas.settings.limits import HEADROOM_BYTES
from schemas.types import MAX_VALUE_BYTES
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.errors import translated
from streaming.kafka.native import ColumnProducer, RecordProducer, open_columns
from streaming.kafka.topics import PartitionId, admin, end_offsets, partitions_of, watermarks
from streaming.kafka.transactions import TransactionalProducer
from streaming.sink.columns import EncodedRecords, OutputChanges, SnapshotRows
from streaming.sink.dead_letters import DeadLetter
from streaming.sink.kafka_reader import LastBarrier, last_barriers
from streaming.sink.output import Output, SinkPartition
from streaming.sink.protocol import Mark, Writer, is_sent, output_missing

_FULL_QUEUE_POLL_S = 0.02

THROUGHPUT: Mapping[str, object] = {
    "batch.size": 1_000_000,
    "message.max.bytes": MAX_VALUE_BYTES + HEADROOM_BYTES,  # each topic's own limit decides
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 131_072,
}


class OutputClient:
    """A producer fresh from `init_transactions`, and the ends of the output partitions that it writes to."""

    def __init__(
        self,
        kafka: KafkaSettings,
        transactions: TransactionalProducer,
        columns: ColumnProducer | RecordProducer,
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
        """The last barriers, as `kafka_reader.last_barriers`."""
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


@dataclass(slots=True)
class _Filled:
    """The ends of a partition: `logs` are the end offsets of its log and, if it has one, of its barrier topic's.

    With a barrier topic, `end` is one past its last data record; 0 without a record. `sent` counts by log.
    """

    logs: tuple[int, ...]
    end: int
    sent: list[int]

    def mark(self) -> Mark:
        """The ends after the commit: each log that was sent to has its records and the commit's marker."""
        logs = [end + sent + bool(sent) for end, sent in zip(self.logs, self.sent, strict=True)]
        return (*logs, self.end)

    def data(self, count: int) -> None:
        """Count data records that were sent. They start at the end of the log: this lane is its only writer."""
        self.sent[0] += count
        if len(self.logs) > 1:
            self.end = self.logs[0] + self.sent[0]


class KafkaWriter(Writer):
    """The writer of a lane. See `open_kafka_writer`."""

    def __init__(self, client: OutputClient) -> None:
        self._client = client
        self._filled: dict[SinkPartition, _Filled] = {}

    def already_sent(
        self,
        before: Mapping[SinkPartition, int | None],
        epoch: int,
        known_ends: Mapping[SinkPartition, Mark],
    ) -> bool:
        """Step 3.

        A partition whose end is where the last batch left it (`known_ends`) is not read. One whose records are gone is
        OUTPUT_TOPIC_MISSING as well: its content is unknown then.
        """
        logs = self._logs(before)
        changed = [target for target in before if known_ends.get(target, ())[:-1] != logs[target]]
        tails = self._client.last_barriers(changed) if changed else {}
        for target, tail in tails.items():
            if tail is None:
                self._refuse_emptied(target, logs[target][-1], before[target])
        # The marker of an earlier transaction may have come since, and moved the ends.
        logs |= self._logs([target for target in changed if target.barriers is not None])
        for target in before:
            known = tails[target] if target in tails else LastBarrier(0, known_ends[target][-1])
            end = 0 if known is None else known.end
            self._filled[target] = _Filled(logs[target], end, [0] * len(logs[target]))
        self._client.expect({target.topic for target in before})
        epochs = {target: None if tail is None else tail.epoch for target, tail in tails.items()}
        return is_sent(epochs, before, epoch)

    def _logs(self, targets: Collection[SinkPartition]) -> dict[SinkPartition, tuple[int, ...]]:
        """The end offsets of the logs of each, in the order of `SinkPartition.logs`."""
        if not targets:
            return {}
        ends = self._client.ends([log for target in targets for log in target.logs])
        return {target: tuple(ends[log] for log in target.logs) for target in targets}

    def _refuse_emptied(self, target: SinkPartition, end: int, before: int | None) -> None:
        """Refuse a partition whose committed barriers are gone; it may never have had any. `end` is that of their log.

        Transactions that were aborted leave offsets behind, at a job's first batch too; so an end above 0 proves
        nothing as long as the partition still begins at 0.
        """
        topic, partition = target.barriers or target.topic, target.partition
        if before is not None and not end:
            raise output_missing(topic, "an empty topic in the place of one with records")
        if before is not None or (end and self._client.first_offset(topic, partition)):
            raise output_missing(topic, f"no record in partition {partition}, whose end is offset {end}")

    def transaction(self) -> AbstractContextManager[object]:
        return self._client.transaction()

    def rows(self, rows: SnapshotRows) -> None:
        self._send(rows.output, rows.records, rows.barrier)

    def changes(self, run: OutputChanges) -> None:
        self._send(run.output, run.records, run.barrier)

    def _send(self, output: Output, records: EncodedRecords, barrier: Barrier) -> None:
        for partition, count in enumerate(np.bincount(records.partitions).tolist()):
            if count:
                self._filled[output.partition(partition)].data(count)
        is_beside = output.definition.barrier_topic is not None
        headers = {EPOCH_HEADER: barrier_header(barrier)} if is_beside else {}
        self._client.send(output.topic, records, headers)

    def barrier(self, output: Output, partition: int, barrier: Barrier) -> None:
        target = output.partition(partition)
        filled = self._filled[target]
        filled.sent[-1] += 1
        if target.barriers is None:
            self._client.send_barrier(target.topic, partition, barrier)
        else:
            self._client.send_barrier_beside(target.barriers, partition, barrier, filled.end)

    def letter(self, output: Output, letter: DeadLetter) -> None:
        self.letter_to(output.definition.dead_letters, letter)

    def letter_to(self, topic: str, letter: DeadLetter) -> None:
        """Queue a letter for a topic of dead letters."""
        self._client.send_letter(topic, letter)

    def ends(self) -> dict[SinkPartition, Mark]:
        """The ends found before, plus what was sent, plus the commit's marker.

        They are computed, not requested: the broker acknowledges a commit before its markers are written.
        """
        return {target: filled.mark() for target, filled in self._filled.items()}


@contextmanager
def open_kafka_writer(kafka: KafkaSettings, transactional_id: str, timeout_ms: int) -> Iterator[KafkaWriter]:
    """A writer with a fresh producer (step 1), as `OpenWriter`. Raises: as `TransactionalProducer`."""
    with open_client(kafka, transactional_id, timeout_ms) as client:
        yield KafkaWriter(client)
