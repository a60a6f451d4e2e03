"""The sink of simulated jobs: Kafka's own writer over the simulated broker, and the driver's side over its topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from schemas.avro.codec import decode_barrier
from schemas.job import JobDefinition
from schemas.records import Barrier
from streaming.kafka.topics import PartitionId
from streaming.sink.dead_letters import PARTITIONS
from streaming.sink.protocol import Ending, OpenWriter, Sink, Writer
from tests.simulation.broker import Broker


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
        self._broker.refuse_used(job.output)

    def open(self, job: JobDefinition) -> None:
        self._broker.create_topic(job.output, job.output_partitions)

    def open_letters(self, job: JobDefinition) -> None:
        self._broker.create_topic(job.dead_letters, PARTITIONS)

    def tails(self, job: JobDefinition) -> list[Barrier | None] | None:
        topics = self._broker.topics
        if not topics.partitions(job.output):
            return None
        found = [barriers[-1] if barriers else None for barriers in self._barriers(job.output)]
        for place in topics.partitions(job.output):
            topics.last_barrier(place)
        return found

    def begins(self, job: JobDefinition) -> list[int | None]:
        return [barriers[0].curr if barriers else None for barriers in self._barriers(job.output)]

    def endings(self, job: JobDefinition, after: int) -> list[Ending]:
        return [
            Ending(
                barriers[-1].curr if barriers else None,
                tuple(barrier for barrier in barriers if barrier.curr > after and barrier.progress),
            )
            for barriers in self._barriers(job.output)
        ]

    def _barriers(self, topic: str) -> Iterator[list[Barrier]]:
        for place in self._broker.topics.partitions(topic):
            self._broker.scheduler.step(f"read {topic}-{place[1]}", partial(self._is_decided, place))
            yield [
                decode_barrier(entry.barrier, entry.value, where="output")
                for entry in self._broker.topics.committed(place)
                if entry.barrier is not None
            ]

    def _is_decided(self, place: PartitionId) -> bool:
        return not self._broker.topics.is_undecided(place)
