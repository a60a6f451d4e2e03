"""Changelogs on a real topic, written as a good producer would, or as a test likes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, ClassVar

from confluent_kafka import Message, Producer

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.position import Key
from schemas.records import BARRIER_HEADER, Barrier, Change, Mutation, Op, Row
from schemas.table import TableSchema
from schemas.topics import UpstreamTopics
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.source.barriers.injecting.injector import BarrierInjector, next_barrier, unix_ms
from streaming.source.barriers.injecting.target import target_of
from tests.kit.avro_codec import ChangeCodec, KeyCodec


class RealUpstream:
    """The changelog of a table on a topic.

    `put`, `delete` and `barrier` write what a good producer would; `send`, `change` and `deliver` what one likes.
    """

    form: ClassVar[dict[str, str]] = {}
    """The further keys of `upstream` in the configuration."""
    sections: Mapping[str, Any] = MappingProxyType({})
    """Further sections of the configuration."""

    def __init__(
        self,
        table: TableSchema,
        kafka: KafkaSettings,
        topic: str,
        partitions: int,
        barriers: str | None = None,
    ) -> None:
        self.table, self.kafka, self.name, self.partitions = table, kafka, topic, partitions
        self.rows: dict[Key, Row] = {}
        self.age_ms = self.ahead_ms = 0
        """The age that records are said to have, and how far the barriers' clock is ahead."""
        self.headers: list[tuple[str, str | bytes | None]] = []
        self.last: Barrier | None = None
        for made in filter(None, (topic, barriers)):  # before a service looks for it
            create_topic(kafka, made, partitions)
        self.changes, self.keys = ChangeCodec(table.columns), KeyCodec(table.key_columns)
        self._producer = Producer(kafka.producer(**{"message.max.bytes": 2_000_000}))
        self.topics, clock = UpstreamTopics.of(topic, barriers=barriers), lambda: unix_ms() + self.ahead_ms
        self._injector = BarrierInjector(kafka, target_of(self.topics), 1_000, clock=clock)

    def close(self) -> None:
        self._producer.flush(30)
        self._injector.stop()

    def flush(self) -> None:
        """Wait until all that was put is in the topic."""
        assert self._producer.flush(30) == 0

    def put(self, row: Row) -> None:
        """INSERT the row, or UPDATE the one with its key."""
        key = self.table.key_of(row)
        before = self.rows.get(key)
        self.rows[key] = row
        self._append(key, Change(Op.INSERT if before is None else Op.UPDATE, before, row))

    def delete(self, *key: Any) -> None:
        """DELETE the row with this key."""
        self._append(key, Change(Op.DELETE, self.rows.pop(key), None))

    def _append(self, key: Key, change: Change) -> None:
        data = self.keys.encode(key)
        home = zlib.crc32(data) % self.partitions
        self._produce(self.changes.encode(change), data, home)

    def _produce(self, value: bytes | None, key: bytes | None, partition: int, **more: Any) -> None:
        more = {"headers": self.headers, "timestamp": unix_ms() - self.age_ms, **more}
        self._producer.produce(self.name, value, key, partition, **more)
        self._producer.poll(0)

    def send(
        self, partition: int, key: bytes | None, value: bytes | None, *, barrier: bytes | None = None
    ) -> int:
        """A record as given, behind everything sent so far; its offset."""
        delivered, headers = list[Message](), [] if barrier is None else [(BARRIER_HEADER, barrier)]
        self._produce(value, key, partition, headers=headers, on_delivery=lambda _, m: delivered.append(m))
        assert self._producer.flush(30) == 0
        offset = delivered[0].offset()
        assert offset is not None
        return offset

    def change(self, change: Change, *, key: bytes | None = None, partition: int = 0) -> int:
        """A change as given, illegal ones too, with its own key unless another is given; its offset."""
        own = self.keys.encode(self.table.key_of(change.row)) if key is None else key
        return self.send(partition, own, self.changes.encode(change))

    def barrier(self, mutation: Mutation | None = None) -> Barrier:
        """The next barrier, in every partition, behind everything sent so far."""
        self.flush()
        self.last = self._injector.inject_one(mutation)
        return self.last

    def next(self) -> Barrier:
        """The next barrier, for tests that send its copies themselves."""
        self._injector.stop()  # it reads the topic's end again before it injects
        return next_barrier(self.last, partitions=self.partitions, now_ms=unix_ms(), mutation=None)

    def deliver(self, barrier: Barrier, *partitions: int) -> int:
        """A copy of a barrier into each of these partitions; the offset of the last one."""
        offset = -1
        for number in partitions:
            offset = self.send(number, None, encode_barrier(barrier), barrier=barrier_header(barrier))
        if self.last is None or barrier.curr > self.last.curr:
            self.last = barrier
        return offset


class UpsertUpstream(RealUpstream):
    """An upstream of JSON rows by key."""

    form: ClassVar[dict[str, str]] = {"format": "upsert"}

    def _append(self, key: Key, change: Change) -> None:
        names = self.table.column_names
        value = None if change.after is None else json_of(dict(zip(names, change.after, strict=True)))
        data = json_of(dict(zip(self.table.primary_key, key, strict=True)))
        self._produce(value, data, zlib.crc32(data) % self.partitions)

    def delete_absent(self, *key: Any) -> None:
        """Say once more that there is no row with this key."""
        self._append(key, Change(Op.DELETE, None, None))


def json_of(row: dict[str, Any]) -> bytes:
    return json.dumps(row, default=str).encode()


class AppendUpstream(RealUpstream):
    """Rows as JSON. Without a topic for barriers they are in the data."""

    form: ClassVar[dict[str, str]] = {"format": "append"}

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.sections = {"barrier_topic": self.topics.with_barriers}

    def append(self, row: Row, key: bytes | None = None, partition: int = 0) -> None:
        """A row with any key."""
        value = json_of(dict(zip(self.table.column_names, row, strict=True)))
        self._producer.produce(self.name, value, key, partition)
        self._producer.poll(0)


def gain(upstream: RealUpstream, count: int = 1) -> None:
    """Add partitions, behind everything sent so far; keys go on by their number."""
    upstream.flush()
    upstream.partitions += count
    create_topic(upstream.kafka, upstream.name, upstream.partitions, gains=True)
    # A producer learns of them minutes later; this one is new.
    upstream._producer = Producer(upstream.kafka.producer())


def order(number: int, version: int = 0) -> tuple[Any, ...]:
    """A row of the service tests' own table, with an amount of its own for each version."""
    return (
        number,
        "EU",
        Decimal((number * 37 + version * 55) % 400).quantize(Decimal("0.01")),
        f"n{version}",
    )


def row(number: int, note: str | None = None) -> tuple[Any, ...]:
    """A row of the same table without an amount."""
    return (number, "EU", None, note)


def version_of(number: int, version: int = 0) -> tuple[Any, ...]:
    """A row of the same table without an amount, by its version."""
    return row(number, f"n{version}")


def churn(upstream: RealUpstream, version: int) -> None:
    """One round; its rows differ from those of other versions."""
    for number in range(0, 600, 7):
        upstream.put(order(number, version))
        if number % 3 == 0 and (number + 1,) in upstream.rows:
            upstream.delete(number + 1)
