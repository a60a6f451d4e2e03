"""Files on disk of tables that were written for long, on real Delta."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from state import ledger as ledger_module
from state.ledger import Ledger, files_of
from state.maintenance.cleaning import Cleaned, clean_table
from state.retention import StateRetention
from state.storage import DataFile, Storage, now_ms

SCHEMA = pa.schema([("n", pa.int64())])
LONG_S = 10_000
"""Longer than any retention."""
OFTEN = StateRetention(checkpoint_commits=10)


@pytest.fixture
def often(storage: Storage) -> Storage:
    """Of tables with a checkpoint every ten commits."""
    return replace(storage, retention=OFTEN)


def written(storage: Storage, number: int) -> DataFile:
    return storage.write_parquet("t", pa.table([[number]], schema=SCHEMA), stem="x")


def replaced(table: Ledger, times: int) -> DataFile:
    """Make a number of commits, each of a file in the place of the one before; returns the last file."""
    for _ in range(times):
        table.commit([written(table.storage, 1)], table.files(), epoch=table.version + 1)
    (last,) = table.files()
    return last


@contextmanager
def long_ago(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is there after the block was written, and removed from its table, long ago."""
    with monkeypatch.context() as past:
        past.setattr(ledger_module, "now_ms", lambda: now_ms() - LONG_S * 1_000)
        yield
    then = time.time() - LONG_S
    for path in Path(storage.root).rglob("*"):
        os.utime(path, (then, then))


def data_files(storage: Storage) -> set[str]:
    return {path.name for path in Path(storage.root, "t").glob("*.parquet")}


def log_files(storage: Storage) -> list[str]:
    return sorted(path.name for path in Path(storage.root, "t", "_delta_log").iterdir())


def test_dead_files_go_on_either_side_of_a_checkpoint(
    often: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Ledger(often, "t", SCHEMA)
    with long_ago(often, monkeypatch):
        last = replaced(table, 37)
    assert clean_table(often, "t").data == 36
    assert data_files(often) == {last.path}


@pytest.mark.any_storage
def test_what_no_version_needs_goes_at_once_without_a_retention(storage: Storage) -> None:
    at_once = replace(storage, retention=StateRetention(files_s=0, log_s=0, checkpoint_commits=10))
    table = Ledger(at_once, "t", SCHEMA)
    last = replaced(table, 15)
    cleaned = clean_table(at_once, "t", open_since_ms=now_ms() + LONG_S)
    assert (cleaned.data, cleaned.log > 0) == (14, True)
    assert clean_table(at_once, "t").data == 0
    again = Ledger(at_once, "t", SCHEMA)
    assert (again.files(), again.epoch, again.read().num_rows) == ([last], table.epoch, 1)


def test_files_that_were_never_committed_go_once_they_are_old(
    often: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Ledger(often, "t", SCHEMA)
    with long_ago(often, monkeypatch):
        last = replaced(table, 3)
        written(often, 7)
        Path(often.root, "t", "half.parquet").write_bytes(b"PAR1")
    young = written(often, 8)
    assert clean_table(often, "t").data == 4
    assert data_files(often) == {last.path, young.path}


def test_a_file_removed_a_moment_ago_stays_however_old_it_is(
    often: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Ledger(often, "t", SCHEMA)
    with long_ago(often, monkeypatch):
        old = replaced(table, 1)
    new = replaced(table, 1)
    assert clean_table(often, "t").data == 0
    assert data_files(often) == {old.path, new.path}


def test_cleaning_twice_is_no_error_and_finds_nothing(
    often: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Ledger(often, "t", SCHEMA)
    with long_ago(often, monkeypatch):
        replaced(table, 5)
    assert clean_table(often, "t") == Cleaned(data=4)
    assert clean_table(often, "t") == Cleaned()


def test_files_of_a_pinned_version_stay(often: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Ledger(often, "t", SCHEMA)
    with long_ago(often, monkeypatch):
        pinned = replaced(table, 14)
        version = table.version
        last = replaced(table, 23)
    assert clean_table(often, "t", pinned=[version]).data == 35
    assert data_files(often) == {pinned.path, last.path}
    assert [file.path for file in files_of(often, "t", version)] == [pinned.path]


def test_what_work_under_way_has_written_stays_however_long_it_takes(
    often: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger(often, "t", SCHEMA)
    began_ms = now_ms() - LONG_S * 1_000
    with long_ago(often, monkeypatch):
        made = written(often, 1)
    left_over = written(often, 2)
    before = began_ms / 1_000 - LONG_S
    os.utime(often.path("t", left_over.path), (before, before))
    assert clean_table(often, "t", open_since_ms=began_ms).data == 1
    assert data_files(often) == {made.path}


def test_commits_in_front_of_an_old_checkpoint_go_and_every_later_version_opens(
    often: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Ledger(often, "t", SCHEMA)
    with long_ago(often, monkeypatch):
        replaced(table, 37)
        Path(often.root, "t", "_delta_log", "00000000000000000038.json#1").touch()
    replaced(table, 5)
    cleaned = clean_table(often, "t")
    assert cleaned.log > 30
    first = min(int(name[:20]) for name in log_files(often) if name[0] == "0")
    assert 27 <= first <= 30
    assert f"{first:020d}.checkpoint.parquet" in log_files(often)
    assert not any("#" in name for name in log_files(often))
    for version in range(first, table.version + 1):
        assert DeltaTable(often.uri("t"), version=version).version() == version
    assert Ledger(often, "t", SCHEMA).epoch == table.epoch


def test_a_pinned_version_opens_however_long_ago_its_checkpoint_is(
    often: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Ledger(often, "t", SCHEMA)
    with long_ago(often, monkeypatch):
        replaced(table, 14)
        version = table.version
        replaced(table, 30)
    clean_table(often, "t", pinned=[version])
    assert files_of(often, "t", version)


def test_commits_without_a_checkpoint_all_stay(often: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Ledger(often, "t", SCHEMA)
    with long_ago(often, monkeypatch):
        replaced(table, 5)
    assert clean_table(often, "t").log == 0
    assert Ledger(often, "t", SCHEMA).version == 5


def test_a_commit_does_not_look_for_old_ones(often: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaner looks for them, as it knows what a plan names."""
    table = Ledger(often, "t", SCHEMA)
    with long_ago(often, monkeypatch):
        replaced(table, 25)
    replaced(table, 10)
    assert log_files(often)[0] == f"{0:020d}.json"
