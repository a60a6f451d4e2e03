"""A broker in memory: what Kafka promises to transactional producers, and nothing nicer.

Modelled, after Kafka's transaction coordinator (KIP-98):

    init         raises the id's epoch, which fences the producer before; aborts its open transaction, and waits for
                 the markers of one that is decided
    records      lie in the log from the moment they are sent; committed readers stop before the first undecided one
    commit       is decided by the coordinator, and answered then; the markers come later, partition by partition
    the answer   can be lost; the request can be lost, or arrive at any later moment. It is applied to whatever
                 transaction of the same producer is open by then: the old protocol, before KIP-890
    timeout      the coordinator aborts what was open for too long, and fences its producer

Not modelled: several brokers, retention by time, quotas, records out of order within one producer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.errors import Code, Fenced, TopicError
from schemas.json.barriers import encode_beside
from schemas.records import EPOCH_HEADER, Barrier
from streaming.kafka.topics import PartitionId
from streaming.sink import dead_letters
from streaming.sink.columns import EncodedRecords
from streaming.sink.kafka_reader import LastBarrier
from streaming.sink.kafka_writer import KafkaWriter, OutputClient
from streaming.sink.output import SinkPartition
from streaming.sink.protocol import foreign_records, output_missing
from streaming.verify.dead_letters import ListedLetter
from streaming.verify.findings import Place
from streaming.verify.history import TopicEntry
from tests.simulation.broker_answers import last_of, no_answer, too_large, unknown
from tests.simulation.scheduler import Killed, Scheduler

TRANSACTION_TIMEOUT_MS = 60_000


class Record(NamedTuple):
    """A record, or a marker (`decision` "commit" or "abort") that ends a transaction in a partition."""

    transaction: int
    key: bytes | None
    value: bytes | None
    barrier: bytes | None = None
    decision: str | None = None
    letter: str | None = None
    """Of a dead letter, the place that it names."""
    epoch: bytes | None = None
    """The header of that name."""
    code: str = ""
    """Likewise, of a dead letter."""


@dataclass
class Transaction:
    """Open until it is decided; `places` are the partitions whose marker is still to come."""

    number: int
    epoch: int
    since_ms: int
    places: dict[PartitionId, None] = field(default_factory=dict)
    decision: str | None = None


@dataclass
class Topics:
    """All that the broker holds; `begins` is what was not deleted. It is changed by whole effects only."""

    logs: dict[PartitionId, list[Record]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    """By transactional id."""
    current: dict[str, Transaction] = field(default_factory=dict)
    """By transactional id: its transaction, until all markers are there."""
    late: list[tuple[str, int]] = field(default_factory=list)
    """Commit requests on their way: transactional id and producer epoch."""
    count: int = 0
    begins: dict[PartitionId, int] = field(default_factory=dict)

    def copy(self) -> Topics:
        """A second one in the same state."""
        current = {name: replace(txn, places=dict(txn.places)) for name, txn in self.current.items()}
        logs = {place: list(log) for place, log in self.logs.items()}
        return Topics(logs, dict(self.epochs), current, list(self.late), self.count, dict(self.begins))

    # the coordinator ---------------------------------------------------------------------------------------

    def init(self, name: str) -> int:
        """A new epoch for a transactional id, with everything before it ended."""
        self.decide(name, "abort")
        for place in list(self.current[name].places) if name in self.current else ():
            self.mark(name, place)
        self.epochs[name] = self.epochs.get(name, -1) + 1
        return self.epochs[name]

    def decide(self, name: str, decision: str) -> None:
        """End the open transaction of an id, if there is one; what is decided stays so."""
        transaction = self.current.get(name)
        if transaction is not None and transaction.decision is None:
            transaction.decision = decision
            if not transaction.places:
                del self.current[name]

    def mark(self, name: str, place: PartitionId) -> None:
        """Write the marker of a decided transaction into one partition."""
        transaction = self.current[name]
        del transaction.places[place]
        self.logs[place].append(Record(transaction.number, None, None, None, transaction.decision))
        if not transaction.places:
            del self.current[name]

    def commit(self, name: str, epoch: int) -> bool:
        """Carry out a commit request. False: its producer was fenced, or there is nothing open."""
        transaction = self.current.get(name)
        if self.epochs[name] != epoch or transaction is None or transaction.decision is not None:
            return False
        self.decide(name, "commit")
        return True

    def time_out(self, now_ms: int) -> None:
        """Abort what is open for too long, and fence its producer."""
        for name, transaction in list(self.current.items()):
            if transaction.decision is None and now_ms - transaction.since_ms >= TRANSACTION_TIMEOUT_MS:
                self.decide(name, "abort")
                self.epochs[name] += 1

    # logs --------------------------------------------------------------------------------------------------

    def produce(self, name: str, epoch: int, place: PartitionId, record: Record) -> None:
        """Append to the open transaction. Dropped if the producer is fenced: it hears of that when it commits."""
        transaction = self.current.get(name)
        if self.epochs[name] == epoch and transaction is not None and transaction.decision is None:
            transaction.places[place] = None
            self.logs[place].append(record._replace(transaction=transaction.number))

    def committed(self, place: PartitionId, *, deleted_too: bool = False) -> list[TopicEntry]:
        """The records for a committed reader: none from the first undecided one on, and none that was deleted."""
        begin = 0 if deleted_too else self.begins.get(place, 0)
        return [
            TopicEntry(offset, each.key, each.value, each.barrier, epoch=each.epoch)
            for offset, each in self._visible(place)
            if offset >= begin
        ]

    def last_barrier(self, place: SinkPartition) -> LastBarrier | None:
        """The barrier that a partition ends with, None for an empty one. Raises: TopicError(FOREIGN_RECORDS)."""
        data = self.committed((place.topic, place.partition))
        entries = self.committed((place.barriers, place.partition)) if place.barriers else data
        last = last_of(entries[-1], place) if entries else None
        end = 0 if last is None else last.end
        if place.barriers is not None and data and data[-1].offset >= end:
            raise foreign_records(f"{place.topic}-{place.partition}", "a record behind the last barrier")
        return last

    def is_undecided(self, place: PartitionId) -> bool:
        """True if a transaction in a partition has no marker yet."""
        return any(place in transaction.places for transaction in self.current.values())

    def letters(self, topic: str) -> list[ListedLetter]:
        """The dead letters of a topic that a committed reader sees."""
        return [
            ListedLetter(Place(topic, 0, offset), each.letter or "", each.key, each.value, each.code)
            for offset, each in self._visible((topic, 0))
        ]

    def _visible(self, place: PartitionId) -> Iterator[tuple[int, Record]]:
        log = self.logs[place]
        decisions = {record.transaction: record.decision for record in log if record.decision is not None}
        for offset, record in enumerate(log):
            if record.decision is None:
                decision = decisions.get(record.transaction)
                if decision is None:
                    return
                if decision == "commit":
                    yield offset, record

    def partitions(self, topic: str) -> list[PartitionId]:
        """Of a topic, in order."""
        return sorted(place for place in self.logs if place[0] == topic)


class Broker:
    """Topics as clients see them, each question and each effect a step of its own."""

    def __init__(self, topics: Topics, scheduler: Scheduler) -> None:
        self.topics, self.scheduler = topics, scheduler
        self.takes: Callable[[], int | None] = lambda: None
        """Key and value that a record of an output may have now."""

    def writer(self, transactional_id: str) -> KafkaWriter:
        """A lane's, with a producer of its own."""
        return KafkaWriter(self.producer(transactional_id))

    def producer(self, transactional_id: str) -> Producer:
        """A producer fresh from `init_transactions`."""
        self.scheduler.step(f"init {transactional_id}")
        if self.scheduler.outcome("init", "answered", "no answer") == "no answer":
            raise no_answer(transactional_id)
        return Producer(self, self.scheduler, transactional_id, self.topics.init(transactional_id))

    def refuse_used(self, topic: str) -> None:
        """A topic that is there is refused if it holds anything that was not aborted."""
        places = self.topics.partitions(topic)
        self.scheduler.step(f"look at {topic}", lambda: not any(map(self.topics.is_undecided, places)))
        for place in places:
            if self.topics.committed(place):
                raise TopicError(
                    Code.OUTPUT_TOPIC_MISMATCH,
                    found=f"records in {topic}",
                    expected="an empty topic",
                    next_step="name another",
                )

    def create_topic(self, topic: str, partitions: int) -> None:
        """A new topic; one that is there stays as it is."""
        self.scheduler.step(f"create {topic}")
        for partition in range(partitions):
            self.topics.logs.setdefault((topic, partition), [])

    def work(self) -> None:
        """A strand of the broker's own: markers, and requests that were late."""
        while True:
            self.scheduler.step("broker", lambda: bool(self.topics.late or self._decided()))
            if self.topics.late:
                self.topics.commit(*self.topics.late.pop(0))
            else:
                name, place = self._decided()[0]
                self.topics.mark(name, place)

    def _decided(self) -> list[tuple[str, PartitionId]]:
        current = self.topics.current.items()
        return [
            (name, place) for name, open_ in current if open_.decision is not None for place in open_.places
        ]


