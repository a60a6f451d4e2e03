"""Positions in logs, one by one: the slow and obvious model of `schemas.codec.log_positions`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from schemas.codec.log_positions import LOG, PARTS, POSITION_TYPE, TS_MS, log_text
from schemas.codec.logs import (
    CONNECTORS,
    INCREMENTAL,
    LONG_MAX,
    MAX_WIDTH,
    MYSQL,
    POSTGRESQL,
    SQLSERVER,
    STREAMED,
    LogId,
    LogPosition,
    Position,
)

Source = Mapping[str, Any]
"""The fields of an event's `source` by name: texts and numbers, None or absent for those that have no such value."""
SEQUENCE = r'\["([0-9]{1,19})","([0-9]{1,19})"\]'
LSN = r"([0-9a-fA-F]{8}):([0-9a-fA-F]{8}):([0-9a-fA-F]{4})"
BINLOG = r"(?s)(.*)\.([0-9]{1,18})"
GTID = r"(?s)(.*:|[^:]*-)([0-9]{1,19})"


def log_position(source: Source) -> LogPosition | None:
    """The position of an event; None if it can't be compared with others."""
    family = CONNECTORS.get(source.get("connector") or "")
    snapshot = source.get("snapshot") or STREAMED
    if family is None or snapshot == INCREMENTAL:
        return None
    name, db = (source.get(field) or "" for field in ("name", "db"))
    if snapshot != STREAMED:
        return LogPosition(LogId(family, name, db))
    origin, position = _POSITIONS[family](source)
    if position is None or max(position) > LONG_MAX or min(position) < 0:
        return None
    return LogPosition(
        LogId(family, name, None if family == MYSQL else db, origin), position, source.get("ts_ms")
    )


def position_column(positions: Iterable[LogPosition | None]) -> pa.StructArray:
    """The column of these positions."""
    rows = list[dict[str, object] | None]()
    for each in positions:
        if each is None:
            rows.append(None)
            continue
        own = each.position or (None,) * MAX_WIDTH
        padded = (*own, *(0,) * (MAX_WIDTH - len(own)))
        rows.append({LOG: log_text(each.log), **dict(zip(PARTS, padded, strict=True)), TS_MS: each.ts_ms})
    return pa.array(rows, POSITION_TYPE)


_Found = tuple[Any, Position | None]
"""The origin of a log, and a position in it."""


def _in_postgresql(source: Source) -> _Found:
    sequence, lsn = re.fullmatch(SEQUENCE, source.get("sequence") or ""), source.get("lsn")
    return None, None if sequence is None or lsn is None else (int(sequence[1]), lsn)


def _in_mysql(source: Source) -> _Found:
    file, pos, row = re.fullmatch(BINLOG, source.get("file") or ""), source.get("pos"), source.get("row")
    server, gtid = source.get("server_id"), source.get("gtid")
    if file is None or pos is None or row is None:
        return None, None
    place = int(file[2]), pos, row
    if gtid is None:
        return server, None if server is None else place
    parts = re.fullmatch(GTID, gtid)
    return (None, None) if parts is None else (parts[1][:-1], (int(parts[2]), *place))


def _in_sqlserver(source: Source) -> _Found:
    commit, change = (re.fullmatch(LSN, source.get(each) or "") for each in ("commit_lsn", "change_lsn"))
    if commit is None or change is None:
        return None, None
    parts = (part for lsn in (commit, change) for part in (lsn[1], lsn[2] + lsn[3]))
    return None, (*(int(part, 16) for part in parts), source.get("event_serial_no") or 0)


_POSITIONS: Final[Mapping[str, Callable[[Source], _Found]]] = {
    POSTGRESQL: _in_postgresql,
    MYSQL: _in_mysql,
    SQLSERVER: _in_sqlserver,
}
