"""Random clean histories: an upstream and the output that the law wants, made the slow and obvious way.

Everything is typed rows in dictionaries, and each interval looks at every key: nothing is incremental and
nothing is bytes until the very end. The law is written here straight from docs/contract.md#the-law.
"""

from __future__ import annotations

import datetime as dt
import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from schemas.kinds.projection import OutputColumn, key_of, plain
from schemas.position import Key, position_to_text
from schemas.records import Barrier, BarrierKind, Change, Op, Row, VnodeProgress
from schemas.table import TableSchema, declare
from streaming.verify.records.keys import VnodeOf
from streaming.verify.records.rows import RowCondition
from tests.kit import masks

KEY_DOMAINS: dict[str, list[Any]] = {
    "boolean": [False, True],
    "int": [-(2**31), -5, 0, 1, 7, 2**31 - 1],
    "bigint": [-(2**63), -1, 0, 3, 200, 2**40],
    "string": ["", "a", "ab", "ä", "\uffff", "\U0001f600"],  # UTF-8 and UTF-16 order the last two differently
    "decimal(5,2)": [Decimal(text) for text in ("-3.10", "0.00", "0.01", "12.00", "100.50")],
    "decimal(30,4)": [Decimal(text) for text in ("-12345678901234567890.0001", "0.0000", "1.5000", "9.0000")],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 1, 31), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(year, 3, 4, 5, 6, 7, 8, dt.UTC) for year in (1955, 1970, 2026)],
}
VALUE_DOMAINS: dict[str, list[Any]] = {
    **KEY_DOMAINS,
    "float": [0.0, -0.0, 1.5, float("inf"), float("nan")],
    "double": [0.0, -0.0, 0.1, float("-inf"), float("nan")],
    "binary": [b"", b"\x00", b"\xff" * 200],
}
MOST_KEYS = 40
FIRST_EPOCH = 1 << 40


@dataclass(frozen=True)
class Item:
    """One record. `source` is the upstream change behind an output record, None for a snapshot row.

    `key` is the row's primary key, `sent_key` the record's where the job has another one.
    """

    key: Key | None = None
    change: Change | None = None
    barrier: Barrier | None = None
    source: Change | None = None
    sent_key: Key | None = None


@dataclass(frozen=True)
class Step:
    """One interval of the upstream, by partition, and the barrier that closes it."""

    barrier: Barrier
    partitions: list[list[Item]]


@dataclass
class History:
    table: TableSchema
    columns: tuple[OutputColumn, ...]
    condition: RowCondition | None
    steps: list[Step]
    output: list[list[Item]]
    keys: list[Key]
    positions: dict[int, dict[int, tuple[Key | None, bool]]] = field(default_factory=dict)
    """By barrier, then vnode: position and whether finished."""
    from_now: bool = False
    key: tuple[str, ...] = ()
    """The columns of records' keys, if it is not the primary key alone."""

    def show(self, row: Row | None) -> Row | None:
        if row is None:
            return None
        by_name = dict(zip(self.table.column_names, row, strict=True))
        if (
            self.condition
            and self.condition.test(tuple(by_name[name] for name in self.condition.columns)) is not True
        ):
            return None
        return self.projected(row)

    def projected(self, row: Row) -> Row:
        """The row in the job's columns, whatever the filter says."""
        by_name = dict(zip(self.table.column_names, row, strict=True))
        return tuple(masks.shown(column, by_name[column.source]) for column in self.columns)

    def items(
        self, key: Key, before: Row | None, after: Row | None, source: Change | None = None
    ) -> list[Item]:
        """The records of a change of one key from one row of the table to another."""
        change = visible(self.show(before), self.show(after))
        if change is None:
            return []
        if not self.key:
            return [Item(key, change, source=source)]
        old, new = (None if row is None else self.sent_key(row) for row in (before, after))
        if change.op is Op.UPDATE and old != new:
            return [
                Item(key, Change(Op.DELETE, change.before, None), source=source, sent_key=old),
                Item(key, Change(Op.INSERT, None, change.after), source=source, sent_key=new),
            ]
        return [Item(key, change, source=source, sent_key=old if change.op is Op.DELETE else new)]

    def sent_key(self, row: Row) -> Key:
        """The key of the records of a row."""
        by_name = dict(zip(self.table.column_names, row, strict=True))
        return tuple(masks.shown(column, by_name[column.source]) for column in key_of(self.columns, self.key))

    def vnode(self, key: Key) -> int:
        return VnodeOf(self.table)(key)

    def home(self, key: Key) -> int:
        return self.vnode(key) * len(self.output) // self.table.vnode_count

    def covers(self, barrier: int, key: Key) -> bool:
        position, finished = self.positions[barrier].get(self.vnode(key), (None, False))
        return finished or (position is not None and ordered(key) <= ordered(position))

    def tables(self) -> Iterator[tuple[int, dict[Key, Row]]]:
        """U(b) for every upstream barrier."""
        table: dict[Key, Row] = {}
        for step in self.steps:
            for item in (item for partition in step.partitions for item in partition):
                assert item.key is not None
                assert item.change is not None
                fold(table, item.key, item.change)
            yield step.barrier.curr, dict(table)


