"""Positions of changes in the logs of databases (docs/debezium.md#redelivered-records).

    connector        log                                        position
    postgresql       name, db                                   sequence[0], lsn
    mysql, mariadb   name, source of the GTID                   number of the GTID, number of the file, pos, row
    the same         name, server_id                            number of the file, pos, row
    sqlserver        name, db                                   commit_lsn, change_lsn, event_serial_no

Positions of one log can be compared, all others can't. An event whose fields are missing, or of another type than its
connector writes, has none. Source: https://debezium.io/documentation/reference/stable/connectors/index.html.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from streaming.reading.values.json_text import JsonNumber

LogOffset = tuple[int, ...]
TEXT_FIELDS = "connector", "name", "db", "snapshot", "sequence", "file", "gtid", "commit_lsn", "change_lsn"
NUMBER_FIELDS = "lsn", "pos", "row", "server_id", "event_serial_no", "ts_ms"
"""The fields of an event's source that are read."""

STREAMED, INCREMENTAL = "false", "incremental"
_FAMILIES = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlserver": "sqlserver"}
_SEQUENCE = re.compile(r'\["([0-9]{1,19})","[0-9]{1,19}"\]')
_FILE = re.compile(r"(?s).*\.([0-9]{1,18})")
_GTID = re.compile(r"(?s)(?:(.*):|([^:]*)-)([0-9]{1,19})")
_LSN = re.compile(r"([0-9a-fA-F]{8}):([0-9a-fA-F]{8}):([0-9a-fA-F]{4})")
_HALF_A_PAIR = re.compile(r"[\ud800-\udfff]")
_MOST = 2**63


class LogName(NamedTuple):
    """The identity of a log. `origin` is the source of its GTIDs, a text, or the number of the server without them."""

    connector: str
    name: str
    db: str | None = None
    origin: str | int | None = None

    def __str__(self) -> str:
        parts = (self.name, self.db, self.origin)
        return f"{self.connector} {'/'.join(str(part) for part in parts if part is not None)}"

    @property
    def has_gtids(self) -> bool:
        """True where the first number of a position is that of a GTID."""
        return isinstance(self.origin, str)

    def is_lower(self, position: LogOffset, highest: LogOffset) -> bool:
        """True where a position lies below the highest one; with GTIDs both the number and the offset have to."""
        if self.has_gtids:
            return position[0] < highest[0] and position[1:] < highest[1:]
        return position < highest

    def is_named_by(self, row: LogName) -> bool:
        """True where a snapshot row of `row` speaks for this log."""
        return row.name == self.name and self.db in (None, row.db)


class PlaceInLog(NamedTuple):
    """The location of a change. `position` is None for a row of a snapshot; `ts_ms` None where the event lacks it."""

    log: LogName
    position: LogOffset | None = None
    ts_ms: int | None = None


def place_in_log(source: Mapping[str, Any]) -> PlaceInLog | None:
    """The location of an event, by its `source`; None if it can't be compared with others."""
    family = _FAMILIES.get(_text(source, "connector"))
    snapshot = _text(source, "snapshot") or STREAMED
    if family is None or snapshot == INCREMENTAL:
        return None
    name, db = _text(source, "name"), _text(source, "db")
    if snapshot != STREAMED:
        return PlaceInLog(LogName(family, name, db))
    origin, position = None, None
    if family == "postgresql":
        position = _in_postgresql(source)
    elif family == "sqlserver":
        position = _in_sqlserver(source)
    else:
        origin, position = _in_mysql(source)
    if position is None or not all(0 <= number < _MOST for number in position):
        return None
    log = LogName(family, name, None if family == "mysql" else db, origin)
    return PlaceInLog(log, position, _number(source, "ts_ms"))


# Fields of another type, as other connectors have them under these names, are as good as not there. So is a text that
# has no UTF-8: no connector writes one.


def _text(source: Mapping[str, Any], name: str) -> str:
    text = source.get(name)
    if type(text) is bool and name == "snapshot":
        return "true" if text else "false"
    return text if type(text) is str and _HALF_A_PAIR.search(text) is None else ""


def _number(source: Mapping[str, Any], name: str) -> int | None:
    number = source.get(name)
    if type(number) is JsonNumber and number == "-0":
        return 0
    return number if type(number) is int and -_MOST <= number < _MOST else None


def _in_postgresql(source: Mapping[str, Any]) -> LogOffset | None:
    sequence, lsn = _SEQUENCE.fullmatch(_text(source, "sequence")), _number(source, "lsn")
    return None if sequence is None or lsn is None else (int(sequence[1]), lsn)


def _in_sqlserver(source: Mapping[str, Any]) -> LogOffset | None:
    commit, change = (_LSN.fullmatch(_text(source, name)) for name in ("commit_lsn", "change_lsn"))
    if commit is None or change is None:
        return None
    numbers = (int(text, 16) for lsn in (commit, change) for text in (lsn[1], lsn[2] + lsn[3]))
    return *numbers, _number(source, "event_serial_no") or 0


def _in_mysql(source: Mapping[str, Any]) -> tuple[str | int | None, LogOffset | None]:
    file, pos, row = _FILE.fullmatch(_text(source, "file")), _number(source, "pos"), _number(source, "row")
    if file is None or pos is None or row is None:
        return None, None
    # The number of a file counts, not its text: bin.1000000 is behind bin.999999.
    offset = int(file[1]), pos, row
    if type(gtid := source.get("gtid")) is not str:
        server = _number(source, "server_id")
        return server, None if server is None else offset
    parts = _GTID.fullmatch(gtid)
    if parts is None:
        return None, None
    return parts[1] if parts[1] is not None else parts[2], (int(parts[3]), *offset)
