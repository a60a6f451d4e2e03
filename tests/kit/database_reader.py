"""Reads a `tests.kit.database.Database` as a service would, by the core, and is judged at every barrier.

What would be in a state outlives a crash: the chunks that a batch knows, the events that wait, the rows, the offsets.
The judge knows nothing of chunks: the row of a key is what the last of its events before the barrier says, or what it
was before all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from schemas.records import Op
from state.values.chunks import Chunk, KeyRange, Streamed, TransactionSnapshot
from state.values.reading import TableRead
from streaming.core.chunk_events import (
    ChunkEvents,
    FoldedRows,
    Transactions,
    Verdict,
    folded,
    verdicts,
    widened_each,
)
from tests.kit.database import NO_VALUE, Connector, Database, Event, Row

KEYS, PARTITIONS = 12, 2
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.string()), ("large", pa.string())])


class UnlawfulError(AssertionError):
    """A barrier tells of a row that is not there, or not of one that is."""


class Selected(NamedTuple):
    """A chunk that is on its way."""

    chunk: Chunk
    rows: dict[int, Row]


@dataclass
class Way:
    """Steps of the reader. Canaries do one of these in another way."""

    verdicts: Callable[[TableRead, int, Sequence[Event]], Sequence[int]] = lambda read, due, events: verdicts(
        read,
        due,
        [pa.array([event.key for event in events], pa.int64())],
        np.array([event.transaction for event in events], dtype=np.int64),
    ).tolist()
    fold: Callable[[pa.Table, ChunkEvents], FoldedRows] = lambda rows, events: folded(rows, events, ["key"])
    widened: Callable[[Transactions, TransactionSnapshot], Transactions] = widened_each
    due: Callable[[TableRead, Sequence[int], Sequence[Streamed]], int] = TableRead.due
    proof: Callable[[Connector], Callable[[], Streamed]] = lambda connector: _proof(connector)
    snapshot_first: bool = True
    """True if a chunk's snapshot is the one of its rows, not a later one."""
    starts_early: bool = True
    """True if events are read from behind those that the first snapshot sees."""
    keeps_waiting: bool = True
    knows_repetitions: bool = True


def _proof(connector: Connector) -> Callable[[], Streamed]:
    lsn = connector.confirmed_lsn
    return lambda: Streamed(lsn, connector.ends)


