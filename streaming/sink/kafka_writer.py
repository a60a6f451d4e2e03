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
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.records import Barrier
from streaming.kafka.topics import PartitionId
from streaming.sink.columns import Output, Rows, Run
from streaming.sink.dead_letters import Letter
from streaming.sink.protocol import Writer, is_sent, output_missing


class OutputClient(Protocol):
    """What a lane needs of Kafka: a producer fresh from `init_transactions`, and answers about its partitions."""

    def ends(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
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


class KafkaWriter(Writer):
    """What a lane sends, and what it found before. See `kafka_client.open_kafka_writer`."""

    def __init__(self, client: OutputClient) -> None:
        self._client = client
        self._ends: dict[PartitionId, int] = {}
        self._sent: Counter[PartitionId] = Counter()

    def already_sent(
        self, before: Mapping[PartitionId, int | None], epoch: int, known_ends: Mapping[PartitionId, int]
    ) -> bool:
        """Step 3.

        A partition whose end is where the last batch left it (`known_ends`) is not read. One whose records are gone is
        OUTPUT_TOPIC_MISSING as well: nobody can say then what was in it.
        """
        self._ends = self._client.ends(list(before))
        changed = [where for where, end in self._ends.items() if known_ends.get(where, -1) != end]
        tails = {where: self._client.last_barrier(*where) for where in changed}
        for where, tail in tails.items():
            if tail is None:
                self._refuse_emptied(where, before[where])
        return is_sent(tails, before, epoch)

    def _refuse_emptied(self, where: PartitionId, before: int | None) -> None:
        """A partition without committed records: it never had any, or they are gone.

        Transactions that were aborted leave offsets behind, at a job's first batch too; so an end above 0 proves
        nothing as long as the partition still begins at 0.
        """
        end = self._ends[where]
        if before is not None and not end:
            raise output_missing(where[0], "an empty topic in the place of one with records")
        if before is not None or (end and self._client.first_offset(*where)):
            raise output_missing(where[0], f"no record in partition {where[1]}, whose end is offset {end}")

    def transaction(self) -> AbstractContextManager[object]:
        """Step 4."""
        return self._client.transaction()

    def rows(self, rows: Rows) -> None:
        """Queue them."""
        partitions = np.full(len(rows), rows.partition, dtype=np.int32)
        self._send(rows.output.topic, partitions, rows.encoded_keys(), rows.encoded_values())

    def changes(self, run: Run) -> None:
        """Queue them."""
        self._send(run.output.topic, run.partitions, run.encoded_keys(), run.encoded_values())

    def _send(self, topic: str, partitions: npt.NDArray[np.int32], keys: pa.Array, values: pa.Array) -> None:
        for partition, count in enumerate(np.bincount(partitions).tolist()):
            self._sent[topic, partition] += count
        self._client.send(topic, partitions, keys, values)

    def barrier(self, output: Output, partition: int, barrier: Barrier) -> None:
        """Queue it."""
        self._sent[output.topic, partition] += 1
        self._client.send_barrier(output.topic, partition, barrier)

    def letter(self, output: Output, letter: Letter) -> None:
        """Queue it for the topic of the job's dead letters."""
        self._client.send_letter(output.definition.dead_letters, letter)

    def ends(self) -> dict[PartitionId, int]:
        """What the partitions held, what was sent, and the commit's marker.

        Asking is no use: the broker answers a commit before its markers are there.
        """
        return {where: end + self._sent[where] + bool(self._sent[where]) for where, end in self._ends.items()}
