"""An upstream whose records a connector reads from the log of a database, and the database itself, moment by moment.

The database is `tests.kit.database`: transactions side by side, commits in another order than their numbers and their
LSNs, events that are in the topic before any snapshot sees their commit, keys that change, values that are left out.
What happens in it is written beforehand, as the topic is: a reader sees one of its moments. Which, is up to the
history: none before the last barrier that has arrived was written, and never an earlier one than before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from schemas.codec.logs import LogPosition
from schemas.position import Key
from schemas.records import Barrier, Mutation, Row
from schemas.table import TableSchema, declare
from state.values.chunks import EPOCH_BITS, TransactionSnapshot
from tests.kit.database import NO_VALUE, Connector, Database, Event
from tests.kit.database import Row as Stored
from tests.simulation.connector import LOG, ConnectorUpstream, Place

KEYS = 8
_WORK, _SEND, _CONFIRM, _RESTART = 30, 40, 15, 1
"""How often what happens, of all that does."""


class Moment(NamedTuple):
    """The view of a session of the database, with the slot's and the topic's at the same time.

    `ends` are behind the last record of each partition.
    """

    snapshot: TransactionSnapshot
    rows: dict[Key, Row]
    written_lsn: int
    confirmed_lsn: int
    ends: tuple[int, ...]


@dataclass(frozen=True)
class Timeline:
    """All moments, and the one at which each barrier is written.

    `bounds` cut the keys into ranges that are read side by side. With a `pace` no key is read before so many
    barriers have come as it goes into the key; else chunks are read at any moment.
    """

    moments: Sequence[Moment]
    barriers: Sequence[int]
    bounds: tuple[Key, ...] = ()
    pace: int | None = None
    goes_on: bool = True
    """Whether the database may be ahead of what arrives."""


def table_of_database(vnode_count: int) -> TableSchema:
    """`value` never comes twice; `large` is left out where it did not change."""
    columns = {"id": "bigint", "n": "int", "value": "string", "large": "string"}
    return declare({"name": "t", "columns": columns, "primary_key": ["id"], "vnode_count": vnode_count})


class DatabaseUpstream(ConnectorUpstream):
    """Let time pass with `live`, and the start of the reading be at one moment with `begin`, before the first barrier.

    `begins` are the offsets from which on the topic is read, `content` the table as of these.
    """

    def __init__(
        self,
        table: TableSchema,
        partitions: int,
        chance: Random,
        *,
        bounds: Sequence[Key] = (),
        pace: int | None = None,
        tombstones: bool = True,
        is_empty: bool = False,
    ) -> None:
        super().__init__(table, partitions, chance, without=0, tombstones=tombstones)
        self._database = Database(chance, KEYS, 0 if is_empty else chance.randint(0, KEYS))
        self._connector = Connector(self._database, chance, partitions)
        self.rows = self._as_rows()
        self._before = dict(self.rows)
        self._sent: dict[Event, list[int]] = {}
        self._history: list[tuple[Place, Key, Row | None]] = []
        self._mirrored, self._ends = [0] * partitions, [0] * partitions
        self._moments: list[Moment] = []
        self._barriers: list[int] = []
        self._bounds, self._pace = tuple(bounds), pace
        self.begins: tuple[int, ...] = (0,) * partitions

    def home(self, key: Key) -> int:
        return int(key[0]) % len(self.topic.partitions)

    @property
    def timeline(self) -> Timeline:
        """Of what has happened since `begin`."""
        return Timeline(self._moments, self._barriers, self._bounds, self._pace)

    @property
    def content(self) -> tuple[Row, ...]:
        """The rows that the records before `begins` amount to."""
        rows = dict(self._before)
        for (number, offset), key, after in self._history:
            if offset < self.begins[number]:
                rows.pop(key, None)
                if after is not None:
                    rows[key] = after
        return tuple(rows.values())

    @property
    def commits(self) -> dict[int, int]:
        """The LSN of each commit, by what events tell of its transaction's number."""
        return {each.number % (1 << EPOCH_BITS): each.committed_lsn or 0 for each in self._database.log}

    # what happens ------------------------------------------------------------------------------------------

    def live(self, moves: int) -> None:
        """So many things happen, anywhere."""
        database, connector = self._database, self._connector
        choices = [database.work, connector.send, connector.confirm, connector.restart]
        for move in self._chance.choices(choices, (_WORK, _SEND, _CONFIRM, _RESTART), k=moves):
            move()
            self.passes()

    def settle(self) -> None:
        """Every transaction comes to its end, and the connector has sent and confirmed all of them."""
        self._database.settle()
        self._connector.catch_up()
        self.passes()

    def begin(self) -> None:
        """Decide where the topic is read from: before the first event that a snapshot does not see now."""
        first = self._database.snapshot()
        unseen = [
            (self.home((event.key,)), offsets[0])
            for event, offsets in self._sent.items()
            if not first.sees(event.transaction)
        ]
        self.begins = tuple(
            min((offset for partition, offset in unseen if partition == number), default=end)
            for number, end in enumerate(self._ends)
        )
        self._moments = [self._moment()]

    def barrier(self, mutation: Mutation | None = None) -> Barrier:
        self._barriers.append(len(self._moments) - 1)
        return super().barrier(mutation)

    def spoil(self, number: int, value: bytes) -> Place:
        """Put a record with this value, which no connector has sent, into a partition. Returns its place."""
        self.topic.append(number, self._keys.encode((KEYS,)), value)
        self._ends[number] = self.topic.partitions[number][-1].offset + 1
        return self._last(number)

    def passes(self) -> None:
        """Put the sent events into the topic, and begin another moment."""
        for number, events in enumerate(self._connector.topic):
            for event in events[self._mirrored[number] :]:
                self._receive(number, event)
            self._mirrored[number] = len(events)
        self._moments.append(self._moment())

    def _moment(self) -> Moment:
        database, rows = self._database, self._as_rows()
        confirmed = self._connector.confirmed_lsn
        return Moment(database.snapshot(), rows, database.written_lsn, confirmed, tuple(self._ends))

    def _receive(self, number: int, event: Event) -> None:
        """An event in the topic, maybe once more."""
        if event in self._sent:
            for offset in self._sent[event]:
                self._repeat(number, offset)
        else:
            row = None if event.whole is None else self.as_row(event.key, event.whole)
            if row is None:
                self.delete(event.key)
            else:
                self.put(row)
            self._sent[event] = self._events[number][-1]
            place = number, self._sent[event][0]
            self.positions[place] = LogPosition(LOG, event.position)
            self.transactions[place] = event.transaction % (1 << EPOCH_BITS)
            if event.row is not None and event.row.large == NO_VALUE:
                self.without.add(place)
            self._history.append((place, (event.key,), row))
        self._ends[number] = self.topic.partitions[number][-1].offset + 1

    def as_row(self, key: int, stored: Stored) -> Row:
        """A stored row with the columns of the table."""
        return key, int(stored.value[1:]) % 3, stored.value, stored.large

    def _as_rows(self) -> dict[Key, Row]:
        return {(key,): self.as_row(key, row) for key, row in self._database.rows.items()}
