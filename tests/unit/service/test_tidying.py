"""Cleaning the whole state, on real Delta."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import structlog
from deltalake.exceptions import DeltaError

from state.journal import Journal
from state.progress_table import PATH as PROGRESS_PATH
from state.progress_table import ProgressTable
from state.replica import BASE_PATH, LOG_PATH, Replica
from state.storage import DataFile, Storage, now_ms
from state.values.plan import BatchPlan
from streaming.compaction.cleaning import clean_state
from tests.kit.tables import table
from tests.unit.state.test_journal import plan

TABLE = table()
TABLES = ("journal", PROGRESS_PATH, LOG_PATH, BASE_PATH)


@pytest.fixture
def state(tmp_path: Path) -> Storage:
    """A state with a left-over in each of its tables."""
    storage = Storage(str(tmp_path))
    Journal(storage, TABLE).take_over("me", 1, "{}")
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
    journal.take_over("me", 1, "{}")
    open_plan: BatchPlan = replace(plan(2), replica=replica.pin())
    journal.write_plan(open_plan)
    replica.log.commit([file], replica.log.files(), epoch=None)
    clean_state(state, TABLE, {})
    assert pinned.exists()


def test_nothing_more_is_deleted_once_it_is_over(state: Storage) -> None:
    assert clean_state(state, TABLE, {BASE_PATH: now_ms()}, lambda: True).data == 0
    assert left(state) == list(TABLES)
