"""A legal changelog of any declared table: INSERT only of an absent key, `before` always the stored row.

Pure: no topic, no clock, and the same seed gives the same changes. See `streaming.events.rows` for why a key costs five
bytes: its version, which counts its changes, and a flag for being present.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.errors import Code, ConfigError
from schemas.records import Op
from schemas.table import TableSchema
from streaming.events.encoders import EventEncoder, EventRecords, Ops, change_events
from streaming.events.rows import InventedRows, Numbers

Flags = npt.NDArray[np.bool_]
Versions = npt.NDArray[np.uint32]

_KINDS = np.array([Op.UPDATE, Op.DELETE, Op.INSERT], np.int8)
_NOTHING = EventRecords(pa.array([], pa.binary()), pa.array([], pa.binary()))
_AMPLE = 8
_REVIVED_SHARE = 0.25
"""So many of the inserts bring a deleted key back, if there is one."""


@dataclass(frozen=True, slots=True)
class ChangeMix:
    """Shares of updates and deletes among live changes; the rest are inserts."""

    updates: float = 0.6
    deletes: float = 0.2

    def __post_init__(self) -> None:
        if min(self.updates, self.deletes) < 0 or self.updates + self.deletes > 1:
            raise ConfigError(
                Code.USAGE,
                found=f"shares of {self.updates:g} updates and {self.deletes:g} deletes",
                expected="two shares from 0, together at most 1; the rest are inserts",
                next_step="correct --updates-share and --deletes-share",
            )


@dataclass(frozen=True, slots=True)
class GeneratedChanges:
    """Changes in order, by their `ops`, and their records: `keys[i]` with `values[i]`, one or more for each change."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    ops: Ops

    def __len__(self) -> int:
        return len(self.ops)


