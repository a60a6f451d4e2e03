"""Files that a commit relies on are on the disk before it, and it before whatever follows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from schemas.errors import StateError
from state.ledger import Ledger
from state.maintenance.cleaning import clean_table
from state.retention import StateRetention
from state.storage import DataFile, Storage
from tests.kit.power import Disk

SCHEMA = pa.schema([("n", pa.int64())])
NUMBER = count()


@pytest.fixture
def disk(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(Path(storage.root), monkeypatch)


def rows(storage: Storage, *numbers: int) -> DataFile:
    return storage.write_parquet("replica/t", pa.table([list(numbers)], schema=SCHEMA), stem="x")


def ledger(storage: Storage) -> Ledger:
    storage.prepare()
    return Ledger(storage, "replica/t", SCHEMA)


def after_power_loss(storage: Storage, disk: Disk, tmp_path: Path) -> Storage:
    """After what was under way: before, a process would not have gone on."""
    storage.await_synced()
    return Storage(str(disk.lose_power(tmp_path / f"left-{next(NUMBER)}")))


def numbers(storage: Storage) -> list[int]:
    return sorted(ledger(storage).read()["n"].to_pylist())


def test_a_commit_that_returned_survives_a_power_failure(
    storage: Storage, disk: Disk, tmp_path: Path
) -> None:
    table = ledger(storage)
    assert numbers(after_power_loss(storage, disk, tmp_path)) == []
    first = rows(storage, 1)
    table.commit([first], epoch=1)
    assert numbers(after_power_loss(storage, disk, tmp_path)) == [1]
    table.commit([rows(storage, 2)], [first], epoch=2)
    left = after_power_loss(storage, disk, tmp_path)
    assert (numbers(left), ledger(left).epoch) == ([2], 2)


def test_a_checkpoint_is_on_the_disk_before_the_commits_that_it_stands_for_are_deleted(
    storage: Storage, disk: Disk, tmp_path: Path
) -> None:
    often = Storage(storage.root, StateRetention(files_s=0, log_s=0, checkpoint_commits=4))
    table = ledger(often)
    for number in range(9):
        table.commit([rows(often, number)], epoch=number + 1)
    often.await_synced()
    assert clean_table(often, "replica/t").log > 0
    assert numbers(after_power_loss(often, disk, tmp_path)) == list(range(9))


def test_what_another_process_has_committed_is_synced_before_it_is_relied_on(
    storage: Storage, disk: Disk, tmp_path: Path
) -> None:
    table = ledger(storage)
    unsynced = Storage(storage.root, synced=False)
    files = [rows(storage, 1), rows(storage, 2)]
    storage.sync("replica/t")
    storage.await_synced()  # or the name of what comes next is synced with those before it
    ledger(unsynced).commit(files[:1], epoch=1)
    assert numbers(after_power_loss(storage, disk, tmp_path)) == []
    table.reload()
    assert numbers(after_power_loss(storage, disk, tmp_path)) == [1]
    ledger(unsynced).commit(files[1:], epoch=2)
    ledger(storage)
    assert numbers(after_power_loss(storage, disk, tmp_path)) == [1, 2]


def test_without_it_nothing_is_synced(storage: Storage, disk: Disk) -> None:
    unsynced = Storage(storage.root, synced=False)
    ledger(unsynced).commit([rows(unsynced, 1)], epoch=1)
    assert not disk.syncs


def journal(storage: Storage, commits: int) -> list[DataFile]:
    """A table with commits 1, 2, … and a row in each; their files."""
    storage.prepare()
    table = Ledger(storage, "journal", SCHEMA)
    files = []
    for number in range(1, commits + 1):
        row = pa.table([[number]], schema=SCHEMA)
        files.append(storage.write_parquet("journal", row, stem="x"))
        table.commit(files[-1:], epoch=number)
    return files


def _empty(commit: Path) -> None:
    commit.write_bytes(b"")


def _cut(commit: Path) -> None:
    commit.write_bytes(commit.read_bytes()[:-20])


def _zero(commit: Path) -> None:
    commit.write_bytes(bytes(commit.stat().st_size))


@pytest.mark.parametrize("tear", [_empty, _cut, _zero])
def test_a_torn_newest_commit_is_set_aside_and_made_again(
    storage: Storage, tear: Callable[[Path], None]
) -> None:
    files = journal(storage, 2)
    newest = Path(storage.root, "journal/_delta_log", f"{2:020d}.json")
    tear(newest)
    with pytest.raises(StateError):
        Ledger(storage, "journal", SCHEMA)
    assert storage.set_torn_aside() == [f"journal/_delta_log/{newest.name}"]
    again = Ledger(storage, "journal", SCHEMA)
    assert (again.version, again.epoch) == (1, 1)
    again.commit(files[1:], epoch=2)
    assert sorted(Ledger(storage, "journal", SCHEMA).read()["n"].to_pylist()) == [1, 2]
    assert not storage.set_torn_aside()


def test_a_torn_commit_below_others_stays_an_error(storage: Storage) -> None:
    journal(storage, 2)
    _empty(Path(storage.root, "journal/_delta_log", f"{1:020d}.json"))
    assert not storage.set_torn_aside()
    with pytest.raises(StateError):
        Ledger(storage, "journal", SCHEMA)


@pytest.mark.parametrize("tear", [_empty, _cut])
def test_a_torn_checkpoint_is_set_aside_with_what_points_to_it(
    storage: Storage, tear: Callable[[Path], None]
) -> None:
    journal(Storage(storage.root, StateRetention(checkpoint_commits=4)), 4)
    (checkpoint,) = Path(storage.root, "journal/_delta_log").glob("*.checkpoint.parquet")
    tear(checkpoint)
    assert len(storage.set_torn_aside()) == 2
    assert sorted(Ledger(storage, "journal", SCHEMA).read()["n"].to_pylist()) == [1, 2, 3, 4]
