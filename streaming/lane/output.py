"""The lane's transaction: everything that it sends for a batch becomes visible together, or never.

    1. init_transactions      fences whoever used this lane's id before, and ends his open transaction
    2. is it still our state?  a successor writes the journal before he fences; so after (1) this look is decisive
    3. look at the tails      is the batch's last barrier there already? Then this batch was sent, by a run before
                              a crash, by a task that Spark runs again, or by the successor of a dead driver
    4. begin, send, commit

A producer whose commit has no known outcome is never used again: the error ends the task, the next one begins at
(1), and (3) tells what became of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaException, Producer

from schemas.codec import barrier_header, encode_barrier
from schemas.errors import BackfillError, Code, Fenced, OutcomeUnknown, TopicError
from schemas.records import BARRIER_HEADER, Barrier
from streaming.lane.native import ColumnProducer
from streaming.runtime.kafka import KafkaSettings, last_barrier

Partition = tuple[str, int]

_FENCED = frozenset({"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"})
_INIT_TIMEOUT_S = 30.0
_COMMIT_TIMEOUT_S = 60.0
_CONNECT_POLL_S = 0.02

PRODUCER_SETTINGS: Mapping[str, object] = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 131_072,
    # Success reports would be one event a record; a failed delivery fails the commit.
    "delivery.report.only.error": True,
    "transaction.timeout.ms": 60_000,
}


@dataclass
class LaneOutput:
    """One lane's transactional producer, for one batch. Use as a context manager; nothing is sent before `begin`."""

    kafka: KafkaSettings
    transactional_id: str
    _producer: Producer = field(init=False)
    _columns: ColumnProducer = field(init=False)
    _open: bool = field(init=False, default=False)

    def __enter__(self) -> LaneOutput:
        """Make the producer and fence its predecessors (step 1)."""
        client = self.transactional_id
        config = self.kafka.client(
            **PRODUCER_SETTINGS, **{"client.id": client, "transactional.id": client}
        )
        self._producer = Producer(config)
        self._columns = ColumnProducer(self._producer, client)
        # Without a connection at hand librdkafka waits half a second for the coordinator.
        self._producer.poll(_CONNECT_POLL_S)
        self._call("init_transactions", lambda: self._producer.init_transactions(_INIT_TIMEOUT_S))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abort what is open. Errors of the abort are no news: the next `init_transactions` ends it as well."""
        if self._open:
            self._open = False
            try:
                self._producer.purge()
                self._producer.abort_transaction(5.0)
            except KafkaException:
                pass
        self._columns.close()

    def already_sent(self, partitions: Iterable[Partition], epoch: int, known_ends: Mapping[Partition, int]) -> bool:
        """Whether the batch that ends with `epoch` is in these partitions (step 3).

        A partition whose end is where the last batch left it (`known_ends`) holds nothing new: no read needed.
        Raises: TopicError(FOREIGN_RECORDS) when a partition ends with something that is no barrier, or when
        partitions of this lane, which are written together, differ.
        """
        changed = [
            place for place in partitions if known_ends.get(place, -1) != self._columns.end_offset(*place)
        ]
        if not changed:
            return False
        sent = {place: (last_barrier(self.kafka, *place) or 0) >= epoch for place in changed}
        if len(set(sent.values())) > 1:
            topic, partition = changed[0]
            raise TopicError(
                Code.FOREIGN_RECORDS,
                where=f"{topic}-{partition}",
                found="partitions of one transaction that end with different barriers",
                expected="output topics that nobody else writes to",
                next_step="see who writes to the output; create the job again with a new topic",
            )
        return sent[changed[0]]

    def begin(self) -> None:
        self._call("begin_transaction", self._producer.begin_transaction)
        self._open = True

    def send(
        self, topic: str, partitions: npt.NDArray[np.int32] | int, keys: pa.Array, values: pa.Array
    ) -> None:
        """Queue records; a single number sends them all to that partition."""
        if isinstance(partitions, int):
            partitions = np.full(len(values), partitions, dtype=np.int32)
        self._call("produce", lambda: self._columns.send(topic, partitions, keys, values))

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        headers: list[tuple[str, str | bytes | None]] = [(BARRIER_HEADER, barrier_header(barrier))]
        value = encode_barrier(barrier)
        self._call("produce", lambda: self._produce(topic, partition, value, headers))

    def _produce(
        self, topic: str, partition: int, value: bytes, headers: list[tuple[str, str | bytes | None]]
    ) -> None:
        while True:
            try:
                self._producer.produce(topic, value, partition=partition, headers=headers)
            except BufferError:
                self._producer.poll(_CONNECT_POLL_S)
            else:
                return

    def commit(self) -> None:
        """Make it visible. Raises: Fenced, or OutcomeUnknown when the answer did not come."""
        self._call("commit_transaction", lambda: self._producer.commit_transaction(_COMMIT_TIMEOUT_S))
        self._open = False

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where the partitions end now; only this lane's transactions move them."""
        return {place: self._columns.end_offset(*place) for place in partitions}

    def _call(self, what: str, call: object) -> None:
        assert callable(call)
        try:
            call()
        except KafkaException as error:
            raise self._mapped(what, error) from error

    def _mapped(self, what: str, error: KafkaException) -> BackfillError:
        kafka = error.args[0]
        if kafka.name() in _FENCED:
            return Fenced(
                Code.FENCED,
                where=self.transactional_id,
                found=f"{what} refused: a newer producer has this id",
                expected="to be the only instance",
                next_step="nothing: the newer instance goes on where this one stopped",
            )
        return OutcomeUnknown(
            Code.OUTCOME_UNKNOWN,
            where=self.transactional_id,
            found=f"{what} failed: {kafka.name()}",
            expected="an answer of the broker",
            next_step="nothing: the batch is run again, and looks first at what became of it",
        )
