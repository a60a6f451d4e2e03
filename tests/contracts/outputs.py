"""Outputs for the contract of sinks: each makes its sink, and reads what committed readers see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from confluent_kafka import Message, Producer

from schemas.avro.codec import decode_barrier
from schemas.job import JobDefinition
from schemas.json.barriers import BesideBarrier, decode_beside
from schemas.records import BARRIER_HEADER, EPOCH_HEADER, Change, Row
from schemas.settings.limits import Limits
from schemas.topics import UpstreamTopics
from streaming.kafka.barriers import beside_barrier_in
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.kafka.topics import partitions_of
from streaming.sink.columns import ChangeColumns, OutputChanges, SnapshotRows
from streaming.sink.dead_letters import PLACE_HEADER
from streaming.sink.kafka import KafkaSink
from streaming.sink.output import Output, SinkPartition
from streaming.sink.protocol import Sink, Writer
from streaming.source.decoded import KEY
from tests.kit import barriers
from tests.kit.columns import changes_of, columns_of
from tests.kit.sent_records import sent_reader
from tests.kit.tables import table
from tests.simulation.broker import Broker, Record, Topics
from tests.simulation.fault_policies import NoFaults
from tests.simulation.scheduler import Scheduler
from tests.simulation.sink import SimulatedSink

TABLE, PARTITIONS = table(), 2
FIRST, SECOND, THIRD, FOURTH = (barriers.barrier(number, PARTITIONS) for number in range(1, 5))
WRITER = "writer"
Entry = Change | int
"""A change, or the epoch of a barrier."""


class TestOutput(ABC):
    """A job, its output, and the sink that it is in."""

    __test__ = False
    sink: Sink

    def __init__(self, name: str = "out", *, beside: bool = False) -> None:
        declared = {"name": "copy", "output": name, "columns": ["v", "id"], "output_partitions": PARTITIONS}
        if beside:
            declared["barrier_topic"] = f"{name}-barriers"
        self.output = Output(JobDefinition.declare(declared, TABLE), TABLE)
        self.writer_id = f"{name}-{WRITER}"

    @property
    def job(self) -> JobDefinition:
        return self.output.definition

    @abstractmethod
    def read(self, partition: int) -> list[Entry]:
        """Records that committed readers see of it, once every transaction is decided."""

    @abstractmethod
    def letters(self) -> list[tuple[bytes | None, bytes | None, str]]:
        """Key, value and place of the dead letters that they see."""

    @abstractmethod
    def intrude(self, topic: str, partition: int) -> None:
        """Have somebody else write to it."""

    def entries(self) -> list[list[Entry]]:
        return [self.read(partition) for partition in range(PARTITIONS)]

    def open(self) -> AbstractContextManager[Writer]:
        return self.sink.open_writer(self.writer_id, 60_000)

    def places(self, before: int | None) -> dict[SinkPartition, int | None]:
        return {self.output.partition(partition): before for partition in range(PARTITIONS)}

    def rows(self, *rows: tuple[int, Row]) -> SnapshotRows:
        """Rows of a snapshot, each for a partition."""
        arrays = zip(TABLE.columns, columns_of(TABLE.columns, [row for _, row in rows]), strict=True)
        by_name = {column.name: array for column, array in arrays}
        parts = np.array([number * self.job.part_count // PARTITIONS for number, _ in rows], np.int32)
        return SnapshotRows(output=self.output, parts=parts, barrier=SECOND, arrays=by_name)

    def runs(self, bounds: Sequence[int], *changes: tuple[int, Change]) -> list[OutputChanges]:
        """Changes of the table, each for a partition, cut at these places."""
        keys = pa.table({KEY: pa.nulls(len(changes), pa.binary())})
        decoded = changes_of(TABLE, [change for _, change in changes], keys)
        rows = np.arange(len(changes))
        ops = np.array([change.op for _, change in changes], dtype=np.int8)
        partitions = np.array([partition for partition, _ in changes], dtype=np.int32)
        return ChangeColumns(
            output=self.output,
            decoded=decoded,
            rows=rows,
            ops=ops,
            partitions=partitions,
            parts=partitions,
            bounds=np.array(bounds),
            barriers=[SECOND, THIRD],
        ).runs()


def shown(output: Output, key: bytes | None, value: bytes | None) -> Change:
    """A record as the checker reads it, whose key is that of its row."""
    reader = sent_reader(output.definition.format, output.columns, TABLE.key_columns)
    change = reader.record(key, value).change
    assert change is not None
    names = [column.name for column in output.columns]
    assert reader.key(key) == tuple(change.row[names.index(name)] for name in TABLE.primary_key)
    return change


class Prompt(Scheduler):
    """Before each look the markers of all that is decided are there."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(NoFaults())
        self._topics = topics

    def step(self, what: str, until: Callable[[], bool] | None = None) -> None:
        for name, transaction in list(self._topics.current.items()):
            for place in list(transaction.places) if transaction.decision else ():
                self._topics.mark(name, place)