class ChangeGenerator:
    """Makes the next changes of one table. Every change made counts as sent; none can be taken back.

    `events` encodes them, by default as records of the format `change`. `live` is the number of present keys.
    """

    def __init__(self, table: TableSchema, seed: int = 1, events: EventEncoder | None = None) -> None:
        self.table, self.seed, self.events = table, seed, events or change_events(table)
        self._source = InventedRows(table, seed)
        self.restore(np.zeros(0, np.uint32), np.zeros(0, np.bool_))

    @property
    def capacity(self) -> int:
        """Number of different keys that the table can have."""
        return self._source.capacity

    def restore(self, versions: Versions, alive: Flags) -> None:
        """Continue after a changelog that left key number i at `versions[i]`, present if `alive[i]`."""
        self._known, self._made = len(versions), int(versions.sum(dtype=np.uint64))
        self._versions, self._alive = versions.copy(), alive.copy()
        self._dead: list[int] = np.flatnonzero(~alive).tolist()
        self.live = self._known - len(self._dead)
        # Another stretch of the random sequence than the one that made what is there already.
        self._random = np.random.default_rng([self.seed, self._made])

    def inserts(self, count: int) -> GeneratedChanges:
        """INSERTs of `count` new keys. Raises: ConfigError(USAGE) if the table has no more."""
        if self._known + count > self.capacity:
            raise ConfigError(
                Code.USAGE,
                where=f"table {self.table.name}",
                found=f"{self._known + count} different keys wanted",
                expected=f"at most {self.capacity}, as many as its primary key can have here",
                next_step="ask for fewer rows, or declare a wider primary key",
            )
        numbers = np.arange(self._known, self._known + count, dtype=np.int64)
        self._grow(count)
        self._versions[numbers], self._alive[numbers] = 1, True
        self.live += count
        return self._encoded(numbers, np.ones(count, np.int64), np.full(count, Op.INSERT, np.int8))

    def mixed(self, count: int, shares: ChangeMix) -> GeneratedChanges:
        """`count` changes of all kinds. A kind that is impossible (nothing to delete) is replaced by another."""
        kinds = np.searchsorted(
            np.cumsum([shares.updates, shares.deletes]), self._random.random(count), "right"
        )
        ops = _KINDS[kinds]
        # Many at once touch each key once at most, so they need a table in which that leaves plenty of choice.
        ample = count * _AMPLE <= self.live and self._known <= self.live * _AMPLE
        if ample and self._known + count <= self.capacity:
            return self._encoded(*self._many(ops))
        return self._encoded(*self._one_by_one(ops))

    def _many(self, ops: Ops) -> tuple[Numbers, Numbers, Ops]:
        numbers = np.empty(len(ops), np.int64)
        absent, deleted = ops == Op.INSERT, ops == Op.DELETE
        numbers[~absent] = self._present_keys(int(np.count_nonzero(~absent)))
        numbers[absent] = [self._absent_key() for _ in range(np.count_nonzero(absent))]
        self._alive[numbers[deleted]] = False
        self._dead.extend(numbers[deleted].tolist())
        self.live -= int(np.count_nonzero(deleted))
        self._versions[numbers] += 1
        return numbers, self._versions[numbers].astype(np.int64), ops

    def _present_keys(self, count: int) -> Numbers:
        """Distinct keys in random order."""
        found = np.zeros(0, np.int64)
        while len(found) < count:
            drawn = self._random.integers(self._known, size=2 * count)
            found = np.union1d(found, drawn[self._alive[drawn]])
        return self._random.permutation(found)[:count]

    def _one_by_one(self, wanted: Ops) -> tuple[Numbers, Numbers, Ops]:
        numbers, versions, ops = (
            np.empty(len(wanted), np.int64),
            np.empty(len(wanted), np.int64),
            wanted.copy(),
        )
        for index, op in enumerate(wanted.tolist()):
            numbers[index], ops[index] = number, _ = self._choose(Op(op))
            self._versions[number] += 1
            versions[index] = self._versions[number]
        return numbers, versions, ops

    def _choose(self, op: Op) -> tuple[int, Op]:
        exhausted = self._known == self.capacity and not self._dead
        if (op is Op.INSERT and not exhausted) or not self.live:
            return self._absent_key(), Op.INSERT
        number = self._present_key()
        if op is not Op.DELETE:
            return number, Op.UPDATE
        self._alive[number] = False
        self._dead.append(number)
        self.live -= 1
        return number, op

    def _absent_key(self) -> int:
        full = self._known == self.capacity
        if self._dead and (full or self._random.random() < _REVIVED_SHARE):
            index = int(self._random.integers(len(self._dead)))
            self._dead[index], self._dead[-1] = self._dead[-1], self._dead[index]
            number = self._dead.pop()
        else:
            number = self._known
            self._grow(1)
        self._alive[number] = True
        self.live += 1
        return number

    def _present_key(self) -> int:
        for _ in range(32):
            number = int(self._random.integers(self._known))
            if self._alive[number]:
                return number
        return int(self._random.choice(np.flatnonzero(self._alive[: self._known])))  # nearly all are deleted

    def _grow(self, count: int) -> None:
        self._known += count
        if self._known > len(self._versions):
            room = max(self._known, 2 * len(self._versions)) - len(self._versions)
            self._versions = np.concatenate([self._versions, np.zeros(room, np.uint32)])
            self._alive = np.concatenate([self._alive, np.zeros(room, np.bool_)])

    def _encoded(self, numbers: Numbers, versions: Numbers, ops: Ops) -> GeneratedChanges:
        """Encode changes that brought keys to these versions; the row before had version - 1."""
        if not len(ops):
            return GeneratedChanges(*_NOTHING, ops)
        keys, values = self.encode_keys(numbers), self.encode(numbers, versions, ops)
        records = self.events.records(keys, values, ops, self._made)
        self._made += len(ops)
        return GeneratedChanges(*records, ops)

    def encode_keys(self, numbers: Numbers) -> pa.BinaryArray:
        """Encode the record keys of key numbers."""
        return self.events.keys(self._source.keys(numbers))

    def encode(self, numbers: Numbers, versions: Numbers, ops: Ops) -> pa.BinaryArray:
        """Encode, by `EventEncoder.values`, the changes that brought these keys to these versions."""
        after = self._source.rows(numbers, versions)
        has_before = self.events.needs_before and not (ops == Op.INSERT).all()
        before = self._source.rows(numbers, versions - 1) if has_before else after
        return self.events.values(ops, before, after)
