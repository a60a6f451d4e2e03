"""Reads a table in chunks: the rows of a range of keys, and the snapshot that saw them.

A chunk is one transaction. Its order is what makes it right:

    LOCK … IN ACCESS SHARE MODE    nothing may rewrite or truncate the table between snapshot and rows: neither keeps
                                   to snapshots, and the rows would be gone for one that is older
    SELECT pg_current_snapshot()   the snapshot, and then how far the log is written: whatever the snapshot sees is
                                   committed below that LSN
    COPY (SELECT …) TO STDOUT      the rows, as this snapshot sees them
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from psycopg import sql

from schemas.errors import Code, ConfigError
from schemas.position import Key, order_key
from schemas.table import Column
from schemas.types import Value
from state.initial.start import Identity, Survey
from state.values.chunks import Chunk, KeyRange, TransactionSnapshot, lsn_from_text
from streaming.postgres.catalog import FoundTable, server_of, slot_of, table_of
from streaming.postgres.checks import Declared, check_server, check_slot, check_table
from streaming.postgres.columns import Readings, Unreadable, rows_of
from streaming.postgres.session import Access, Session

PIECE_BYTES = 16 << 20
"""Bytes of CSV that are in memory at a time, and parsed as columns together."""
_SAMPLED_A_RANGE = 1_000
_MOST_PERCENT = 100.0
_PARTITIONED = "p"

_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SNAPSHOT = """
SELECT pg_current_snapshot()::text,
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_insert_lsn()::text END,
       (SELECT string_agg(concat_ws(' ', a.attname, a.atttypid, a.atttypmod, a.attgenerated), ',' ORDER BY a.attname)
        FROM pg_attribute a WHERE a.attrelid = %s AND a.attname = ANY(%s) AND NOT a.attisdropped)
