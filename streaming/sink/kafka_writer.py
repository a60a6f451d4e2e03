"""Exactly once per lane and batch: all that a lane sends for a batch becomes visible together and once, or never.

    1. init_transactions      fences the earlier producer with this lane's id, and aborts its open transaction
    2. is it still our state?  a successor writes the journal before it fences; so after (1) this check is decisive
    3. look at the tails      once all in them is decided (of another lane, if there were more or fewer before). Is the
                              batch's last barrier there already? Then this batch was sent: by a run before a
                              crash, by a task that Spark runs again, or by the successor of a dead driver
    4. begin, send, commit

A producer whose commit has no known outcome is never used again: the error ends the task, the next one begins at
(1), and (3) finds whether the commit took effect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from schemas.avro.codec import barrier_header
from schemas.records import EPOCH_HEADER, Barrier
from streaming.kafka.topics import PartitionId
from streaming.sink.columns import Output, OutputPartition, Records, Rows, Run
from streaming.sink.dead_letters import Letter
from streaming.sink.protocol import Mark, Writer, is_sent, output_missing


@dataclass(frozen=True, slots=True)
class LastBarrier:
    """What a partition ends with: the epoch, and for barriers beside the data how far the data of it goes."""

    epoch: int
    end: int = 0


class OutputClient(Protocol):
    """What a lane needs of Kafka: a producer fresh from `init_transactions`, and answers about its partitions."""

    def ends(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """One past the last record of each, committed or not, markers included."""

    def last_barriers(self, places: Collection[OutputPartition]) -> dict[OutputPartition, LastBarrier | None]:
        """What each partition ends with for committed readers, None when it is empty.

        Not before all that lies in them is decided: behind a transaction whose marker is late, committed readers see
        nothing, also not what this lane has committed since.
        Raises: TopicError(FOREIGN_RECORDS) when what they see last is no barrier of ours, or lies behind the last one;
        TopicError(OUTPUT_TOPIC_MISSING) when data that a barrier closes is gone.
        """

    def first_offset(self, topic: str, partition: int) -> int:
        """The partition's first offset: above 0 once retention, or a request to delete records, has removed some."""

    def expect(self, topics: Collection[str]) -> None:
        """Topics that records may be sent to, so that all of them can be asked for at once."""

    def send(self, topic: str, records: Records, headers: Mapping[str, bytes]) -> None:
        """Queue records, each with these headers."""

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        """Queue a barrier behind what was queued for its partition."""

    def send_barrier_beside(self, topic: str, partition: int, barrier: Barrier, end: int) -> None:
        """Queue a barrier for a barrier topic. `end` is the exclusive end offset of the data that it closes."""

    def send_letter(self, topic: str, letter: Letter) -> None:
        """Queue a dead letter for partition 0 of the topic `topic`."""

    def transaction(self) -> AbstractContextManager[object]:
        """Committed when its block ends, aborted when it raises.

        Raises: Fenced, OutcomeUnknown (never use this client again), EnvironmentProblem when it was aborted.
        """


@dataclass(slots=True)
class _Filled:
    """How far a partition is filled: `logs` are the end offsets of its log and, if it has one, of its barrier topic's.

    With the barriers beside it, `end` is one past its last data record; without one, 0. `sent` counts by log.
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
    """What a lane sends, and what it found before. See `kafka_client.open_kafka_writer`."""

    def __init__(self, client: OutputClient) -> None:
        self._client = client
        self._filled: dict[OutputPartition, _Filled] = {}

    def already_sent(
        self,
        before: Mapping[OutputPartition, int | None],
        epoch: int,
        known_ends: Mapping[OutputPartition, Mark],
    ) -> bool:
        """Step 3, as `Writer.already_sent`.

        A partition whose end is where the last batch left it (`known_ends`) is not read. One whose records are gone is
        OUTPUT_TOPIC_MISSING as well: what was in it is unknown then.
        """
        logs = self._logs(before)
        changed = [place for place in before if known_ends.get(place, ())[:-1] != logs[place]]
        tails = self._client.last_barriers(changed) if changed else {}
        for place, tail in tails.items():
            if tail is None:
                self._refuse_emptied(place, logs[place][-1], before[place])
        # The marker of an earlier transaction may have come since, and moved the ends.
        logs |= self._logs([place for place in changed if place.barriers is not None])
        for place in before:
            known = tails[place] if place in tails else LastBarrier(0, known_ends[place][-1])
            end = 0 if known is None else known.end
            self._filled[place] = _Filled(logs[place], end, [0] * len(logs[place]))
        self._client.expect({place.topic for place in before})
        epochs = {place: None if tail is None else tail.epoch for place, tail in tails.items()}
        return is_sent(epochs, before, epoch)

    def _logs(self, places: Collection[OutputPartition]) -> dict[OutputPartition, tuple[int, ...]]:
        """The ends of the logs of each, as `_Filled` has them."""
        if not places:
            return {}
        ends = self._client.ends([log for place in places for log in place.logs])
        return {place: tuple(ends[log] for log in place.logs) for place in places}

    def _refuse_emptied(self, place: OutputPartition, end: int, before: int | None) -> None:
        """A partition without committed barriers: it never had any, or they are gone. `end` is that of their log.

        Transactions that were aborted leave offsets behind, at a job's first batch too; so an end above 0 proves
        nothing as long as the partition still begins at 0.
        """
        topic, partition = place.barriers or place.topic, place.partition
        if before is not None and not end:
            raise output_missing(topic, "an empty topic in the place of one with records")
        if before is not None or (end and self._client.first_offset(topic, partition)):
            raise output_missing(topic, f"no record in partition {partition}, whose end is offset {end}")

    def transaction(self) -> AbstractContextManager[object]:
        """Step 4."""
        return self._client.transaction()

    def rows(self, rows: Rows) -> None:
        """Queue them."""
        self._send(rows.output, rows.records(), rows.barrier)

    def changes(self, run: Run) -> None:
        """Queue them."""
        self._send(run.output, run.records(), run.barrier)

    def _send(self, output: Output, records: Records, barrier: Barrier) -> None:
        for partition, count in enumerate(np.bincount(records.partitions).tolist()):
            if count:
                self._filled[output.place(partition)].data(count)
        is_beside = output.definition.barrier_topic is not None
        headers = {EPOCH_HEADER: barrier_header(barrier)} if is_beside else {}
        self._client.send(output.topic, records, headers)

    def barrier(self, output: Output, partition: int, barrier: Barrier) -> None:
        """Queue it."""
        place = output.place(partition)
        filled = self._filled[place]
        filled.sent[-1] += 1
        if place.barriers is None:
            self._client.send_barrier(place.topic, partition, barrier)
        else:
            self._client.send_barrier_beside(place.barriers, partition, barrier, filled.end)

    def letter(self, output: Output, letter: Letter) -> None:
        """Queue it for the topic of the job's dead letters."""
        self.letter_to(output.definition.dead_letters, letter)

    def letter_to(self, topic: str, letter: Letter) -> None:
        """Queue it for a topic of dead letters."""
        self._client.send_letter(topic, letter)

    def ends(self) -> dict[OutputPartition, Mark]:
        """The ends found before, plus what was sent, plus the commit's marker.

        They are computed, not asked for: the broker acknowledges a commit before its markers are written.
        """
        return {place: filled.mark() for place, filled in self._filled.items()}
