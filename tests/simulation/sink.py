"""The sink of simulated jobs: Kafka's own writer over the simulated broker, and the driver's side over its topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from schemas.avro.codec import decode_barrier
from schemas.job import JobDefinition
from schemas.json.barriers import decode_beside
from schemas.records import Barrier
from state.values.plan import Parked
from streaming.kafka.barriers import BarrierCut
from streaming.kafka.topics import PartitionId
from streaming.sink.dead_letters import PARTITIONS, ReadLetters, missing_letters
from streaming.sink.output import SinkPartition
from streaming.sink.protocol import Ending, OpenWriter, Sink, Writer
from streaming.verify.history import TopicEntry
from tests.simulation.broker import Broker

EARLY_LETTERS = "up.dead-letters"


class SimulatedSink(Sink):
    """Waits, like Kafka's, until what lies in a partition is decided."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def open_writer(self) -> OpenWriter:
        return self._open

    @contextmanager
    def _open(self, transactional_id: str, timeout_ms: int) -> Iterator[Writer]:
        yield self._broker.writer(transactional_id)

    def fence(self, writer_ids: Sequence[str]) -> None:
        for transactional_id in writer_ids:
            self._broker.producer(transactional_id)

    def refuse_used(self, job: JobDefinition) -> None:
        for topic in _outputs(job):
            self._broker.refuse_used(topic)

    def open(self, job: JobDefinition) -> None:
        for topic in _outputs(job):
            self._broker.create_topic(topic, job.output_partitions)

    def record_bytes(self, job: JobDefinition) -> int | None:
        self._broker.scheduler.step(f"ask what {job.output} takes")
        return self._broker.takes()

    def open_letters(self, job: JobDefinition) -> None:
        self._broker.create_topic(job.dead_letters, PARTITIONS)

    def delete_barriers(self, job: JobDefinition, cut: BarrierCut) -> int:
        assert job.barrier_topic is not None
        topics, deleted = self._broker.topics, 0
        for place in topics.partitions(job.barrier_topic):
            self._broker.scheduler.step(f"trim {place[0]}-{place[1]}")
            barriers = [(each.offset, _barrier(job, place[1], each)) for each in topics.committed(place)]
            full = [offset for offset, barrier in barriers if barrier.full and cut.has(barrier)]
            if full:
                deleted += full[-1] - topics.begins.get(place, 0)
                topics.begins[place] = full[-1]
        return deleted

    def tails(self, job: JobDefinition) -> list[Barrier | None] | None:
        topics = self._broker.topics
        if not topics.partitions(job.with_barriers):
            return None
        found = [barriers[-1] if barriers else None for barriers in self._barriers(job)]
        # The topic of barriers may have yet to gain the partitions that the data has.
        for _, partition in topics.partitions(job.with_barriers):
            topics.last_barrier(SinkPartition(job.output, partition, job.barrier_topic))
        return found

    def begins(self, job: JobDefinition) -> list[Barrier | None]:
        return [barriers[0] if barriers else None for barriers in self._barriers(job)]

    def endings(self, job: JobDefinition, after: int) -> list[Ending]:
        return [
            Ending(
                barriers[-1].curr if barriers else None,
                tuple(
                    barrier
                    for barrier in barriers
                    if barrier.curr > after and (barrier.progress or barrier.columns)
                ),
            )
            for barriers in self._barriers(job)
        ]

    def _barriers(self, job: JobDefinition) -> Iterator[list[Barrier]]:
        for place in self._broker.topics.partitions(job.with_barriers):
            self._broker.scheduler.step(f"read {place[0]}-{place[1]}", partial(self._is_decided, place))
            yield [
                _barrier(job, place[1], entry)
                for entry in self._broker.topics.committed(place)
                if entry.barrier is not None
            ]

    def _is_decided(self, place: PartitionId) -> bool:
        return not self._broker.topics.is_undecided(place)


@dataclass(frozen=True)
class SimulatedLetters:
    """Of a table without a job."""

    broker: Broker
    read_letters: ReadLetters

    def write(self, parked: Sequence[Parked], writer_id: str) -> None:
        self.broker.create_topic(EARLY_LETTERS, PARTITIONS)
        place = EARLY_LETTERS, 0
        writer = self.broker.writer(writer_id)
        self.broker.scheduler.step("look at letters", lambda: not self.broker.topics.is_undecided(place))
        there = {letter.place for letter in self.broker.topics.letters(EARLY_LETTERS)}
        missing = missing_letters(self.read_letters, parked, there, "up")
        if missing:
            with writer.transaction():
                for letter in missing:
                    writer.letter_to(EARLY_LETTERS, letter)


def _outputs(job: JobDefinition) -> list[str]:
    return [job.output, *filter(None, [job.barrier_topic])]


def _barrier(job: JobDefinition, partition: int, entry: TopicEntry) -> Barrier:
    if job.barrier_topic is not None:
        return decode_beside(entry.barrier, entry.key, entry.value, partition=partition).barrier
    return decode_barrier(entry.barrier, entry.value, where="output")