def ordered(key: Key) -> tuple[Any, ...]:
    return tuple(value.encode() if isinstance(value, str) else value for value in key)


def fold(table: dict[Key, Row], key: Key, change: Change) -> None:
    if change.after is None:
        del table[key]
    else:
        table[key] = change.after


def clean_history(rng: random.Random, *, from_now: bool = False) -> History:
    """A random table, a legal changelog of it, and the output of a random job on it, which may begin now."""
    table = _table(rng)
    keys = _keys(table, rng)
    steps = _upstream(table, keys, rng)
    columns = plain(table.column_names)
    if rng.random() >= 0.4:
        columns = masks.projected(_some(table.column_names, rng), table, rng)
    condition = None
    if rng.random() < 0.5:
        least = rng.choice([0, 1, 2])
        condition = RowCondition(("n",), lambda row: None if row[0] is None else row[0] >= least)
    partitions = rng.choice([count for count in (1, 2, 3, 5) if count <= table.vnode_count])
    output: list[list[Item]] = [[] for _ in range(partitions)]
    key = masks.another_key(columns, table, rng) if rng.random() < 0.4 else ()
    history = History(table, columns, condition, steps, output, keys, from_now=from_now, key=key)
    _backfill(history, rng)
    return history


def _some(names: Sequence[str], rng: random.Random) -> tuple[str, ...]:
    return tuple(rng.sample(names, rng.randint(1, len(names))))


def _table(rng: random.Random) -> TableSchema:
    key_types = [rng.choice(list(KEY_DOMAINS)) for _ in range(rng.choice([1, 1, 2, 3]))]
    key = {f"k{index}": kind for index, kind in enumerate(key_types)}
    others = {"n": "int", "v": rng.choice(list(VALUE_DOMAINS))}
    columns = list((key | others).items())
    rng.shuffle(columns)
    primary_key = list(key)
    rng.shuffle(primary_key)
    declaration = {
        "name": "t",
        "columns": dict(columns),
        "primary_key": primary_key,
        "distribution_key": list(_some(primary_key, rng)),
        "vnode_count": rng.choice([2, 3, 8]),
    }
    return declare(declaration)


def _keys(table: TableSchema, rng: random.Random) -> list[Key]:
    domains = [KEY_DOMAINS[str(column.type)] for column in table.key_columns]
    keys = {tuple(rng.choice(domain) for domain in domains) for _ in range(MOST_KEYS)}
    return sorted(keys, key=ordered)


def _row(table: TableSchema, key: Key, rng: random.Random) -> Row:
    values = dict(zip(table.primary_key, key, strict=True))
    values["n"] = rng.choice([None, 0, 1, 2, 3])
    values["v"] = rng.choice([None, *VALUE_DOMAINS[str(table.by_name["v"].type)]])
    return tuple(values[name] for name in table.column_names)


def _upstream(table: TableSchema, keys: list[Key], rng: random.Random) -> list[Step]:
    count = rng.choice([1, 2, 4])
    live: dict[Key, Row] = {}
    steps: list[Step] = []
    prev = 0
    for number in range(rng.randint(2, 9)):
        partitions: list[list[Item]] = [[] for _ in range(count)]
        for _ in range(rng.choice([0, 1, 5, 20, 60])):
            key = rng.choice(keys)
            change = _change(table, key, live.get(key), rng)
            fold(live, key, change)
            partitions[zlib.crc32(repr(key).encode()) % count].append(Item(key, change))
        curr = (prev or FIRST_EPOCH) + rng.randint(1, 5) * 65536
        kind = (
            BarrierKind.INITIAL if number == 0 else rng.choice([BarrierKind.BARRIER, BarrierKind.CHECKPOINT])
        )
        steps.append(Step(Barrier(curr, prev, kind, count, 1_800_000_000_000), partitions))
        prev = curr
    return steps


