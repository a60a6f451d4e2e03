"""The database of a scenario whose table is read from it, and its readers.

Nothing happens by itself: statements, the connector, the slot and reads of chunks come when a line says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from schemas.position import Key, order_key
from schemas.records import Row
from schemas.table import TableSchema
from state.values.chunks import KeyRange
from tests.kit.database import Row as Stored
from tests.kit.database import Transaction
from tests.simulation.database import DatabaseUpstream, Timeline
from tests.simulation.table_reader import Selected, TableReader


def is_within(upto: Key | None, keys: KeyRange) -> bool:
    """True if a chunk up to a key, None for the end of the table, is one of some keys."""
    return keys.upto is None if upto is None else keys.holds(upto)


@dataclass
class WrittenChunk:
    """`upto` is the upper end of its keys, None for the end of the table.

    `selected` is the moment of its rows, or a later one if what was read is lost; from `finished` on its reader has it.
    """

    upto: Key | None
    selected: int
    finished: int | None = None


@dataclass(frozen=True)
class ScriptedTimeline(Timeline):
    """The chunks of each range in key order."""

    goes_on: bool = False
    chunks: Sequence[WrittenChunk] = ()

    def chunk_of(self, keys: KeyRange) -> WrittenChunk:
        """The first chunk of keys that are to be read, which are the rest of a range."""
        return next(chunk for chunk in self.chunks if is_within(chunk.upto, keys))


class ScriptedReader(TableReader):
    """Reads the chunks of a script."""

    def may_read(self, keys: KeyRange) -> Callable[[], bool]:
        return lambda: self.closed or self.arrivals.moment >= self._chunk(keys).selected

    def select(self, keys: KeyRange) -> Selected:
        keys, moment = KeyRange(keys.after, self._chunk(keys).upto), self.now
        rows = sorted((key for key in moment.rows if keys.holds(key)), key=order_key)
        return Selected(keys, moment, tuple(moment.rows[key] for key in rows))

    def stage(self, selected: Selected) -> tuple[str, ...]:
        finished = self._chunk(selected.keys).finished
        assert finished is not None, "a chunk without an end"
        self.wait("read on", lambda: self.closed or self.arrivals.moment >= finished)
        return super().stage(selected)

    def _chunk(self, keys: KeyRange) -> WrittenChunk:
        assert isinstance(self.timeline, ScriptedTimeline)
        return self.timeline.chunk_of(keys)


class ScriptedDatabase(DatabaseUpstream):
    """Whose table has a key and a value `v`, which events leave out where it did not change."""

    def __init__(self, table: TableSchema, partitions: int) -> None:
        super().__init__(table, partitions, Random(0), is_empty=True)
        self.has_begun = False
        self.ranges: list[KeyRange] = []
        """Those that are read side by side."""
        self.chunks: list[WrittenChunk] = []
        self._open: dict[str, Transaction] = {}

    @property
    def timeline(self) -> ScriptedTimeline:
        return ScriptedTimeline(self._moments, self._barriers, self._bounds, chunks=self.chunks)

    @property
    def newest(self) -> int:
        """The moment that it is now."""
        return len(self._moments) - 1

    def begin(self) -> None:
        super().begin()
        self.has_begun = True

    def divide(self, bounds: Sequence[Key]) -> None:
        """Have the keys up to each bound, and those behind the last one, read by a reader of their own."""
        self._bounds = tuple(bounds)
        self.ranges = [KeyRange(*ends) for ends in pairwise([None, *bounds, None])]

    def as_row(self, key: int, stored: Stored) -> Row:
        return key, stored.large

    # statements --------------------------------------------------------------------------------------------

    def transaction(self, name: str | None) -> Transaction:
        """The one that is open under a name, or a new one."""
        if name is None:
            return self._database.begin()
        if name not in self._open:
            self._open[name] = self._database.begin()
        return self._open[name]

    def row_of(self, key: int, transaction: Transaction) -> str | None:
        """The value that a transaction sees; None without a row."""
        row = self._database.row_in(transaction, key)
        return None if row is None else row.large

    def is_taken(self, key: int, transaction: Transaction) -> bool:
        """True if a statement of this transaction has to wait for another one."""
        return self._database.is_taken(key, transaction)

    def change(self, key: int, value: str | None, transaction: Transaction, *, moves: bool = True) -> None:
        """A row that is not taken gets a value, or goes; without `moves` at the place of the change before."""
        row = None if value is None else Stored("", value)
        self._database.change(transaction, key, row, moves=moves)

    def end(self, transaction: Transaction) -> None:
        """Commit it."""
        self._open = {name: each for name, each in self._open.items() if each is not transaction}
        self._database.log_commit(transaction)
        self._database.finish(transaction)
        self.passes()

    def commit(self, name: str) -> bool:
        """False if none is open under this name."""
        if name not in self._open:
            return False
        self.end(self._open[name])
        return True

    # the connector and the reader --------------------------------------------------------------------------

    def send(self, events: int | None = None) -> None:
        """So many events that are committed and were not sent, None for all of them."""
        if events is None:
            self._connector.send_all()
        for _ in range(events or 0):
            self._connector.send()
        self.passes()

    def restart_connector(self) -> None:
        """It goes on behind what was confirmed."""
        self._connector.restart()
        self.passes()

    def confirm(self) -> None:
        """Confirm all that was sent."""
        self._connector.confirm_all()
        self.passes()

    def range_of(self, upto: Key | None) -> KeyRange:
        """The range in which a chunk ends."""
        return next(keys for keys in self.ranges if is_within(upto, keys))

    def chunk_before(self, upto: Key | None) -> WrittenChunk | None:
        """The newest chunk of the range in which a chunk ends."""
        keys = self.range_of(upto)
        return next((chunk for chunk in reversed(self.chunks) if is_within(chunk.upto, keys)), None)

    def select(self, upto: Key | None) -> None:
        """The rows behind the chunk before it in its range, up to a key, are selected."""
        self.passes()
        self.chunks.append(WrittenChunk(upto, self.newest))

    def finish(self, chunk: WrittenChunk) -> None:
        """It has come to the service."""
        self.passes()
        chunk.finished = self.newest

    def finish_reading(self) -> None:
        """Read the rest of each range as its last chunk."""
        for keys in self.ranges:
            last = self.chunk_before(keys.upto)
            if last is not None and last.finished is None:
                self.finish(last)
            if last is None or last.upto != keys.upto:
                self.select(keys.upto)
                self.finish(self.chunks[-1])