"""

_SIZE = """
SELECT coalesce((SELECT sum(pg_table_size(relid)) FROM pg_partition_tree(%s::oid)), pg_table_size(%s::oid))::bigint
"""

Keep = Callable[[pa.Table], object]
"""Receives the rows of a chunk, piece by piece, in key order. They count only once the chunk is complete."""


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """A chunk, and the bytes of its CSV."""

    chunk: Chunk
    size: int


class ChunkReader:
    """One session that reads one table. For one thread, except `cut`.

    Raises, from every request: Gone for a passing error, after which this reader is to be closed and another one
    opened; else as `Session`, and ConfigError(POSTGRES_TABLE_CHANGED, POSTGRES_UNFIT).
    """

    def __init__(self, session: Session, declared: Declared, found: FoundTable, readings: Readings) -> None:
        self._session, self._declared, self._found, self._readings = session, declared, found, readings
        self._columns_then: str | None = None
        name = sql.Identifier(found.schema, found.name)
        # The rows of tables that inherit from it are not its own; those of partitions are.
        self._table = name if found.kind == _PARTITIONED else sql.SQL("ONLY {}").format(name)

    @classmethod
    def open(
        cls, access: Access, declared: Declared, *, expected: Identity | None = None, starts: bool = False
    ) -> tuple[ChunkReader, Identity]:
        """Connect and check. `expected` is the table at the begin of the copy.

        `starts`: nothing was read before, so that the connector has to be streaming already.

        Raises: as every request; ConfigError and EnvironmentProblem of `checks`.
        """
        session = Session.open(access)
        try:
            server = server_of(session)
            check_server(server)
            found = table_of(session, declared.name)
            slot = check_slot(slot_of(session, declared.slot), server, must_stream=starts)
            readings = check_table(declared, found, server, slot)
            assert found is not None
            identity = Identity(server.system, server.database, found.oid)
            if expected is not None and identity != expected:
                raise _changed(found.place, "another table, or one in another database")
            return cls(session, declared, found, readings), identity
        except BaseException:
            session.close()
            raise

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def cut(self) -> None:
        """End the session from another thread; a request under way fails with Gone."""
        self._session.cut()

    def confirmed_lsn(self) -> int:
        """The LSN up to which the slot's reader has acknowledged the database's log. It may be old, and never falls.

        Raises: as every request; ConfigError(POSTGRES_SLOT_MISSING, POSTGRES_SLOT_MISFIT).
        """
        slot = slot_of(self._session, self._declared.slot)
        slot = check_slot(slot, server_of(self._session), must_stream=False)
        return 0 if slot.confirmed is None else lsn_from_text(slot.confirmed)

    def survey(self, ranges: int) -> Survey:
        """The plan of a copy with `ranges` ranges, or fewer."""
        estimate, size = self._estimate(), self._size()
        if self._declared.mode == "whole":
            first, _ = self._begin()
            self._session.execute("COMMIT")
            return Survey((KeyRange(),), None, estimate, size, first)
        keys = self._keys_sql()
        with_last = sql.SQL("SELECT {} FROM {} t ORDER BY {} LIMIT 1").format(
            keys, self._table, self._order_sql(descending=True)
        )
        snapshot, written = self._begin()
        last = self._keys(with_last)
        self._session.execute("COMMIT")
        tail = Chunk(KeyRange(last[0] if last else None, None), snapshot, written, 0)
        if not last:
            return Survey((), tail, 0, size, snapshot)
        sample = self._sample(ranges, estimate) if ranges > 1 else []
        return Survey(divided(sample, last[0], ranges), tail, estimate, size, snapshot)

    def read(self, keys: KeyRange, most_rows: int, keep: Keep) -> ReadChunk:
        """The first rows of a range, in key order; its keys end with the range, or with the last row read.

        Raises: as every request; InputError for a value that no event could have either; errors of `keep`.
        """
        query = sql.SQL("SELECT {} FROM {} t{} ORDER BY {} LIMIT {}").format(
            self._columns_sql(self._readings),
            self._table,
            self._within_sql(keys),
            self._order_sql(),
            sql.Literal(most_rows),
        )
        snapshot, written = self._begin()
        rows, size, last = self._copied(query, keep)
        self._session.execute("COMMIT")
        if rows == most_rows:
            assert last is not None
            keys = KeyRange(keys.after, last)
        return ReadChunk(Chunk(keys, snapshot, written, rows), size)

    def read_whole(self, keep: Keep) -> ReadChunk:
        """All rows, in no order, as one snapshot sees them, which is held all the time."""
        snapshot, written = self._begin()
        self._session.execute("SET LOCAL statement_timeout = 0")
        query = sql.SQL("SELECT {} FROM {} t").format(self._columns_sql(self._readings), self._table)
        rows, size, _ = self._copied(query, keep)
        self._session.execute("COMMIT")
        return ReadChunk(Chunk(KeyRange(), snapshot, written, rows), size)

    def _begin(self) -> tuple[TransactionSnapshot, int]:
        self._session.execute(_BEGIN)
        self._session.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(self._table))
        [(snapshot, written, columns)] = self._session.rows(
            _SNAPSHOT, [self._found.oid, list(self._readings)]
        )
        if written is None:
            raise ConfigError(
                Code.POSTGRES_UNFIT,
                where=f"table {self._found.place}",
                found="a server that follows another one",
            )
        if self._columns_then not in (None, columns) or columns is None:
            raise _changed(self._found.place, "other columns, or other types of them")
        self._columns_then = columns
        return TransactionSnapshot.from_text(snapshot), lsn_from_text(written)

    def _copied(self, query: sql.Composable, keep: Keep) -> tuple[int, int, Key | None]:
        rows = size = 0
        last: Key | None = None
        for content in self._session.copy(query, PIECE_BYTES):
            piece = self._rows_of(content, self._readings, self._declared.table.columns)
            rows, size = rows + piece.num_rows, size + len(content)
            last = _keys_of(piece.slice(piece.num_rows - 1), self._declared.table.key_columns)[0]
            keep(piece)
        return rows, size, last

    def _keys(self, query: sql.Composable) -> list[Key]:
        columns = self._declared.table.key_columns
        readings = {column.name: self._readings[column.name] for column in columns}
        content = b"".join(self._session.copy(query, PIECE_BYTES))
        return _keys_of(self._rows_of(content, readings, columns), columns) if content else []

    def _rows_of(self, content: bytes, readings: Readings, columns: Sequence[Column]) -> pa.Table:
        try:
            return rows_of(content, readings, columns)
        except Unreadable as unreadable:
            raise unreadable.error(self._found.place) from None

    def _sample(self, ranges: int, estimate: int) -> list[Key]:
        """Keys of some of the table's blocks."""
        percent = min(_MOST_PERCENT, 100.0 * _SAMPLED_A_RANGE * ranges / max(estimate, 1))
        query = sql.SQL("SELECT {} FROM {} t TABLESAMPLE SYSTEM ({})").format(
            self._keys_sql(), self._table, sql.Literal(percent)
        )
        return self._keys(query)

    def _estimate(self) -> int:
        """The planner's estimate: the rows per block that were counted last, times the current blocks."""
        query = sql.SQL("EXPLAIN (FORMAT JSON) SELECT FROM {}").format(self._table)
        [[plan]] = self._session.rows(query)
        return int(plan[0]["Plan"]["Plan Rows"])

    def _size(self) -> int:
        [[size]] = self._session.rows(_SIZE, [self._found.oid, self._found.oid])
        return int(size)

    def _keys_sql(self) -> sql.Composable:
        return self._columns_sql(self._declared.table.primary_key)

    def _columns_sql(self, names: Iterable[str]) -> sql.Composable:
        expressions = (self._readings[name].expression.replace("{}", "t.{}") for name in names)
        columns = zip(expressions, names, strict=True)
        return sql.SQL(", ").join(sql.SQL(text).format(sql.Identifier(name)) for text, name in columns)

    def _order_sql(self, *, descending: bool = False) -> sql.Composable:
        way = sql.SQL(" DESC" if descending else "")
        return sql.SQL(", ").join(column + way for column in self._key_columns())

    def _key_columns(self) -> list[sql.Composed]:
        return [sql.SQL("t.{}").format(sql.Identifier(name)) for name in self._declared.table.primary_key]

    def _within_sql(self, keys: KeyRange) -> sql.Composable:
        bounds = [(">", keys.after), ("<=", keys.upto)]
        conditions = [
            sql.SQL("({}) {} ({})").format(
                sql.SQL(", ").join(self._key_columns()),
                sql.SQL(operator),
                sql.SQL(", ").join(sql.Literal(_literal(value)) for value in key),
            )
            for operator, key in bounds
            if key is not None
        ]
        return sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("")


def _literal(value: Value) -> str:
    """A literal without a type, which PostgreSQL reads as the column's."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(sep=" ")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _keys_of(rows: pa.Table, key_columns: Sequence[Column]) -> list[Key]:
    names = [column.name for column in key_columns]
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def _changed(place: str, found: str) -> ConfigError:
    return ConfigError(Code.POSTGRES_TABLE_CHANGED, where=f"table {place}", found=found)


def divided(sample: Sequence[Key], last: Key, count: int) -> tuple[KeyRange, ...]:
    """Ranges from −∞ up to `last`, `count` of them or fewer, with about as many keys of the sample in each.

    `sample` may be empty, and in any order; keys behind `last` do not count.
    """
    ordered = sorted({order_key(key): key for key in sample}.items())
    inside = [key for place, key in ordered if place < order_key(last)]
    places = (len(inside) * number // count for number in range(1, count))
    bounds = [inside[place] for place in dict.fromkeys(places) if place < len(inside)] if inside else []
    edges = [None, *bounds, last]
    return tuple(KeyRange(after, upto) for after, upto in pairwise(edges))
