"""Redelivered records and values that are left out: columnar lanes do what one reader does one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from schemas.codec.logs import LogId, LogPosition
from schemas.formats.outputs.records import AvroRowEncoder
from schemas.records import Change, Op
from state.columns import OFFSET, PARTITION
from state.values.seen import LaneSeen, Seen, merged
from streaming.core.redelivery import Judgement, Logged, Redelivery
from streaming.lane.before.normal import KeyOrder, Stored, normalised, with_unchanged, written
from streaming.lane.redelivered import RedeliveryFilter
from streaming.lane.task import UndoneError
from streaming.source.decoded import POSITION, UNCHANGED, Changes
from tests.kit import columns
from tests.kit.in_order import InOrder
from tests.kit.log_positions import position_column
from tests.kit.tables import table
from tests.kit.upstream_record import UpstreamRecord
from tests.kit.values import examples

TABLE = table()
KEYS = AvroRowEncoder(TABLE.key_columns)
NOTE: Final = 2
_LOG = LogId("postgresql", "test", "src")

Row = tuple[int, int, str | None]


@dataclass(frozen=True)
class Sent:
    """A record of a connector: a row or a delete, or the tombstone of one."""

    key: int
    row: Row | None
    position: tuple[int, int] | None
    leaves_out: bool = False

    @property
    def record(self) -> UpstreamRecord:
        if self.row is None:
            return UpstreamRecord(Change(Op.DELETE, (self.key, None, None), None), (), self.logged)
        row: Row = (self.row[0], self.row[1], None) if self.leaves_out else self.row
        return UpstreamRecord(Change(Op.INSERT, None, row), (NOTE,) if self.leaves_out else (), self.logged)

    @property
    def logged(self) -> LogPosition | None:
        return None if self.position is None else LogPosition(_LOG, self.position)


@dataclass
class Connector:
    """Writes what happens to a small table, and now and then again what it wrote since some moment."""

    chance: random.Random
    rows: dict[int, Row] = field(default_factory=dict)
    events: list[list[Sent]] = field(default_factory=list)
    at: tuple[int, int] = (10, 10)

    def stream(self, events: int) -> Iterator[Sent]:
        for _ in range(self.chance.randrange(3)):
            yield self._upsert(self.chance.randrange(5), None)  # of the snapshot
        for _ in range(events):
            self.events.append(self._event())
            yield from self.events[-1]
            if self.chance.random() < 0.15:
                again = self.events[-self.chance.randint(1, min(6, len(self.events))) :]
                cut = self.chance.randint(1, len(again))
                for event in (*again[:cut], *(again if self.chance.random() < 0.3 else again[cut:])):
                    yield from event

    def _event(self) -> list[Sent]:
        commit, lsn = self.at
        self.at = (
            (commit, lsn + 5) if self.chance.random() < 0.5 else (commit + 7, lsn - self.chance.randrange(4))
        )
        present, absent = sorted(self.rows), sorted(set(range(7)) - self.rows.keys())
        match self.chance.randrange(4):
            case 0 if present:
                return self._delete(self.chance.choice(present))
            case 1 if present and absent:  # a change of key
                return [
                    *self._delete(self.chance.choice(present)),
                    self._upsert(self.chance.choice(absent), self.at),
                ]
            case 2 if len(absent) > 1:  # rows of one COPY
                return [self._upsert(key, self.at) for key in self.chance.sample(absent, 2)]
            case _:
                return [self._upsert(self.chance.randrange(5), self.at)]

    def _delete(self, key: int) -> list[Sent]:
        del self.rows[key]
        return [Sent(key, None, self.at), Sent(key, None, None)]

    def _upsert(self, key: int, position: tuple[int, int] | None) -> Sent:
        old = self.rows.get(key)
        leaves_out = old is not None and position is not None and self.chance.random() < 0.4
        note = old[NOTE] if old is not None and leaves_out else self.chance.choice(["a", "b", None])
        self.rows[key] = (key, self.chance.randrange(3), note)
        return Sent(key, self.rows[key], position, leaves_out)


def changes_of(found: list[tuple[int, Sent]]) -> Changes:
    records = [sent.record for _, sent in found]
    rows = {
        PARTITION: pa.array([0] * len(found), pa.int32()),
        OFFSET: pa.array([offset for offset, _ in found], pa.int64()),
        POSITION: position_column(record.position for record in records),
        UNCHANGED: pa.array([r.unchanged for r in records], pa.list_(pa.int32())),
    }
    made = [record.change for record in records if record.change is not None]
    return columns.changes_of(TABLE, made, pa.table(rows))


Made = list[tuple[int, Op, tuple[object, ...] | None, tuple[object, ...] | None]]


class Lane:
    """Its rows, and what it makes of its part of each batch."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[object, ...]] = {}

    def batch(
        self,
        found: list[tuple[int, Sent]],
        seen: Mapping[int, Seen],
        judgement: Judgement | None,
        chance: random.Random,
    ) -> tuple[Made, dict[int, LaneSeen]]:
        redelivered, made = RedeliveryFilter(seen, judgement), Made()
        while found:
            size = chance.randint(1, len(found))
            part, found = found[:size], found[size:]
            changes = changes_of(part)
            made += self._made(redelivered(changes, changes.encoded_keys(KEYS)))
        return made, redelivered.seen

    def is_in_order(self, found: list[tuple[int, Sent]], seen: Mapping[int, Seen]) -> bool:
        """True if no position falls."""
        changes = changes_of(found)
        try:
            RedeliveryFilter(seen)(changes, changes.encoded_keys(KEYS))
        except UndoneError:
            return False
        return True

    def _made(self, changes: Changes) -> Made:
        if not len(changes):
            return []
        order = KeyOrder.of(changes.encoded_keys(KEYS))
        found = [self.rows.get(key) for key in order.distinct.to_pylist()]
        stored = Stored(
            np.array([row is not None for row in found]),
            columns.columns_of(TABLE.columns, found),
        )
        changes, lacking = with_unchanged(changes, order, stored)
        assert not lacking
        left = written(changes, order)
        self.rows |= dict(
            zip(left.keys.to_pylist(), zip(*(c.to_pylist() for c in left.columns), strict=True), strict=True)
        )
        for key in left.gone.to_pylist():
            self.rows.pop(key, None)
        legal = normalised(changes, order, stored)
        halves = [
            list(zip(*(c.to_pylist() for c in half), strict=True)) for half in (legal.before, legal.after)
        ]
        return [
            (
                int(offset),
                Op(op),
                None if op == Op.INSERT else halves[0][row],
                None if op == Op.DELETE else halves[1][row],
            )
            for row, (offset, op) in enumerate(zip(legal.offsets, legal.ops, strict=True))
        ]


