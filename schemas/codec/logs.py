"""Positions of changes in the logs of databases: which log an event is from, and what orders the events of one log.

Two positions can be compared only within one log. A table of connectors says what names a log and what orders it, from
the fields of an event's `source`; events of other connectors are not compared. An event whose fields are missing, or of
another type than its connector writes, isn't either.

Source: https://debezium.io/documentation/reference/stable/connectors/index.html, "source" of each connector's events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

Position = tuple[int, ...]
"""Numbers that order the changes of one log; `LogId.width` of them."""

TEXTS: Final = (
    *("connector", "name", "db", "snapshot", "sequence"),
    *("file", "gtid", "commit_lsn", "change_lsn"),
)
NUMBERS: Final = "lsn", "pos", "row", "server_id", "event_serial_no", "ts_ms"
"""The fields of a source that are read."""

POSTGRESQL: Final = "postgresql"
MYSQL: Final = "mysql"
"""MariaDB's connector included."""
SQLSERVER: Final = "sqlserver"
CONNECTORS: Final = {POSTGRESQL: POSTGRESQL, MYSQL: MYSQL, "mariadb": MYSQL, SQLSERVER: SQLSERVER}
"""The connectors whose positions are compared, and whose logs those are."""

_OF_FAMILY: Final = {
    POSTGRESQL: frozenset(("sequence", "lsn")),
    MYSQL: frozenset(("file", "gtid", "pos", "row", "server_id")),
    SQLSERVER: frozenset(("commit_lsn", "change_lsn", "event_serial_no")),
}
"""The fields, of TEXTS and NUMBERS, from which positions of one kind alone are made."""

STREAMED: Final = "false"
INCREMENTAL: Final = "incremental"
"""A snapshot that is read during the stream: its rows have the position of some change, and are not compared."""

MAX_WIDTH: Final = 5
LONG_MAX: Final = 2**63 - 1


class LogId(NamedTuple):
    """The identity of a log. `db` is None where one log holds several databases.

    `origin` is the source of the GTIDs as text, or the number of the server where there are none; None where name and
    database are enough.
    """

    connector: str
    name: str
    db: str | None = None
    origin: str | int | None = None

    @property
    def has_gtids(self) -> bool:
        """True if the first number of a position is that of a GTID."""
        return isinstance(self.origin, str)

    @property
    def width(self) -> int:
        """The number of numbers in a position."""
        if self.connector == MYSQL:
            return 4 if self.has_gtids else 3
        return MAX_WIDTH if self.connector == SQLSERVER else 2

    def __str__(self) -> str:
        parts = (self.name, self.db, None if self.origin is None else str(self.origin))
        return f"{self.connector} {'/'.join(part for part in parts if part is not None)}"

    def is_lower(self, position: Position, highest: Position) -> bool:
        """True if a position of this log lies below the highest one.

        With GTIDs number and offset in the file both have to be lower: a replica keeps the numbers of the server
        that a transaction began at, at offsets of its own, and servers of one cluster take numbers from blocks.
        """
        if self.has_gtids:
            return position[0] < highest[0] and position[1:] < highest[1:]
        return position < highest


class LogPosition(NamedTuple):
    """The location of an event in a log. `position` is None for a row of a snapshot, which covers logs by its name.

    `ts_ms` is when the database made the change, by its own clock; None where the event doesn't say it.
    """

    log: LogId
    position: Position | None = None
    ts_ms: int | None = None


def fields_of_others(connectors: Iterable[str | None]) -> frozenset[str]:
    """The fields of sources from which no position of these connectors is made."""
    families = {CONNECTORS.get(each or "") for each in connectors}
    others = (fields for family, fields in _OF_FAMILY.items() if family not in families)
    return frozenset[str]().union(*others)


def is_of_snapshot(row: LogId, log: LogId) -> bool:
    """True if a snapshot row with the id `row` covers `log`."""
    return row.name == log.name and (log.db is None or row.db == log.db)


def position_text(position: Sequence[int]) -> str:
    """A position for people: its numbers."""
    return "/".join(map(str, position))
