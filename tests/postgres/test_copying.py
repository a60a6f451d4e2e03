"""The copy of a real table while its server crashes, hangs, and is locked; stopped, paused and throttled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from schemas.errors import BackfillError, Code
from schemas.position import Key
from state.initial.start import Survey
from state.values.chunks import Chunk, KeyRange
from streaming.postgres import copying, session
from streaming.postgres import reader as reading
from streaming.postgres.checks import Declared
from streaming.postgres.copying import CopyOrder, Pace, TableCopying
from streaming.postgres.reader import ChunkReader
from tests.kit.connect.table import Database, by_key, rows_in
from tests.kit.real import await_condition
from tests.postgres.conftest import DatabaseOf

pytestmark = [pytest.mark.connect, pytest.mark.timeout(600)]
ROWS = 6_000
MADE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, note text)",
    f"INSERT INTO orders SELECT i, repeat('x', 200) FROM generate_series(1, {ROWS}) i",
    "ANALYZE orders",
)


class Store:
    """Keeps pieces by their number, and the chunks that name them; `on_finished` happens inside of it."""

    def __init__(self) -> None:
        self._pieces: list[pa.Table] = []
        self._lock = threading.Lock()
        self.chunks: list[tuple[Chunk, tuple[int, ...]]] = []
        self.on_finished: Callable[[], object] = lambda: None
        self.most_chunks: int | None = None

    def has_room(self, keys: KeyRange) -> bool:
        return self.most_chunks is None or len(self.chunks) < self.most_chunks

    def keep(self, rows: pa.Table) -> int:
        with self._lock:
            self._pieces.append(rows)
            return len(self._pieces) - 1

    def finished(self, chunk: Chunk, pieces: Sequence[int]) -> None:
        self.on_finished()
        self.chunks.append((chunk, tuple(pieces)))
        assert sum(self._pieces[piece].num_rows for piece in pieces) == chunk.rows

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk, _ in self.chunks)

    def all(self, declared: Declared) -> dict[Key, Any]:
        rows = [row for _, pieces in self.chunks for piece in pieces for row in rows_in(self._pieces[piece])]
        return by_key(rows, declared)


class Copied:
    """A copy of one table: what was read of it, and the next run."""

    def __init__(self, database: Database, *, readers: int = 2, chunk_rows: int = 100, **kwargs: Any) -> None:
        self.database, self.store = database, Store()
        self.declared = database.declared({"id": "bigint", "note": "string"}, **kwargs)
        self.access = database.access
        self._readers, self._chunk_rows = readers, chunk_rows
        with database.reader(self.declared) as reader:
            self.survey: Survey = reader.survey(readers)

    def next(self, pace: Pace | None = None) -> TableCopying[int]:
        order = CopyOrder(
            self.left(),
            rows=self.survey.rows,
            rows_before=self.store.rows,
            chunk_rows=self._chunk_rows,
            readers=self._readers,
            reader=lambda: ChunkReader.open(self.access, self.declared)[0],
            store=self.store,
            whole=self.declared.mode == "whole",
        )
        return TableCopying(order, pace or Pace())

    def left(self) -> list[KeyRange]:
        read = self.survey.begin()
        for chunk, _ in self.store.chunks:
            read = read.read(chunk)
        tail = None if self.survey.tail is None else self.survey.tail.keys
        return [each.keys for each in read.unread if each.keys != tail]

    def is_whole(self) -> None:
        assert sorted(self.store.all(self.declared)) == [(i,) for i in range(1, ROWS + 1)]


@contextmanager
def running(copy: TableCopying[int]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=copy.copy_table)
    thread.start()
    try:
        yield thread
    finally:
        copy.stop()
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("readers", [1, 3])
def test_all_rows_once_by_any_number_of_readers(database_of: DatabaseOf, readers: int) -> None:
    copied = Copied(database_of(*MADE), readers=readers)
    copy = copied.next()
    assert copy.copy_table() is True
    copied.is_whole()
    status = copy.status()
    assert (status.rows, status.of, status.left_s, status.trouble) == (ROWS, ROWS, 0, None)
    assert copied.next().copy_table() is True
    assert copied.store.rows == ROWS


def test_it_goes_on_where_it_was_stopped(database_of: DatabaseOf) -> None:
    copied = Copied(database_of(*MADE))
    runs = 0
    while copied.left():
        copy, goal = copied.next(), copied.store.rows + 1_500
        copied.store.on_finished = lambda copy=copy, goal=goal: copied.store.rows >= goal and copy.stop()  # type: ignore[misc]
        copy.copy_table()
        runs += 1
    assert runs >= 3
    copied.is_whole()


def test_a_server_that_crashes_is_waited_for(
    database_of: DatabaseOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "FIRST_PAUSE_S", 0.1)
    copied = Copied(database_of(*MADE))
    postgres = copied.database.postgres
    copy = copied.next(Pace(3_000))
    with running(copy) as thread:
        await_condition(lambda: copied.store.rows >= 500, "some rows")
        postgres.crash()
        await_condition(lambda: copy.status().trouble is not None, "a copy that waits")
        postgres.start()
        postgres.await_ready()
        copy.throttle(None)
        thread.join(60)
        assert not thread.is_alive()
    copied.is_whole()
    assert copy.status().trouble is None


def test_a_server_that_hangs_is_left_and_asked_again(
    database_of: DatabaseOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_GRACE_S", 0.5)
    copied = Copied(database_of(*MADE))
    copied.access = copied.database.impatient(1_000)
    copy = copied.next(Pace(3_000))
    with running(copy) as thread:
        await_condition(lambda: copied.store.rows >= 500, "some rows")
        with copied.database.postgres.frozen():
            await_condition(lambda: copy.status().trouble is not None, "a copy that waits")
        copy.throttle(None)
        thread.join(60)
        assert not thread.is_alive()
    copied.is_whole()


def test_a_table_that_is_locked_is_waited_for_and_not_forever(database_of: DatabaseOf) -> None:
    copied = Copied(database_of(*MADE), readers=1)
    copied.access = copied.database.impatient(300)
    copy = copied.next()
    with copied.database.postgres.connect(copied.database.name, autocommit=False) as holder:
        holder.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        with running(copy) as thread:
            await_condition(lambda: copy.status().trouble is not None, "a copy that waits")
            assert "57014" in str(copy.status().trouble)
            assert copied.store.rows == 0
            holder.rollback()
            thread.join(60)
            assert not thread.is_alive()
    copied.is_whole()


def test_paused_it_reads_nothing_and_goes_on(database_of: DatabaseOf) -> None:
    copied = Copied(database_of(*MADE), readers=1)
    copy = copied.next(Pace(paused=True))
    with running(copy) as thread:
        time.sleep(0.5)  # for nothing to happen
        assert copied.store.rows == 0
        assert copy.status().paused
        copy.pause(False)
        thread.join(60)
        assert not thread.is_alive()
    copied.is_whole()


def test_without_room_it_begins_no_chunk_and_holds_no_transaction(database_of: DatabaseOf) -> None:
    copied = Copied(database_of(*MADE), readers=1)
    copied.store.most_chunks = 3
    copy = copied.next()
    name = copied.database.name
    idle = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname = %s AND xact_start IS NULL"
    with running(copy) as thread:
        await_condition(lambda: len(copied.store.chunks) == 3, "all that there is room for")
        await_condition(
            lambda: copied.database.postgres.value(name, idle, session.APPLICATION, name) == 1,
            "a session at rest",
        )
        thread.join(0.5)  # for nothing to happen
        assert len(copied.store.chunks) == 3
        copied.store.most_chunks = None
        thread.join(60)
        assert not thread.is_alive()
    copied.is_whole()


def test_a_limit_holds_for_all_readers_together(database_of: DatabaseOf) -> None:
    copied = Copied(database_of(*MADE), readers=3)
    copy = copied.next(Pace(2_000))
    began_s = time.monotonic()
    assert copy.copy_table() is True
    assert 1.5 < time.monotonic() - began_s < 30
    copied.is_whole()


def test_a_store_that_fails_ends_it(database_of: DatabaseOf) -> None:
    copied = Copied(database_of(*MADE), readers=3)

    def fail() -> None:
        raise OSError("no space")

    copied.store.on_finished = fail
    with pytest.raises(OSError, match="no space"):
        copied.next().copy_table()
    assert copied.store.chunks == []


def test_what_does_not_pass_ends_it(database_of: DatabaseOf) -> None:
    copied = Copied(database_of(*MADE))
    copied.database.execute("DROP TABLE orders")
    with pytest.raises(BackfillError) as refused:
        copied.next().copy_table()
    assert refused.value.code is Code.POSTGRES_TABLE_MISSING


def test_a_whole_table_begins_anew_when_it_broke_off(
    database_of: DatabaseOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "FIRST_PAUSE_S", 0.1)
    copied = Copied(database_of(*MADE), mode="whole")
    name, broken = copied.database.name, False
    kept = copied.store.keep

    def keep(rows: pa.Table) -> int:
        nonlocal broken
        if not broken:
            broken = True
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND datname = %s"
            copied.database.postgres.value(name, end, session.APPLICATION, name)
        return kept(rows)

    monkeypatch.setattr(copied.store, "keep", keep)
    assert copied.next().copy_table() is True
    assert broken
    [(chunk, _)] = copied.store.chunks
    assert (chunk.keys, chunk.rows) == (KeyRange(), ROWS)
    copied.is_whole()


def test_a_whole_table_is_paced_by_its_pieces(
    database_of: DatabaseOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", 100_000)
    copied = Copied(database_of(*MADE), mode="whole")
    copy = copied.next(Pace(2_000))
    began_s = time.monotonic()
    with running(copy) as thread:
        thread.join(60)
        assert not thread.is_alive()
    assert 1.5 < time.monotonic() - began_s < 30
    copied.is_whole()


def test_a_password_may_change_between_two_connections(database_of: DatabaseOf) -> None:
    copied = Copied(database_of(*MADE))
    file = copied.access.dsn.file
    assert file is not None
    right = file.read_text()
    file.write_text(right.replace("user=postgres", "user=stranger"))
    with pytest.raises(BackfillError) as refused:
        copied.next().copy_table()
    assert refused.value.code is Code.POSTGRES_REFUSED
    file.write_text(right)
    assert copied.next().copy_table() is True