@dataclass(frozen=True)
class Seen:
    """A record: its offset, the change or the barrier that it is, and its header `epoch`."""

    offset: int
    entry: Change | BesideBarrier
    epoch: bytes | None = None


def merged(data: Sequence[Seen], barriers: Sequence[Seen]) -> Iterator[Entry]:
    """Each barrier behind the data below its end, which is right behind them, and whose epoch is the barrier's."""
    at = end = 0
    for seen in barriers:
        assert isinstance(seen.entry, BesideBarrier)
        below = [each for each in data[at:] if each.offset < seen.entry.end]
        end = below[-1].offset + 1 if below else end
        assert seen.entry.end == end
        assert {each.epoch for each in below} <= {str(seen.entry.barrier.curr).encode()}
        yield from (each.entry for each in below if isinstance(each.entry, Change))
        yield seen.entry.barrier.curr
        at += len(below)
    assert at == len(data)


class OfMemory(TestOutput):
    """Kafka's writer on the broker of the simulation."""

    def __init__(self, *, beside: bool = False) -> None:
        super().__init__(beside=beside)
        self._topics = Topics()
        self._scheduler = Prompt(self._topics)
        self.sink = SimulatedSink(Broker(self._topics, self._scheduler))

    def read(self, partition: int) -> list[Entry]:
        self._scheduler.step("read")
        data = self._topics.committed((self.job.output, partition))
        if self.job.barrier_topic is None:
            return [
                int(entry.barrier) if entry.barrier else shown(self.output, entry.key, entry.value)
                for entry in data
            ]
        log = self._topics.logs[self.job.output, partition]
        beside = self._topics.committed((self.job.barrier_topic, partition))
        return list(
            merged(
                [
                    Seen(each.offset, shown(self.output, each.key, each.value), log[each.offset].epoch)
                    for each in data
                ],
                [
                    Seen(each.offset, decode_beside(each.barrier, each.key, each.value, partition=partition))
                    for each in beside
                ],
            )
        )

    def letters(self) -> list[tuple[bytes | None, bytes | None, str]]:
        self._scheduler.step("read")
        return [(each.key, each.value, each.place) for each in self._topics.letters(self.job.dead_letters)]

    def intrude(self, topic: str, partition: int) -> None:
        producer = Broker(self._topics, self._scheduler).producer("somebody")
        with producer.transaction():
            place = topic, partition
            self._topics.produce("somebody", producer.epoch, place, Record(0, None, b"something"))


class OfKafka(TestOutput):
    """On a broker."""

    def __init__(self, bootstrap: str, name: str, upstream: str, *, beside: bool = False) -> None:
        super().__init__(name, beside=beside)
        self._kafka = KafkaSettings(bootstrap)
        self.sink = KafkaSink(
            self._kafka, UpstreamTopics.of(upstream).all, Limits(), parks=True, key_columns=()
        )

    def _messages(self, topic: str) -> Iterator[Message]:
        count = partitions_of(self._kafka, topic) or 0
        with RangeReader(self._kafka) as reader:
            marks = reader.await_stable(topic, timeout_s=30)
            spans = {number: (0, marks[number].stable) for number in range(count)}
            for chunk in reader.read(topic, spans):
                yield from chunk

    def read(self, partition: int) -> list[Entry]:
        data = [each for each in self._messages(self.job.output) if located(each)[0] == partition]
        if self.job.barrier_topic is None:
            return [self._entry(each) for each in data]
        beside = [beside_barrier_in(each) for each in self._messages(self.job.barrier_topic)]
        return list(
            merged(
                [
                    Seen(
                        located(each)[1],
                        shown(self.output, _bytes(each.key()), _bytes(each.value())),
                        header_of(each, EPOCH_HEADER),
                    )
                    for each in data
                ],
                [
                    Seen(each.offset, BesideBarrier(each.barrier, each.end))
                    for each in beside
                    if each is not None and each.partition == partition
                ],
            )
        )

    def _entry(self, message: Message) -> Entry:
        header, value = header_of(message, BARRIER_HEADER), message.value()
        if header is not None:
            return decode_barrier(header, value, where="output").curr
        return shown(self.output, _bytes(message.key()), _bytes(value))

    def letters(self) -> list[tuple[bytes | None, bytes | None, str]]:
        return [
            (_bytes(each.key()), _bytes(each.value()), (header_of(each, PLACE_HEADER) or b"").decode())
            for each in self._messages(self.job.dead_letters)
        ]

    def intrude(self, topic: str, partition: int) -> None:
        producer = Producer(self._kafka.producer())
        producer.produce(topic, b"something", partition=partition)
        assert producer.flush(30) == 0


def _bytes(data: str | bytes | None) -> bytes | None:
    assert not isinstance(data, str)
    return data
