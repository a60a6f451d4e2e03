"""Positions in logs of databases, columnar: read from the sources of events, as `schemas.codec.logs`.

The column is a struct of the log, as JSON text, the numbers of the position, of which a log with fewer has zeros behind
them, and the time. It is null where an event is not compared, and its numbers are where it is a row of a snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
)
from schemas.codec.results import Flags, flags_of

LOG, TS_MS = "log", "ts_ms"
PARTS = tuple(f"p{index}" for index in range(MAX_WIDTH))
POSITION_TYPE = pa.struct([(LOG, pa.string()), *((part, pa.int64()) for part in PARTS), (TS_MS, pa.int64())])

_LONG_MAX = str(LONG_MAX)

Field = Callable[[str], pa.Array]
"""A field of the sources by its name."""

_Longs = npt.NDArray[np.int64]

# Arrow wants names for the parts of a pattern, and `$` is the end of the text.
_SEQUENCE = r'^\["(?P<commit>[0-9]{1,19})","[0-9]{1,19}"\]$'
"""PostgreSQL: where the transaction before was committed, and the change itself. The first one is taken."""
_BINLOG = r"^(?s:.*)\.(?P<number>[0-9]{1,18})$"
"""A file of a binary log. Its number counts, not its text: bin.1000000 comes behind bin.999999."""
_GTID = r"^(?P<origin>(?s:.*):|[^:]*-)(?P<number>[0-9]{1,19})$"
"""MySQL: source, or source and tag, before the last colon. MariaDB: domain and server before the last dash."""
_LSN = r"^(?P<high>[0-9a-fA-F]{8}):(?P<middle>[0-9a-fA-F]{8}):(?P<low>[0-9a-fA-F]{4})$"
"""SQL Server: groups of equal width, in the order of their text."""


def source_positions(field: Field) -> pa.StructArray:
    """The position of each source; null where it can't be compared with others."""
    connector, snapshot = field("connector"), field("snapshot")
    which = pc.index_in(connector, pa.array(list(CONNECTORS))).fill_null(-1).to_numpy()
    families = np.array([*map(_FAMILIES.index, CONNECTORS.values()), -1])[which]
    is_streamed = flags_of(pc.is_in(snapshot, pa.array([STREAMED, "", None])))
    is_compared = (families >= 0) & ~flags_of(pc.equal(snapshot, INCREMENTAL))
    numbers = np.zeros((len(connector), MAX_WIDTH), np.int64)
    is_set = np.zeros(len(connector), np.bool_)
    origins: pa.Array = pa.nulls(len(connector), pa.string())
    for family, read in enumerate(_READERS.values()):
        mine = is_compared & is_streamed & (families == family)
        if not mine.any():
            continue
        found, columns, own = read(field)
        found = found & mine
        for index, column in enumerate(columns):
            numbers[:, index] = np.where(found, column, numbers[:, index])
        is_set |= found & (numbers >= 0).all(axis=1)
        origins = pc.if_else(pa.array(mine), own, origins) if own is not None else origins
    is_there = np.where(is_streamed, is_set, is_compared)
    logs = _logs(families, field, origins, is_streamed)
    times = pc.if_else(pa.array(is_streamed), field(TS_MS), None)
    parts = [pa.array(column, mask=~is_set) for column in numbers.T]
    return pa.StructArray.from_arrays(
        [logs, *parts, times], fields=list(POSITION_TYPE), mask=pa.array(~is_there)
    )


def positions_in(column: pa.StructArray) -> Iterator[LogPosition | None]:
    """The positions of a column."""
    for is_there, (text, *parts, ts_ms) in zip(
        column.is_valid().to_pylist(),
        zip(*(each.to_pylist() for each in column.flatten()), strict=True),
        strict=True,
    ):
        if not is_there:
            yield None
            continue
        log = log_id(text)
        yield LogPosition(log, None if parts[0] is None else tuple(parts[: log.width]), ts_ms)


@lru_cache(maxsize=4096)
def log_id(text: str) -> LogId:
    """The log of its text in the column."""
    return LogId(*json.loads(text))


