"""A database as small as one can be that has what matters to a reader beside it: PostgreSQL's order of things.

Transactions run side by side and wait for each other's rows. A commit is in the log a while before it is seen. The log
has commits in order, read by a connector that sends each event to the partition of its key, confirms what it has
sent some time later, and begins again behind that when it is started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from state.values.chunks import TransactionSnapshot

FIRST_TRANSACTION = (1 << 32) - 12
"""The lower half of the numbers runs over soon."""
NO_VALUE = "(left out)"


class Row(NamedTuple):
    """`large` is a column whose value events leave out where it was not changed."""

    value: str
    large: str


class Event(NamedTuple):
    """`row` None: a delete. `whole` is the whole row behind it, for a judge."""

    key: int
    row: Row | None
    transaction: int
    position: tuple[int, int]
    whole: Row | None


@dataclass
class Transaction:
    """It holds the rows that it has written until it ends."""

    number: int
    rows: dict[int, Row | None] = field(default_factory=dict)
    events: list[tuple[int, Row | None, int, Row | None]] = field(default_factory=list)
    committed_lsn: int | None = None


class Database:
    """`rows` is what a snapshot taken now sees."""

    def __init__(self, random: Random, keys: int, rows: int) -> None:
        self._random, self._keys = random, keys
        self._lsn, self._values = 1000, 0
        self._next = FIRST_TRANSACTION
        self._latest_over = FIRST_TRANSACTION - 1
        self._running: dict[int, Transaction] = {}
        self.rows = {key: self._row(None) for key in random.sample(range(keys), rows)}
        self.log: list[Transaction] = []
        """Of commits, in their order."""

    @property
    def written_lsn(self) -> int:
        return self._lsn

    def snapshot(self) -> TransactionSnapshot:
        xmax = self._latest_over + 1
        running = tuple(sorted(number for number in self._running if number < xmax))
        return TransactionSnapshot(running[0] if running else xmax, xmax, running)

    def work(self) -> None:
        """Something happens."""
        open_ = [each for each in self._running.values() if each.committed_lsn is None]
        choice = self._random.random()
        if choice < 0.25 and len(self._running) < 4:
            self.begin()
        elif choice < 0.65 and open_:
            self._write(self._random.choice(open_))
        elif choice < 0.8 and open_:
            self.log_commit(self._random.choice(open_))
        elif choice < 0.83 and open_:
            self._end(self._random.choice(open_))
        elif self._running:
            self.finish(self._random.choice([*self._running.values()]))

    def settle(self) -> None:
        """Nothing runs any more."""
        for each in [*self._running.values()]:
            if each.committed_lsn is None:
                self.log_commit(each)
            self.finish(each)

    def begin(self) -> Transaction:
        """The next one. It is open."""
        self._running[self._next] = begun = Transaction(self._next)
        self._next += 1
        return begun

    def log_commit(self, transaction: Transaction) -> None:
        """Its commit is in the log, for the connector to read; no snapshot sees it before `finish`."""
        transaction.committed_lsn = self._write_log()
        self.log.append(transaction)

    def finish(self, transaction: Transaction) -> None:
        """Commit: its changes are seen from now on, and its rows are free."""
        if transaction.committed_lsn is None:
            return
        for key, row in transaction.rows.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        del self._running[transaction.number]
        self._latest_over = max(self._latest_over, transaction.number)

    def _write(self, transaction: Transaction) -> None:
        free = [key for key in range(self._keys) if not self.is_taken(key, transaction)]
        if not free:
            return
        key = self._random.choice(free)
        before = self.row_in(transaction, key)
        choice = self._random.random()
        if before is None:
            self.change(transaction, key, self._row(None))
        elif choice < 0.5:
            self.change(transaction, key, self._row(before))
        elif choice < 0.75:
            self.change(transaction, key, None)
        else:
            others = [other for other in free if self.row_in(transaction, other) is None]
            if others:  # the row gets another key
                self.change(transaction, key, None)
                self.change(transaction, self._random.choice(others), self._row(None), moves=False)

    def is_taken(self, key: int, waiting: Transaction) -> bool:
        """True if a transaction has to wait for another one to write this row."""
        return any(key in each.rows for each in self._running.values() if each is not waiting)

    def row_in(self, transaction: Transaction, key: int) -> Row | None:
        """The table as a transaction sees it."""
        return transaction.rows[key] if key in transaction.rows else self.rows.get(key)

    def change(self, transaction: Transaction, key: int, row: Row | None, *, moves: bool = True) -> None:
        """Write a row that is not taken; None deletes it.

        A row gets another key by a delete and, without `moves`, an insert: two events at one place of the log.
        """
        before = self.row_in(transaction, key)
        lsn = self._write_log() if moves else self._lsn
        left_out = row is not None and before is not None and row.large == before.large
        shown = row._replace(large=NO_VALUE) if row is not None and left_out else row
        transaction.rows[key] = row
        transaction.events.append((key, shown, lsn, row))

    def _row(self, before: Row | None) -> Row:
        self._values += 1
        keeps = before is not None and self._random.random() < 0.6
        return Row(f"v{self._values}", before.large if before and keeps else f"l{self._values}")

    def _write_log(self) -> int:
        self._lsn += self._random.randint(1, 3)
        return self._lsn


@dataclass
class Connector:
    """`topic[p]` holds the events of partition p; `confirmed_lsn` is what the slot says."""

    database: Database
    random: Random
    partitions: int
    topic: list[list[Event]] = field(init=False)
    confirmed_lsn: int = 0
    _confirmed: int = 0
    """Of the log's transactions, how many are never sent again."""
    _sent: int = 0
    _left: Iterator[Event] | None = None

    def __post_init__(self) -> None:
        self.topic = [[] for _ in range(self.partitions)]

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(len(events) for events in self.topic)

    def send(self) -> None:
        """The next event, if there is one."""
        while self._left is not None or self._sent < len(self.database.log):
            if self._left is None:
                self._left = self._events(self._sent)
            event = next(self._left, None)
            if event is not None:
                self.topic[event.key % self.partitions].append(event)
                return
            self._left, self._sent = None, self._sent + 1

    def confirm(self) -> None:
        """Acknowledge all that was sent; the slot moves."""
        if self._sent > self._confirmed:
            self._confirmed = self.random.randint(self._confirmed + 1, self._sent)
            self.confirmed_lsn = self.database.log[self._confirmed - 1].committed_lsn or 0
        if self._left is None and self._sent == len(self.database.log) == self._confirmed:
            self.confirmed_lsn = self.database.written_lsn  # a heartbeat

    def restart(self) -> None:
        self._sent, self._left = self._confirmed, None

    def send_all(self) -> None:
        """All of the log."""
        while self._left is not None or self._sent < len(self.database.log):
            self.send()

    def confirm_all(self) -> None:
        """The end of all that was sent; if that is all of the log, the log's end, as by a heartbeat."""
        log = self.database.log
        if self._left is None and self._sent == len(log):
            self.confirmed_lsn = self.database.written_lsn
        elif self._sent > self._confirmed:
            self.confirmed_lsn = log[self._sent - 1].committed_lsn or 0
        self._confirmed = self._sent

    def catch_up(self) -> None:
        """All of the log is sent and confirmed."""
        self.send_all()
        self.confirm_all()

    def _events(self, place: int) -> Iterator[Event]:
        log = self.database.log
        last = (log[place - 1].committed_lsn or 0) if place else 0
        for key, row, lsn, whole in log[place].events:
            yield Event(key, row, log[place].number, (last, lsn), whole)