def judged(batch: list[tuple[int, Sent]], seen: Mapping[int, Seen]) -> Judgement:
    judge = Redelivery(seen, lambda fall: False)
    changes = changes_of(batch)
    keys = map(bytes, changes.encoded_keys(KEYS).to_pylist())
    for (offset, sent), key, op in zip(batch, keys, changes.ops.tolist(), strict=True):
        judge.is_new(Logged(0, offset, key, Op(op), sent.logged))
    assert judge.end_interval() is None
    return judge.judgement()


def one_by_one(sent: list[Sent]) -> Made:
    reader, rows, made = InOrder(), dict[int, tuple[object, ...]](), Made()
    for offset, each in enumerate(sent):
        change = reader.take((each.key,), each.record)
        if change is None:
            continue
        before = rows.pop(each.key, None)
        if change.after is not None:
            rows[each.key] = change.after
            made.append((offset, Op.INSERT if before is None else Op.UPDATE, before, change.after))
        elif before is not None:
            made.append((offset, Op.DELETE, before, None))
    return made


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_lanes_make_of_a_stream_what_one_reader_makes_of_it(first: int) -> None:
    dropped = 0
    for seed in range(first, first + examples(100)):
        chance = random.Random(seed)
        connector = Connector(chance)
        sent = list(connector.stream(chance.randint(1, 40)))
        expected = one_by_one(sent)
        lanes, seen, made = [Lane() for _ in range(chance.randint(1, 3))], dict[int, Seen](), Made()
        waiting = list(enumerate(sent))
        while waiting:
            size = chance.randint(1, len(waiting))
            batch, waiting = waiting[:size], waiting[size:]
            shares = [
                [each for each in batch if each[1].key % len(lanes) == number] for number in range(len(lanes))
            ]
            judgement = None
            if not all(lane.is_in_order(share, seen) for lane, share in zip(lanes, shares, strict=True)):
                judgement = judged(batch, seen)
            results = [
                lane.batch(share, seen, judgement, chance) for lane, share in zip(lanes, shares, strict=True)
            ]
            seen = merged(seen, (result for _, result in results))
            made += [change for found, _ in results for change in found]
        assert sorted(made, key=lambda each: each[0]) == expected, seed
        # What came again changed nothing.
        rows = dict[object, object]()
        for _, _, old, new in expected:
            row = new or old
            assert row is not None
            rows[row[0]] = new
        assert {key: row for key, row in rows.items() if row is not None} == connector.rows, seed
        dropped += len(sent) - len(expected)
    assert dropped > 100


def test_a_value_that_is_left_out_of_a_row_that_nobody_has_is_named() -> None:
    changes = changes_of(
        [(3, Sent(1, (1, 0, "a"), (1, 1), leaves_out=True)), (4, Sent(2, (2, 0, "b"), (1, 2)))]
    )
    order = KeyOrder.of(changes.encoded_keys(KEYS))
    nothing = Stored(np.zeros(2, np.bool_), tuple(pa.nulls(2, column.type.arrow) for column in TABLE.columns))
    _, lacking = with_unchanged(changes, order, nothing)
    assert [(each.partition, each.offset, each.column) for each in lacking] == [(0, 3, NOTE)]
    with pytest.raises(LookupError):
        InOrder().take((1,), replace(Sent(1, (1, 0, "a"), None, leaves_out=True)).record)
