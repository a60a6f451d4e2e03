"""`ReadsTable` on a real server: the whole table is taken, proven and released, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from schemas.errors import BackfillError, Code
from state.initial.chunks import staged_rows
from state.small_files import ReadPace
from state.storage import Storage
from state.values.reading import TableRead
from streaming.postgres.checks import Mode
from streaming.postgres.reader import ChunkReader
from streaming.service.initial.reading import DatabaseReading, ReadingOrder
from tests.kit.connect.table import Database
from tests.kit.real import await_condition
from tests.postgres.conftest import DatabaseOf

pytestmark = [pytest.mark.connect, pytest.mark.timeout(600)]
ROWS = 3_000
MADE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, note text)",
    f"INSERT INTO orders SELECT i, 'row' FROM generate_series(1, {ROWS}) i",
    "ANALYZE orders",
)


class Beside:
    """Stands for batches: takes what was read, and releases what is proven at every look."""

    def __init__(self, database: Database, folder: Path, *, mode: Mode = "chunks") -> None:
        self.declared = database.declared({"id": "bigint", "note": "string"}, mode=mode)
        self.database, self.storage = database, Storage(str(folder / "state"))
        self.storage.prepare()
        with database.reader(self.declared) as reader:
            survey = reader.survey(2)
        self.order = ReadingOrder(
            storage=self.storage,
            table=self.declared.table,
            survey=survey,
            whole=mode == "whole",
            chunk_rows=100,
            readers=2,
            pace=ReadPace(),
            reader=lambda: ChunkReader.open(database.access, self.declared)[0],
            ends=lambda: [7],
        )
        self.files: list[str] = []

    def look(self, reads: DatabaseReading, read: TableRead) -> TableRead:
        for finished in reads.take():
            read = read.read(finished.chunk)
            self.files += finished.files
        read = read.release(read.due([7], reads.proofs()))
        reads.released(read)
        return read

    def confirm(self) -> None:
        """The slot's reader has acknowledged everything."""
        self.database.pause()
        query = "SELECT pg_replication_slot_advance(%s, pg_current_wal_insert_lsn())"
        self.database.postgres.value(self.database.name, query, self.database.name)

    @property
    def ids(self) -> list[int]:
        rows: pa.Table = staged_rows(self.storage, self.declared.table, self.files, range(64))
        return sorted(rows["id"].to_pylist())


@pytest.fixture
def reads() -> Iterator[list[DatabaseReading]]:
    made: list[DatabaseReading] = []
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize("mode", ["chunks", "whole"])
def test_every_row_is_taken_and_released_once_the_slot_is_there(
    database_of: DatabaseOf, tmp_path: Path, reads: list[DatabaseReading], mode: Mode
) -> None:
    beside = Beside(database_of(*MADE), tmp_path, mode=mode)
    reads.append(DatabaseReading(beside.order))
    [reading], read = reads, reads[0].begin()
    reading.go_on(read)

    def all_read() -> bool:
        nonlocal read
        read = beside.look(reading, read)
        return not read.unread

    await_condition(all_read, "the table")
    assert read.released is None
    assert reading.status().waiting_rows == reading.status().rows == ROWS
    beside.confirm()
    await_condition(lambda: all_read() and read.is_done, "the release")
    assert beside.ids == list(range(1, ROWS + 1))
    assert not reading.is_on


def test_another_run_goes_on_behind_what_plans_have(
    database_of: DatabaseOf, tmp_path: Path, reads: list[DatabaseReading]
) -> None:
    beside = Beside(database_of(*MADE), tmp_path)
    reads.append(DatabaseReading(replace(beside.order, pace=ReadPace(3_000))))
    read = reads[0].begin()
    reads[0].go_on(read)

    def some_read() -> bool:
        nonlocal read
        read = beside.look(reads[-1], read)
        return len(read.chunks) > 5

    await_condition(some_read, "some chunks")
    reads[0].close()
    lost = reads[0].status().rows
    again = DatabaseReading(beside.order)
    reads.append(again)
    again.go_on(read)
    assert again.status().rows <= lost
    beside.confirm()

    def is_over() -> bool:
        some_read()
        return read.is_done

    await_condition(is_over, "the release")
    assert beside.ids == list(range(1, ROWS + 1))


def test_what_does_not_pass_is_raised_by_take(
    database_of: DatabaseOf, tmp_path: Path, reads: list[DatabaseReading]
) -> None:
    beside = Beside(database_of(*MADE), tmp_path)
    beside.database.execute("DROP TABLE orders")
    reads.append(DatabaseReading(beside.order))
    reads[0].go_on(reads[0].begin())

    def has_failed() -> bool:
        try:
            reads[0].take()
        except BackfillError as error:
            return error.code is Code.POSTGRES_TABLE_MISSING
        return False

    await_condition(has_failed, "the error")
    assert has_failed()
