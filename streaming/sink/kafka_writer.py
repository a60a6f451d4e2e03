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
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np

from schemas.avro.codec import barrier_header
from schemas.records import EPOCH_HEADER, Barrier
from streaming.kafka.clients import KafkaSettings
from streaming.sink.columns import EncodedRecords, OutputChanges, SnapshotRows
from streaming.sink.dead_letters import DeadLetter
from streaming.sink.kafka_client import LastBarrier, OutputClient, open_client
from streaming.sink.output import Output, SinkPartition
from streaming.sink.protocol import Mark, Writer, is_sent, output_missing


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
        self._send(rows.output, rows.records(), rows.barrier)

    def changes(self, run: OutputChanges) -> None:
        self._send(run.output, run.records(), run.barrier)

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