@lru_cache(maxsize=4096)
def log_text(log: LogId) -> str:
    """The text of a log in the column."""
    return json.dumps(log)


_Read = tuple[Flags, list[_Longs], pa.Array | None]
"""Flags (True if there is a position), the position's numbers, and the origins of the logs, as JSON."""


def _in_postgresql(field: Field) -> _Read:
    commit, lsn = _number(pc.extract_regex(field("sequence"), _SEQUENCE), "commit"), field("lsn")
    return flags_of(pc.and_(commit.is_valid(), lsn.is_valid())), [_longs(commit), _longs(lsn)], None


def _in_mysql(field: Field) -> _Read:
    file = _number(pc.extract_regex(field("file"), _BINLOG), "number")
    place = [file, field("pos"), field("row")]
    gtid, server = field("gtid"), field("server_id")
    parts = pc.extract_regex(gtid, _GTID)
    number, has_gtid = _number(parts, "number"), flags_of(gtid.is_valid())
    is_there = _all(*place) & flags_of(pc.if_else(gtid.is_valid(), number.is_valid(), server.is_valid()))
    columns = [_longs(each) for each in (number, *place)]
    without = [*columns[1:], np.zeros(len(gtid), np.int64)]
    uuid = pc.utf8_slice_codeunits(pc.struct_field(parts, "origin"), 0, -1)
    texts = pa.array(
        [None if each is None else json.dumps(each) for each in uuid.unique().to_pylist()], pa.string()
    )
    origins = pc.if_else(
        gtid.is_valid(), texts.take(pc.index_in(uuid, uuid.unique())), server.cast(pa.string())
    )
    return is_there, [np.where(has_gtid, *pair) for pair in zip(columns, without, strict=True)], origins


def _in_sqlserver(field: Field) -> _Read:
    groups = [pc.extract_regex(field(name), _LSN) for name in ("commit_lsn", "change_lsn")]
    hexes = []
    for each in groups:
        high, middle, low = (pc.struct_field(each, name) for name in ("high", "middle", "low"))
        hexes += [pc.binary_join_element_wise("0x", *texts, "") for texts in ((high,), (middle, low))]
    serial = field("event_serial_no").fill_null(0)
    return _all(*groups), [*(_longs(each.cast(pa.int64())) for each in hexes), _longs(serial)], None


_READERS: dict[str, Callable[[Field], _Read]] = {
    POSTGRESQL: _in_postgresql,
    MYSQL: _in_mysql,
    SQLSERVER: _in_sqlserver,
}


_FAMILIES = list(_READERS)


def _logs(families: _Longs, field: Field, origins: pa.Array, is_streamed: Flags) -> pa.Array:
    """The text of each log: there are few, so each is made once."""
    names, dbs = (field(name).fill_null("") for name in ("name", "db"))
    columns = [pa.array(families), names, dbs, origins, pa.array(is_streamed)]
    codes = np.zeros(len(names), np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        if len(encoded.dictionary) > 1:
            codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    count = int(codes.max()) + 1 if len(codes) else 0
    firsts = np.zeros(count, np.int64)
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]
    texts = [_text(*(column[int(row)].as_py() for column in columns)) for row in firsts]
    return pa.array(texts, pa.string()).take(pa.array(codes))


def _text(family: int, name: str, db: str, origin: str | None, is_streamed: bool) -> str:
    if family < 0:
        return ""
    own = None if origin is None or not is_streamed else json.loads(origin)
    has_db = _FAMILIES[family] != MYSQL or not is_streamed
    return log_text(LogId(_FAMILIES[family], name, db if has_db else None, own))


def _number(parts: pa.StructArray, name: str) -> pa.Array:
    """Null also for one beyond 64 bits, of which no event is compared."""
    digits = pc.struct_field(parts, name)
    is_long = pc.and_(pc.equal(pc.binary_length(digits), len(_LONG_MAX)), pc.greater(digits, _LONG_MAX))
    return pc.if_else(is_long, None, digits).cast(pa.int64())


def _all(*columns: pa.Array) -> Flags:
    is_there = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        is_there &= flags_of(column.is_valid())
    return is_there


def _longs(column: pa.Array) -> _Longs:
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.int64)
