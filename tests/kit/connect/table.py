"""A database whose table is read in chunks, with a slot that a stand-in for the connector keeps open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from psycopg import pq

from schemas.errors import BackfillError, Code
from schemas.json.debezium_values import TimeMode
from schemas.position import Key
from schemas.records import Row
from schemas.settings.security import Secret
from schemas.table import declare
from streaming.postgres.checks import Declared, Mode
from streaming.postgres.columns import EventForms
from streaming.postgres.reader import ChunkReader
from streaming.postgres.session import Access
from tests.kit.connect.postgres import Postgres
from tests.kit.real import await_condition


class Database:
    """One database of a server. `access` is the role that reads."""

    def __init__(self, postgres: Postgres, name: str, folder: Path) -> None:
        self.postgres, self.name, self._folder = postgres, name, folder
        self._stream: pq.abc.PGconn | None = None
        self.access = self.as_role("postgres")

    def as_role(self, role: str, **options: str) -> Access:
        """Access with a connection string in a file of its own."""
        file = self._folder / f"{self.name}-{role}-{len(options)}.dsn"
        given = {
            "host": "127.0.0.1",
            "port": self.postgres.port,
            "dbname": self.name,
            "user": role,
            **options,
        }
        file.write_text(" ".join(f"{key}={value}" for key, value in given.items()))
        file.chmod(0o600)
        return Access(Secret("initial.postgres.dsn_file", file=file), statement_timeout_ms=20_000)

    def execute(self, *statements: str) -> None:
        with self.postgres.connect(self.name) as session:
            for statement in statements:
                session.execute(statement)

    def publish(self) -> None:
        self.execute(f"CREATE PUBLICATION {self.name} FOR ALL TABLES")

    def stream(self, plugin: str = "pgoutput") -> None:
        """A slot with a reader, as a connector would have it."""
        self.execute(f"SELECT pg_create_logical_replication_slot('{self.name}', '{plugin}')")
        at = f"host=127.0.0.1 port={self.postgres.port} user=postgres dbname={self.name} replication=database"
        self._stream = pq.PGconn.connect(at.encode())
        options = f"proto_version '1', publication_names '{self.name}'"
        begun = self._stream.exec_(f'START_REPLICATION SLOT "{self.name}" LOGICAL 0/0 ({options})'.encode())
        assert begun.status == pq.ExecStatus.COPY_BOTH, self._stream.error_message

    def pause(self) -> None:
        """Nothing reads the slot any more."""
        if self._stream is not None:
            self._stream.finish()
            self._stream = None
        query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND active"
        await_condition(lambda: self.postgres.value("postgres", query, self.name) == 0, "a slot that rests")

    def end(self) -> None:
        """Without its slot, which would keep the server's log."""
        self.pause()
        self.postgres.end_reading(self.name)

    def declared(
        self,
        columns: Mapping[str, str],
        key: Sequence[str] = ("id",),
        *,
        name: str = "public.orders",
        mode: Mode = "chunks",
        time: TimeMode | None = "microseconds",
        scale_is_in_events: bool = False,
    ) -> Declared:
        """A declaration of this table, with the slot of this database."""
        table = declare({"name": "orders", "columns": dict(columns), "primary_key": list(key)})
        return Declared(table, name, self.name, mode, EventForms(time, scale_is_in_events))

    @contextmanager
    def reader(self, declared: Declared, access: Access | None = None) -> Iterator[ChunkReader]:
        reader, _ = ChunkReader.open(access or self.access, declared, starts=True)
        try:
            yield reader
        finally:
            reader.close()

    def impatient(self, statement_timeout_ms: int) -> Access:
        """This role with another limit for a statement."""
        return replace(self.access, statement_timeout_ms=statement_timeout_ms)


class Pieces:
    """Keeps rows in memory."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def __call__(self, rows: pa.Table) -> None:
        self.tables.append(rows)

    @property
    def rows(self) -> list[Row]:
        return [row for table in self.tables for row in rows_in(table)]


def rows_in(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def by_key(rows: Sequence[Row], declared: Declared) -> dict[Key, Row]:
    """Each key once."""
    found = {declared.table.key_of(row): row for row in rows}
    assert len(found) == len(rows)
    return found


def refusal(declared: Declared, access: Access, code: Code) -> str:
    """The error that a reader ends with before it has read anything, as it is printed."""
    with pytest.raises(BackfillError) as refused:
        ChunkReader.open(access, declared, starts=True)
    assert refused.value.code is code, refused.value
    text = str(refused.value)
    assert text.isprintable()
    assert "…" not in text
    return text