@dataclass
class Reader:
    """Of one table. Its methods are what may happen; `judge` after each batch."""

    random: Random
    way: Way = field(default_factory=Way)

    def __post_init__(self) -> None:
        self.database = Database(self.random, KEYS, self.random.randint(0, KEYS))
        self.before = dict(self.database.rows)
        self.connector = Connector(self.database, self.random, PARTITIONS)
        for _ in range(self.random.randint(0, 40)):
            self.random.choice([self.database.work, self.connector.send, self.connector.confirm])()
        first = self.database.snapshot()
        bounds = sorted(self.random.sample(range(KEYS), self.random.choice([0, 0, 1, 2])))
        self.read = TableRead.begin(first, [(bound,) for bound in bounds])
        self.offsets = [self._start(events, first) for events in self.connector.topic]
        self.staged: dict[KeyRange, dict[int, Row]] = {}
        self.waiting: list[Event] = []
        self.rows: dict[int, Row] = {}
        self.top: list[tuple[int, int]] = [(-1, -1)] * PARTITIONS
        self.at_top: list[set[tuple[int, bool]]] = [set() for _ in range(PARTITIONS)]
        self.selected: dict[tuple[int, ...] | None, Selected] = {}
        self.known = self.read
        """With chunks that no batch knows yet: a crash forgets them."""
        self.barriers: list[tuple[int, ...]] = []
        """Ends of those that no batch has handled."""
        self.proofs: list[Streamed] = []
        self._half_proof: Callable[[], Streamed] | None = None

    def _start(self, events: Sequence[Event], first: TransactionSnapshot) -> int:
        if self.way.starts_early:
            for offset, event in enumerate(events):
                if not first.sees(event.transaction):
                    return offset
        return len(events)

    # the reader of chunks ----------------------------------------------------------------------------------

    def select(self) -> None:
        """A chunk is read; what it found arrives some time later."""
        idle = [rest for rest in self.known.unread if rest.keys.after not in self.selected]
        if not idle:
            return
        rest = self.random.choice(idle)
        snapshot, rows, after = self.database.snapshot(), self.database.rows, rest.keys.after
        if not self.way.snapshot_first:
            for _ in range(6):
                rows = dict(rows)
                self.database.work()
            snapshot = self.database.snapshot()
        wanted = sorted(key for key in rows if rest.keys.holds((key,)))
        taken, end = wanted[: self.random.randint(1, 4)], rest.keys.upto
        upto = end if len(taken) == len(wanted) else (taken[-1],)
        keys = KeyRange(after, upto)
        chunk = Chunk(keys, snapshot, self.database.written_lsn, len(taken))
        self.selected[after] = Selected(chunk, {key: rows[key] for key in taken})

    def arrive(self) -> None:
        """Stage the rows of a read, for the next batch."""
        if self.selected:
            after = self.random.choice([*self.selected])
            selected = self.selected.pop(after)
            self.known = self.known.read(selected.chunk)
            self.staged[selected.chunk.keys] = selected.rows

    def prove(self) -> None:
        """The slot is asked, and some time later the topic."""
        if self._half_proof is None:
            self._half_proof = self.way.proof(self.connector)
        else:
            self.proofs.append(self._half_proof())
            self._half_proof = None

    def crash(self) -> None:
        """The service dies and starts again."""
        self.selected, self.known = {}, self.read
        self.proofs, self._half_proof = [], None
        known = {chunk.keys for chunk in self.read.chunks}
        self.staged = {keys: rows for keys, rows in self.staged.items() if keys in known}
        if not self.way.keeps_waiting:
            self.waiting = []

    # batches -----------------------------------------------------------------------------------------------

    def barrier(self) -> None:
        """One comes; its batch may be a while behind, and know of chunks and proofs that are younger."""
        self.barriers.append(self.connector.ends)

    def batch(self) -> None:
        """The batch of the next barrier, if there is one."""
        if not self.barriers:
            return
        ends, read = self.barriers.pop(0), self.known
        due = self.way.due(read, ends, self.proofs)
        events = [*self.waiting, *self._new(ends, read.near)]
        found = self.way.verdicts(read, due, events)
        of = {
            each: [e for e, verdict in zip(events, found, strict=True) if verdict == each] for each in Verdict
        }
        for event in of[Verdict.APPLIES]:
            self._apply(event)
        for chunk in read.chunks[:due]:
            mine = [event for event in of[Verdict.FOLDS] if chunk.keys.holds((event.key,))]
            self.rows |= self._folded(self.staged.pop(chunk.keys), mine)
        self.waiting, self.offsets = of[Verdict.WAITS], list(ends)
        self.read = self.known = read.release(due)
        self.judge()

    def _new(self, ends: Sequence[int], near: TransactionSnapshot) -> list[Event]:
        came: list[Event] = []
        for number, events in enumerate(self.connector.topic):
            came += [
                event for event in events[self.offsets[number] : ends[number]] if self._is_new(number, event)
            ]
        given = np.array([event.transaction % (1 << 32) for event in came], dtype=np.int64)
        numbers = self.way.widened(given, near).tolist()
        return [event._replace(transaction=number) for event, number in zip(came, numbers, strict=True)]

    def _is_new(self, partition: int, event: Event) -> bool:
        if not self.way.knows_repetitions:
            return True
        mark = (event.key, event.row is None)
        if event.position > self.top[partition]:
            self.top[partition], self.at_top[partition] = event.position, set()
        elif event.position < self.top[partition] or mark in self.at_top[partition]:
            return False
        self.at_top[partition].add(mark)
        return True

    def _apply(self, event: Event) -> None:
        if event.row is None:
            self.rows.pop(event.key, None)
        else:
            self.rows |= self._folded(
                {key: row for key, row in self.rows.items() if key == event.key}, [event]
            )

    def _folded(self, rows: dict[int, Row], events: Sequence[Event]) -> dict[int, Row]:
        stored = pa.table(
            [list(rows), [row.value for row in rows.values()], [row.large for row in rows.values()]],
            schema=SCHEMA,
        )
        shown = [event.row or Row("", "") for event in events]
        left_out = [index for index, row in enumerate(shown) if row.large == NO_VALUE]
        result = self.way.fold(
            stored,
            ChunkEvents(
                ops=np.array([Op.INSERT if event.row else Op.DELETE for event in events], dtype=np.int8),
                rows=pa.table(
                    [
                        [event.key for event in events],
                        [row.value for row in shown],
                        [None if row.large == NO_VALUE else row.large for row in shown],
                    ],
                    schema=SCHEMA,
                ),
                left_out={2: np.array(left_out, dtype=np.int64)} if left_out else {},
            ),
        )
        if len(result.lacking):
            raise UnlawfulError("a value that is left out of a row that is not there")
        return {row["key"]: Row(row["value"], row["large"]) for row in result.rows.to_pylist()}

    # the judge ---------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Raises: UnlawfulError."""
        released = self.read.released
        expected = dict(self.before)
        for number, events in enumerate(self.connector.topic):
            for event in sorted(events[: self.offsets[number]], key=lambda each: each.position):
                if event.whole is None:
                    expected.pop(event.key, None)
                else:
                    expected[event.key] = event.whole
        wanted = {
            key: row for key, row in expected.items() if released is not None and released.holds((key,))
        }
        if wanted != self.rows:
            raise UnlawfulError(f"{wanted} expected, {self.rows} found, released {released}")

    def finish(self) -> None:
        """Everything comes to its end: the table is released whole, and nothing waits. Raises: UnlawfulError."""
        self.database.settle()
        while self.known.unread:
            self.select()
            self.arrive()
        self.connector.catch_up()
        self._half_proof = None
        self.prove()
        self.prove()
        for _ in range(len(self.known.chunks) + 1):  # a batch may release only some of those that are due
            self.barrier()
        while self.barriers:
            self.batch()
        if not self.read.is_done or self.waiting or self.rows != self.database.rows or self.staged:
            raise UnlawfulError("the end is not the table")


def play(
    seed: int,
    way: Way | None = None,
    reader: Callable[[Random, Way], Reader] = lambda random, way: Reader(random, way),
) -> Reader:
    """One history. Raises: UnlawfulError, IncompatibleChunkError."""
    random = Random(seed)
    return _played(random, reader(random, way or Way()))


def _played(random: Random, reader: Reader) -> Reader:
    database, connector = reader.database, reader.connector
    moves: list[tuple[Callable[[], None], int]] = [
        (database.work, 40),
        (connector.send, 25),
        (connector.confirm, 6),
        (connector.restart, 1),
        (reader.select, 6),
        (reader.arrive, 6),
        (reader.prove, 6),
        (reader.barrier, 6),
        (reader.batch, 6),
        (reader.crash, 1),
    ]
    chosen, weights = zip(*moves, strict=True)
    for move in random.choices(chosen, weights, k=random.randint(30, 300)):
        move()
    reader.finish()
    return reader