class Producer(OutputClient):
    """A transactional producer with its epoch."""

    def __init__(self, broker: Broker, scheduler: Scheduler, name: str, epoch: int) -> None:
        self._broker, self._scheduler, self._name, self.epoch = broker, scheduler, name, epoch

    def ends(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        self._scheduler.step("ask for the ends")
        logs = self._broker.topics.logs
        for topic in {topic for topic, partition in places if (topic, partition) not in logs}:
            raise output_missing(topic, "no such topic")
        return {place: len(logs[place]) for place in places}

    def last_barriers(self, places: Collection[SinkPartition]) -> dict[SinkPartition, LastBarrier | None]:
        return {place: self.last_barrier(place) for place in places}

    def last_barrier(self, place: SinkPartition) -> LastBarrier | None:
        def decided() -> bool:
            return not any(map(self._broker.topics.is_undecided, place.logs))

        self._scheduler.step(f"look at the tail of {place.topic}-{place.partition}", decided)
        return self._broker.topics.last_barrier(place)

    def first_offset(self, topic: str, partition: int) -> int:
        return self._broker.topics.begins.get((topic, partition), 0)

    def send(self, topic: str, records: EncodedRecords, headers: Mapping[str, bytes]) -> None:
        epoch = headers.get(EPOCH_HEADER)
        limit = self._broker.takes()
        if limit is not None and records.longer_than(limit):
            raise too_large(topic)
        columns = records.partitions.tolist(), records.keys.to_pylist(), records.values.to_pylist()
        for partition, key, value in zip(*columns, strict=True):
            self._append((topic, partition), Record(0, key, value, epoch=epoch))

    def expect(self, topics: Collection[str]) -> None:
        pass

    def send_barrier(self, topic: str, partition: int, barrier: Barrier) -> None:
        record = Record(0, None, encode_barrier(barrier), barrier_header(barrier))
        self._append((topic, partition), record)

    def send_barrier_beside(self, topic: str, partition: int, barrier: Barrier, end: int) -> None:
        key, value = str(partition).encode(), encode_beside(barrier, end)
        self._append((topic, partition), Record(0, key, value, barrier_header(barrier)))

    def send_letter(self, topic: str, letter: dead_letters.DeadLetter) -> None:
        self._append((topic, 0), Record(0, letter.key, letter.value, letter=letter.place, code=letter.code))

    def _append(self, place: PartitionId, record: Record) -> None:
        self._broker.topics.produce(self._name, self.epoch, place, record)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        except Killed:
            raise
        except BaseException:
            self._broker.topics.decide(self._name, "abort")
            raise
        self._commit()

    def _begin(self) -> None:
        topics = self._broker.topics
        self._scheduler.step(
            f"begin {self._name}", lambda: self._name not in topics.current or self._is_fenced()
        )
        if not self._is_fenced():
            topics.count += 1
            topics.current[self._name] = Transaction(topics.count, self.epoch, self._scheduler.now_ms)

    def _is_fenced(self) -> bool:
        return self._broker.topics.epochs[self._name] != self.epoch

    def _commit(self) -> None:
        self._scheduler.step(f"commit {self._name}")
        topics = self._broker.topics
        match self._scheduler.outcome("commit", "answered", "answer lost", "request lost", "late", "aborted"):
            case "request lost":
                raise unknown(self._name)
            case "late":
                topics.late.append((self._name, self.epoch))
                raise unknown(self._name)
            case "aborted" if not self._is_fenced():
                topics.decide(self._name, "abort")
                raise no_answer(self._name)
            case outcome:
                done = topics.commit(self._name, self.epoch)
                if outcome == "answer lost":
                    raise unknown(self._name)
        if not done:
            raise Fenced(
                Code.FENCED, where=self._name, found="a newer producer", expected="none", next_step="stop"
            )
        self._scheduler.step(f"answer of the commit of {self._name}")
