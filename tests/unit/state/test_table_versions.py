"""The replica as a table that other programs read, on real Delta: its SQL by delta-rs, and pins against cleaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from schemas.errors import Code, ConfigError, StateError
from schemas.records import Row
from state.journal import Journal
from state.maintenance.cleaning import clean_state
from state.replica import LOG_PATH
from state.retention import StateRetention
from state.small_files import TablePins
from state.storage import Storage
from streaming.control.table_version import ReplicaVersions, TableVersion
from tests.kit.replica_history import TABLE, ReplicaHistory

ONCE = StateRetention(files_s=0, log_s=0, checkpoint_commits=4, base_checkpoint_commits=2)
"""Everything that no newest version needs goes at once."""
GONE = r"(?i)not found|no such file|invalid|version|log"


@pytest.fixture
def history(folder: Storage) -> ReplicaHistory:
    return ReplicaHistory(replace(folder, retention=ONCE))


def rows_of(found: TableVersion) -> list[Row]:
    """The rows that a copy of the text for delta-rs gives."""
    scope: dict[str, Any] = {}
    exec(found.delta_rs, scope)  # noqa: S102  our own text
    return sorted(tuple(row.values()) for row in pa.table(scope["rows"]).to_pylist())


@pytest.mark.parametrize("seed", range(4))
def test_sql_gives_the_table_at_every_barrier_that_is_kept(folder: Storage, seed: int) -> None:
    history = ReplicaHistory(replace(folder, retention=ONCE), seed)
    versions = ReplicaVersions(folder, TABLE)
    for epoch in range(10, 100, 10):
        history.batch(epoch, silent=epoch == 70)
        if epoch in (30, 80):
            history.compact(epoch - 10)
    for epoch in (70, 80, 90):
        assert rows_of(versions.at(epoch)) == history.at[epoch]
    assert versions.at(None).epoch == 90
    # A barrier without a batch of its own is that of the state behind it.
    assert rows_of(versions.at(85)) == history.at[80]


def test_a_pinned_version_is_read_weeks_later_and_goes_once_it_is_unpinned(history: ReplicaHistory) -> None:
    storage = history.storage
    versions = ReplicaVersions(storage, TABLE)
    for epoch in (10, 20, 30):
        history.batch(epoch)
    history.compact(20)
    kept = versions.at(30)
    versions.pin(kept)
    for epoch in range(40, 400, 10):
        history.batch(epoch)
        if epoch % 50 == 0:
            history.compact(epoch)
        history.clean()
    assert rows_of(kept) == rows_of(versions.at(30)) == history.at[30]
    commits = [info for info in storage.listed(LOG_PATH, "_delta_log") if info.extension == "json"]
    assert len(commits) < 30  # and not all that there were since
    assert rows_of(versions.at(390)) == history.at[390]
    history.batch(400)  # a commit on top of a log with gaps
    versions.unpin(30)
    history.clean()
    with pytest.raises(Exception, match=GONE):
        rows_of(kept)
    assert rows_of(versions.at(400)) == history.at[400]


def test_without_a_pin_cleaning_takes_an_old_version(history: ReplicaHistory) -> None:
    history.batch(10)
    kept = ReplicaVersions(history.storage, TABLE).at(10)
    for epoch in range(20, 200, 10):
        history.batch(epoch)
        history.compact(epoch)
    history.clean()
    with pytest.raises(Exception, match=GONE):
        rows_of(kept)


def test_cleaning_of_a_state_keeps_what_is_pinned(history: ReplicaHistory) -> None:
    storage = history.storage
    Journal(storage, TABLE)
    versions = ReplicaVersions(storage, TABLE)
    history.batch(10)
    versions.pin(versions.at(10))
    for epoch in range(20, 120, 10):
        history.batch(epoch)
        history.compact(epoch)
    with pytest.raises(Exception, match="progress"):  # a table that this state has not
        clean_state(storage, TABLE, {})
    assert rows_of(versions.at(10)) == history.at[10]


def test_barriers_that_are_not_kept_are_refused_with_those_that_are(history: ReplicaHistory) -> None:
    versions = ReplicaVersions(history.storage, TABLE)
    for epoch in (10, 20, 30):
        history.batch(epoch)
    history.compact(20)
    for epoch in (10, 31):
        with pytest.raises(ConfigError, match="from 20 to 30") as caught:
            versions.at(epoch)
        assert caught.value.code is Code.USAGE
    with pytest.raises(ConfigError, match="there is none"):
        versions.unpin(20)


@pytest.mark.parametrize("lost", ["version", "file"])
def test_a_pin_of_what_is_gone_is_refused_and_leaves_none(history: ReplicaHistory, lost: str) -> None:
    versions = ReplicaVersions(history.storage, TABLE)
    history.batch(10)
    found = versions.at(10)
    if lost == "file":
        [file] = history.replica.files(found.version).log
        history.storage.filesystem.delete_file(history.storage.path(LOG_PATH, file.path))
    else:
        for epoch in range(20, 160, 10):
            history.batch(epoch)
        history.compact(50)
        history.clean()
    with pytest.raises(StateError) as caught:
        versions.pin(found)
    assert caught.value.code is Code.STATE_TABLE_CORRUPT
    assert versions.pins.read() == {}


def test_a_pin_of_another_copy_of_the_state_keeps_nothing_and_hinders_nothing(
    history: ReplicaHistory,
) -> None:
    history.batch(10)
    version = history.replica.pin()
    TablePins(history.storage).pin(99, replace(version, log=700, base=700))
    for epoch in range(20, 120, 10):
        history.batch(epoch)
        history.compact(epoch)
    history.clean()
    assert len(history.storage.listed(LOG_PATH)) < 10
    assert rows_of(ReplicaVersions(history.storage, TABLE).at(110)) == history.at[110]


def test_a_damaged_pin_ends_a_round_of_cleaning_before_anything_is_deleted(history: ReplicaHistory) -> None:
    history.batch(10)
    history.storage.write_file(b"{", "pins", "10.json")
    with pytest.raises(StateError, match="pin"):
        TablePins(history.storage).read()
    assert history.storage.exists("pins", "10.json")
