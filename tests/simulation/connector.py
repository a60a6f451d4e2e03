"""An upstream that a connector writes: it repeats itself, sends tombstones, and leaves out what did not change."""

from __future__ import annotations

import random
from typing import ClassVar

from schemas.codec.logs import POSTGRESQL, LogId, LogPosition
from schemas.formats.change import ChangeFormat
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import TableSchema
from tests.kit.upstream import Upstream
from tests.simulation.rows import AfterOnly

Place = tuple[int, int]


LOG = LogId(POSTGRESQL, "simulated", "t")


class FromConnector(AfterOnly):
    """A connector's form as lanes may expect it: redelivered records, unchanged values left out."""

    comes_again: ClassVar[bool] = True

    @property
    def may_be_unchanged(self) -> bool:
        return True


class WholeFromConnector(ChangeFormat):
    """The form of a connector that sends the row before each change, and leaves nothing out."""

    comes_again: ClassVar[bool] = True


class ConnectorUpstream(Upstream):
    """`extra` are the records that stand for no change: those that came again, and tombstones.

    `positions` has the position in the database's log of every record but tombstones, and
    `transactions` what it tells of its transaction's number, where events do; `without` are those that leave the last
    column out, so many of those that could.
    """

    def __init__(
        self,
        table: TableSchema,
        partitions: int = 2,
        chance: random.Random | None = None,
        *,
        without: float = 0.7,
        tombstones: bool = True,
    ) -> None:
        super().__init__(table, partitions)
        self._share, self._tombstones = without, tombstones
        self.extra: set[Place] = set()
        self.positions: dict[Place, LogPosition] = {}
        self.transactions: dict[Place, int] = {}
        self.without: set[Place] = set()
        self._events: list[list[list[int]]] = [[] for _ in range(partitions)]
        self._chance, self._lsn = chance or random.Random(0), 0
        self._log, self._is_snapshot = LOG, False
        self._ts_ms: int | None = None

    def goes_on(self, log: LogId, at: int, ts_ms: int | None, *, snapshot: bool) -> None:
        """Place the next events in this log, from this position and time on, or in a snapshot of its table."""
        self._log, self._lsn, self._ts_ms, self._is_snapshot = log, at - 1, ts_ms, snapshot

    def _position(self) -> LogPosition:
        if self._is_snapshot:
            return LogPosition(self._log._replace(origin=None))
        own = (self._lsn, 1, self._lsn, 0) if self._log.has_gtids else (1, self._lsn)
        ts_ms = self._ts_ms
        self._ts_ms = None if ts_ms is None else ts_ms + 1
        return LogPosition(self._log, own, ts_ms)

    def move(self, key: Key, row: Row) -> None:
        """A change of key: a delete and an insert at one place in the log."""
        self.delete(*key)
        self._lsn -= 1
        self.put(row)

    def gain(self, count: int = 1) -> None:
        super().gain(count)
        self._events += [[] for _ in range(count)]

    def _append(self, key: Key, change: Change, partition: int | None) -> None:
        super()._append(key, change, partition)
        number = self.home(key) if partition is None else partition
        self._lsn += 1
        place = self._last(number)
        self.positions[place] = self._position()
        before, after = change.before, change.after
        if (
            before is not None
            and after is not None
            and before[-1] == after[-1]
            and self._chance.random() < self._share
        ):
            self.without.add(place)
        event = [place[1]]
        if change.op is Op.DELETE and self._tombstones:
            entry = self.topic.partitions[number][-1]
            self.topic.append(number, entry.key, entry.value or b"")
            self.extra.add(self._last(number))
            event.append(self._last(number)[1])
        self._events[number].append(event)

    def again(self, number: int, events: int) -> None:
        """The last events of a partition once more."""
        for offset in [offset for event in self._events[number][-events:] for offset in event]:
            self._repeat(number, offset)

    def _repeat(self, number: int, offset: int) -> None:
        entry = next(entry for entry in self.topic.partitions[number] if entry.offset == offset)
        self.topic.append(number, entry.key, entry.value or b"")
        place, original = self._last(number), (number, offset)
        self.extra.add(place)
        if original in self.positions:
            self.positions[place] = self.positions[original]
        if original in self.transactions:
            self.transactions[place] = self.transactions[original]
        if original in self.without:
            self.without.add(place)

    def _last(self, number: int) -> Place:
        return number, self.topic.partitions[number][-1].offset