def _change(table: TableSchema, key: Key, row: Row | None, rng: random.Random) -> Change:
    if row is None:
        return Change(Op.INSERT, None, _row(table, key, rng))
    if rng.random() < 0.4:
        return Change(Op.DELETE, row, None)
    return Change(Op.UPDATE, row, _row(table, key, rng))


def _backfill(history: History, rng: random.Random) -> None:
    tables = dict(history.tables())
    start = rng.randrange(len(history.steps))
    until = rng.randint(start, len(history.steps) - 1) if rng.random() < 0.3 else len(history.steps) - 1
    published: dict[int, VnodeProgress] = {}
    for number in range(start, until + 1):
        step = history.steps[number]
        progress: list[VnodeProgress] = []
        if number == start:
            vnodes = range(history.table.vnode_count) if history.from_now else ()
            first = history.positions[step.barrier.curr] = dict.fromkeys(vnodes, (None, True))
            progress = _progress(first, {}, {}, published)
        else:
            before = history.steps[number - 1].barrier.curr
            progress = _interval(history, step, before, tables[before], published, rng)
        for partition, records in enumerate(history.output):
            own = [
                p for p in progress if p.vnode * len(history.output) // history.table.vnode_count == partition
            ]
            barrier = replace(step.barrier, partitions=len(history.output), progress=tuple(own))
            records.append(Item(barrier=barrier))


def _interval(
    history: History,
    step: Step,
    before: int,
    table: dict[Key, Row],
    published: dict[int, VnodeProgress],
    rng: random.Random,
) -> list[VnodeProgress]:
    """Write one interval after the start; `before` and `table` are a and U(a)."""
    old = history.positions[before]
    new = history.positions[step.barrier.curr] = _moved(history, old, rng)
    records: dict[Key, list[Item]] = {}
    read: dict[int, int] = {}
    for key, row in table.items():
        if history.covers(step.barrier.curr, key) and not history.covers(before, key):
            read[history.vnode(key)] = read.get(history.vnode(key), 0) + 1
            if items := history.items(key, None, row):
                records[key] = items
    for item in (item for partition in step.partitions for item in partition):
        assert item.key is not None
        assert item.change is not None
        if history.covers(step.barrier.curr, item.key):
            change = item.change
            items = history.items(item.key, change.before, change.after, change)
            records.setdefault(item.key, []).extend(items)
    for item in _shuffled(list(records.values()), rng):
        assert item.key is not None
        history.output[history.home(item.key)].append(item)
    return _progress(new, old, read, published)


def visible(before: Row | None, after: Row | None) -> Change | None:
    if before is None and after is None:
        return None
    if before is None:
        return Change(Op.INSERT, None, after)
    return Change(Op.DELETE, before, None) if after is None else Change(Op.UPDATE, before, after)


def _moved(
    history: History, old: dict[int, tuple[Key | None, bool]], rng: random.Random
) -> dict[int, tuple[Key | None, bool]]:
    new = dict(old)
    for vnode in range(history.table.vnode_count):
        position, finished = old.get(vnode, (None, False))
        choice = rng.random()
        higher = [key for key in history.keys if position is None or ordered(key) > ordered(position)]
        if finished or choice < 0.4:
            continue
        if choice < 0.8 and higher:
            new[vnode] = rng.choice(higher[:8]), False  # any key is a bound, of any vnode, live or not
        elif choice > 0.8:
            new[vnode] = position, True
    return new


def _progress(
    new: dict[int, tuple[Key | None, bool]],
    old: dict[int, tuple[Key | None, bool]],
    read: dict[int, int],
    published: dict[int, VnodeProgress],
) -> list[VnodeProgress]:
    progress = []
    for vnode, (position, finished) in sorted(new.items()):
        if old.get(vnode) != (position, finished):
            rows = (published[vnode].row_count if vnode in published else 0) + read.get(vnode, 0)
            text = None if position is None else position_to_text(position)
            published[vnode] = VnodeProgress(vnode, text, finished, rows)
            progress.append(published[vnode])
    return progress


def _shuffled(queues: list[list[Item]], rng: random.Random) -> Iterator[Item]:
    """All items; those of one queue stay in order."""
    turns = [queue for queue in queues for _ in queue]
    rng.shuffle(turns)
    taken = {id(queue): iter(queue) for queue in queues}
    for queue in turns:
        yield next(taken[id(queue)])
