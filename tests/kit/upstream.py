"""Changelogs in memory, of a table or of rows without identity: partitions of bytes as they would lie in Kafka."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.position import Key
from schemas.records import Barrier, BarrierKind, Change, Mutation, Op, Row
from schemas.table import TableSchema
from streaming.verify.history import TopicEntry
from tests.kit.avro_codec import ChangeCodec, KeyCodec

EPOCH_STEP = 1 << 16


@dataclass
class MemoryTopic:
    """Partitions of entries. A transaction marker follows each barrier, so offsets have holes.

    Time goes on by a millisecond a record.
    """

    partitions: list[list[TopicEntry]]
    now_ms: int = 0

    @classmethod
    def empty(cls, count: int) -> MemoryTopic:
        return cls([[] for _ in range(count)])

    def append(self, partition: int, key: bytes | None, value: bytes | None) -> None:
        self._append(partition, key, value, None)

    def append_barrier(self, partition: int, barrier: Barrier) -> None:
        self._append(partition, None, encode_barrier(barrier), barrier_header(barrier))

    def _append(self, partition: int, key: bytes | None, value: bytes | None, header: bytes | None) -> None:
        entries = self.partitions[partition]
        offset = 0
        if entries:
            offset = entries[-1].offset + (1 if entries[-1].barrier is None else 2)
        self.now_ms += 1
        entries.append(TopicEntry(offset, key, value, header, time_ms=self.now_ms))


class Upstream:
    """Writes changes and barriers; `rows` is what is live. It can't write an illegal change."""

    def __init__(self, table: TableSchema, partitions: int = 2) -> None:
        self.table, self.topic = table, MemoryTopic.empty(partitions)
        self.rows: dict[Key, Row] = {}
        self.barriers: list[Barrier] = []
        self.every_ms = 0
        """Between two barriers, by their own time."""
        self._changes, self._keys = ChangeCodec(table.columns), KeyCodec(table.key_columns)

    def gain(self, count: int = 1) -> None:
        """Add partitions: keys go on by their number."""
        self.topic.partitions += [[] for _ in range(count)]

    def put(self, row: Row, *, partition: int | None = None) -> None:
        """INSERT the row, or UPDATE the one with its key. A key keeps to one partition until some are added."""
        key = self.table.key_of(row)
        before = self.rows.get(key)
        self.rows[key] = row
        self._append(key, Change(Op.INSERT if before is None else Op.UPDATE, before, row), partition)

    def put_all(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.put(row)

    def delete(self, *key: Any, partition: int | None = None) -> None:
        self._append(key, Change(Op.DELETE, self.rows.pop(key), None), partition)

    def _append(self, key: Key, change: Change, partition: int | None) -> None:
        home = self.home(key) if partition is None else partition
        self.topic.append(home, self._keys.encode(key), self._changes.encode(change))

    def home(self, key: Key) -> int:
        """The partition of a key."""
        return zlib.crc32(self._keys.encode(key)) % len(self.topic.partitions)

    def barrier(self, mutation: Mutation | None = None) -> Barrier:
        """The next barrier, in every partition."""
        prev = self.barriers[-1].curr if self.barriers else 0
        kind = BarrierKind.CHECKPOINT if prev else BarrierKind.INITIAL
        count = len(self.topic.partitions)
        injected_at_ms = 1_700_000_000_000 + len(self.barriers) * self.every_ms
        self.barriers.append(Barrier(prev + EPOCH_STEP, prev, kind, count, injected_at_ms, mutation))
        self.repeat_barrier(range(count))
        return self.barriers[-1]

    def repeat_barrier(self, partitions: Iterable[int]) -> None:
        """The newest barrier once more, as a producer that retries may write it."""
        for number in partitions:
            self.topic.append_barrier(number, self.barriers[-1])


class RowsUpstream(Upstream):
    """Rows with any key, each in the partition that its writer chooses. `nothing` are the places of null values."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self.nothing: list[tuple[int, int]] = []

    def append(self, row: Row, key: bytes | None, partition: int) -> None:
        """One row."""
        self.topic.append(partition, key, self._changes.encode(Change(Op.INSERT, None, row)))

    def append_nothing(self, key: bytes | None, partition: int) -> None:
        """A record with a null value."""
        self.topic.append(partition, key, None)
        self.nothing.append((partition, self.topic.partitions[partition][-1].offset))
