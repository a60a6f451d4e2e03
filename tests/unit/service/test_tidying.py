"""Work that is due beside the batches: its turns, and what tidying deletes."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest
import structlog
from deltalake.exceptions import DeltaError

from schemas.errors import Code, EnvironmentProblem
from state.initial.chunks import CHUNKS_PATH, WAITING_PATH, WaitingEvents, stage
from state.journal import Journal
from state.maintenance.cleaning import clean_state
from state.progress_table import PATH as PROGRESS_PATH
from state.progress_table import ProgressTable
from state.replica import BASE_PATH, LOG_PATH, Replica
from state.retention import StateRetention
from state.storage import DataFile, Storage, now_ms
from state.values.chunks import Chunk, KeyRange, TransactionSnapshot
from state.values.plan import BatchPlan
from state.values.reading import Reading, TableRead
from streaming.compaction.maintenance import FIRST_DELAY_S, LONGEST_DELAY_S, Maintenance, Turn
from tests.kit.clock import Clock
from tests.kit.tables import table
from tests.unit.state.test_journal import plan

TABLE = table()
TABLES = ("journal", PROGRESS_PATH, LOG_PATH, BASE_PATH)


@pytest.fixture
def state(tmp_path: Path) -> Storage:
    """A state with a left-over in each of its tables."""
    storage = Storage(str(tmp_path))
    Journal(storage, TABLE).take_over("me", "{}")
    ProgressTable(storage, TABLE)
    Replica(storage, TABLE)
    for path in TABLES:
        left_over(storage, path)
    return storage


def left_over(storage: Storage, path: str) -> Path:
    name = storage.write_parquet(path, pa.table({"n": [1]}), stem="left-over").path
    file = Path(storage.root, path, name)
    os.utime(file, (0, 0))
    return file


def left(storage: Storage) -> list[str]:
    return [path for path in TABLES if list(Path(storage.root, path).glob("left-over*"))]


def test_left_overs_of_every_table_go(state: Storage) -> None:
    assert clean_state(state, TABLE, {}).data == len(TABLES)
    assert left(state) == []


@pytest.mark.parametrize("broken", TABLES)
def test_trouble_with_one_table_keeps_no_other_from_being_cleaned(state: Storage, broken: str) -> None:
    """Without the journal nobody knows which files of the replica an open plan needs."""
    shutil.rmtree(Path(state.root, broken, "_delta_log"))
    with structlog.testing.capture_logs() as logged, pytest.raises(DeltaError):
        clean_state(state, TABLE, {})
    expected = [broken, LOG_PATH, BASE_PATH] if broken == "journal" else [broken]
    assert left(state) == expected
    assert [line["table"] for line in logged] == expected
    assert not Path(state.root, broken, "_delta_log").exists()


def test_files_that_a_compaction_may_still_commit_stay(state: Storage) -> None:
    """Whenever it began: it writes files until it is over."""
    clean_state(state, TABLE, {BASE_PATH: 0})
    assert left(state) == [BASE_PATH]


def test_what_the_open_plan_has_pinned_stays_readable(state: Storage) -> None:
    replica = Replica(state, TABLE)
    pinned = left_over(state, LOG_PATH)
    file = state.write_parquet(LOG_PATH, pa.table({"n": [1]}), stem="later")
    replica.log.commit([DataFile(pinned.name, 1, 1)], epoch=1)
    journal = Journal(state, TABLE)
    journal.take_over("me", "{}")
    open_plan: BatchPlan = replace(plan(2), replica=replica.pin())
    journal.write_plan(open_plan)
    replica.log.commit([file], replica.log.files(), epoch=None)
    clean_state(state, TABLE, {})
    assert pinned.exists()


def test_nothing_more_is_deleted_once_it_is_over(state: Storage) -> None:
    assert clean_state(state, TABLE, {BASE_PATH: now_ms()}, lambda: True).data == 0
    assert left(state) == list(TABLES)


def staged(storage: Storage, number: int) -> str:
    """A file of a chunk that was read long ago."""
    columns = {column.name: pa.array([number], column.type.arrow) for column in TABLE.columns[:1]}
    more = {column.name: pa.array([None], column.type.arrow) for column in TABLE.columns[1:]}
    name = stage(storage, TABLE, pa.table({**columns, **more}))
    os.utime(Path(storage.root, CHUNKS_PATH, name), (0, 0))
    return name


def chunks(storage: Storage) -> set[str]:
    return {file.name for file in Path(storage.root, CHUNKS_PATH).iterdir()}


def reading_of(storage: Storage, file: str) -> Reading:
    """Of a table with one chunk, which is in this file."""
    snapshot = TransactionSnapshot(3, 3)
    chunk = Chunk(KeyRange(None, (1,)), snapshot, 1, 1)
    return Reading(TableRead.begin(snapshot).read(chunk), ((file,),), WaitingEvents(storage, TABLE).version)


def test_rows_of_chunks_go_once_no_plan_names_them(state: Storage) -> None:
    named, released = staged(state, 1), staged(state, 2)
    young = stage(state, TABLE, pa.table({c.name: pa.array([None], c.type.arrow) for c in TABLE.columns}))
    Journal(state, TABLE).write_plan(replace(plan(1), reading=reading_of(state, named)))
    clean_state(state, TABLE, {CHUNKS_PATH: 0})  # one that began long ago may still be finished
    assert chunks(state) == {named, released, young}
    clean_state(state, TABLE, {})
    assert chunks(state) == {named, young}
    Journal(state, TABLE).write_plan(plan(2))
    clean_state(state, TABLE, {})
    assert chunks(state) == {young}


def test_events_that_the_open_plan_looks_at_stay_readable(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path), retention=StateRetention(files_s=0))
    journal, waiting = Journal(storage, TABLE), WaitingEvents(storage, TABLE)
    journal.take_over("me", "{}")
    ProgressTable(storage, TABLE)
    Replica(storage, TABLE)
    pinned = left_over(storage, WAITING_PATH)
    waiting.commit([DataFile(pinned.name, 1, 1)], 1, version=waiting.version, anew=False)
    journal.write_plan(replace(plan(2), reading=reading_of(storage, "file")))
    waiting.commit([], 2, version=waiting.version, anew=True)
    clean_state(storage, TABLE, {})
    assert pinned.exists()
    journal.write_plan(plan(3))
    clean_state(storage, TABLE, {})
    assert not pinned.exists()


def fails() -> NoReturn:
    raise EnvironmentProblem(Code.SPARK_FAILED, found="a", expected="b", next_step="c")


def test_a_result_is_taken_once() -> None:
    turn = Turn[int]("work", "advice")
    assert turn.take() is None
    turn.begin(lambda: 7)
    turn.wait()
    assert (turn.is_free, turn.take()) == (False, 7)
    assert (turn.take(), turn.is_free) == (None, True)
    turn.close()


def test_work_under_way_is_not_waited_for() -> None:
    turn, may = Turn[int]("work", "advice"), threading.Event()
    turn.begin(lambda: 7 if may.wait(30) else 0)
    assert (turn.take(), turn.is_running, turn.began_ms is None) == (None, True, False)
    turn.wait(0.0)
    assert (turn.take(), turn.is_running) == (None, True)
    may.set()
    turn.wait()
    assert (turn.take(), turn.is_running, turn.began_ms) == (7, False, None)
    turn.close()


def test_what_fails_waits_twice_as_long_each_time_up_to_a_limit_and_is_logged_with_what_to_do() -> None:
    clock = Clock(100.0)
    turn = Turn[int]("compaction", "look at the disk", clock)
    delays = []
    with structlog.testing.capture_logs() as logged:
        for _ in range(14):
            turn.begin(fails)
            turn.wait()
            assert turn.take() is None
            began = clock.now_s
            while not turn.is_free:
                clock.now_s += FIRST_DELAY_S
            delays.append(clock.now_s - began)
    assert delays[:4] == [1.0, 2.0, 4.0, 8.0]
    assert delays[-2:] == [LONGEST_DELAY_S, LONGEST_DELAY_S]
    assert logged[2] == {
        "event": "maintenance failed, to be tried again",
        "log_level": "warning",
        "work": "compaction",
        "error": "SPARK_FAILED",
        "failures": 3,
        "again_in_s": 4.0,
        "next_step": "look at the disk",
    }
    turn.close()


def test_a_success_is_the_end_of_a_row_of_failures() -> None:
    clock = Clock(100.0)
    turn = Turn[int]("compaction", "advice", clock)
    for _ in range(5):
        turn.begin(fails)
        turn.wait()
        turn.take()
    turn.begin(lambda: 1)
    turn.wait()
    assert turn.take() == 1
    assert (turn.maintenance().failures, turn.maintenance().error) == (0, None)
    turn.begin(fails)
    turn.wait()
    turn.take()
    clock.now_s += FIRST_DELAY_S
    assert turn.is_free
    turn.close()


def test_how_it_goes_is_shown() -> None:
    clock, may = Clock(100.0), threading.Event()
    turn = Turn[bool]("compaction", "look at the disk", clock)
    assert turn.maintenance() == Maintenance("compaction", None, 0, None, 0.0, "look at the disk")
    turn.begin(lambda: may.wait(30))
    clock.now_s += 7
    assert turn.maintenance().running_s == 7
    may.set()
    turn.wait()
    assert turn.take()
    for _ in range(3):
        turn.begin(fails)
        turn.wait()
        turn.take()
    clock.now_s += 1
    assert turn.maintenance() == Maintenance("compaction", None, 3, "SPARK_FAILED", 3.0, "look at the disk")
    turn.close()
