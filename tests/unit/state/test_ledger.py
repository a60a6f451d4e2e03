"""The table of one writer, on real Delta."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import fs

from schemas.errors import Code, CommitConflict, StateError
from state.ledger import Ledger
from state.storage import DataFile, Storage

pytestmark = pytest.mark.any_storage

SCHEMA = pa.schema([("n", pa.int64())])


def ledger(storage: Storage) -> Ledger:
    return Ledger(storage, "t", SCHEMA)


def file(storage: Storage, *numbers: int) -> DataFile:
    return storage.write_parquet(
        "t", pa.table([list(numbers)], schema=SCHEMA), stem="x", bound_columns=("n",)
    )


def numbers(table: Ledger) -> list[int]:
    return sorted(table.read()["n"].to_pylist())


def test_a_commit_adds_and_removes_files_and_carries_its_epoch(storage: Storage) -> None:
    table = ledger(storage)
    assert (numbers(table), table.epoch) == ([], 0)
    first = file(storage, 3, 1)
    table.commit([first], epoch=7)
    table.commit([file(storage, 2)], [first], epoch=None)
    assert (numbers(table), table.epoch) == ([2], 7)
    again = ledger(storage)
    assert (numbers(again), again.epoch, again.version, again.id) == ([2], 7, table.version, table.id)


def test_what_a_commit_brings_is_known_without_reading_the_commits(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    class Counting(DeltaTable):
        def transaction_version(self, app_id: str) -> int | None:
            reads.append(app_id)
            return super().transaction_version(app_id)

    monkeypatch.setattr("state.storage.DeltaTable", Counting)
    table = ledger(storage)
    assert (table.epoch, table.records) == (0, 0)
    for epoch in range(1, 9):
        table.commit([file(storage, epoch)], epoch=epoch, records=epoch * 10 if epoch < 5 else None)
        assert (table.epoch, table.records) == (epoch, min(epoch, 4) * 10)
    assert len(reads) == 2
    other = ledger(storage)
    other.commit([file(storage, 9)], epoch=9)
    table.reload()
    assert (table.epoch, table.records) == (9, 40)
    assert other.records == 40


def test_a_note_stays_until_a_commit_brings_another_one(storage: Storage) -> None:
    table = ledger(storage)
    table.commit([file(storage, 1)], epoch=1)
    assert ledger(storage).note is None
    table.commit([], epoch=2, note="one \n\u00e4")
    first = file(storage, 2)
    table.commit([first], epoch=3)
    table.commit([file(storage, 3)], [first], epoch=None, data_change=False)
    assert {table.note, ledger(storage).note} == {"one \n\u00e4"}
    rival = ledger(storage)
    rival.commit([], epoch=4, note="two")
    assert {table.note, rival.note} == {"one \n\u00e4", "two"}
    table.reload()
    assert (table.note, table.epoch) == ("two", 4)


def test_the_note_of_a_refused_commit_is_not_kept(storage: Storage) -> None:
    table, rival = ledger(storage), ledger(storage)
    rival.commit([file(storage, 1)], epoch=7, note="theirs")
    with pytest.raises(CommitConflict):
        table.commit([file(storage, 2)], epoch=8, note="ours")
    table.reload()
    assert table.note == "theirs"


def test_a_note_outlives_checkpoints_and_the_commits_before_them(storage: Storage) -> None:
    table = ledger(storage)
    table.commit([], epoch=1, note="kept")
    for epoch in range(2, 2 * storage.retention.checkpoint_commits + 2):
        table.commit([], epoch=epoch)
    assert ledger(storage).note == "kept"


def test_a_refused_commit_is_not_taken_for_one_s_own(storage: Storage) -> None:
    table, rival = ledger(storage), ledger(storage)
    assert table.epoch == 0
    rival.commit([file(storage, 1)], epoch=7)
    with pytest.raises(CommitConflict):
        table.commit([file(storage, 2)], epoch=8)
    table.reload()
    assert table.epoch == 7


def test_bounds_and_counts_of_files_come_back_as_they_were_written(storage: Storage) -> None:
    table = ledger(storage)
    table.commit([file(storage, 5, -2, 3)], epoch=1)
    (found,) = ledger(storage).files(("n",))
    assert (found.rows, found.bounds) == (3, {"n": (-2, 5)})


def test_an_empty_table_has_no_files(storage: Storage) -> None:
    assert ledger(storage).files(("n",)) == []


@pytest.mark.parametrize("wrote", [False, True], ids=["made", "made and written to"])
def test_of_two_that_make_it_at_one_moment_both_have_it(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, wrote: bool
) -> None:
    create = Storage.create_delta
    rivals: list[Ledger] = []

    def somebody_was_first(self: Storage, path: str, schema: pa.Schema, **how: Any) -> DeltaTable:
        monkeypatch.setattr(Storage, "create_delta", create)
        rivals.append(ledger(storage))
        if wrote:
            rivals[0].commit([file(storage, 1)], epoch=1)
        return create(self, path, schema, **how)

    monkeypatch.setattr(Storage, "create_delta", somebody_was_first)
    table = ledger(storage)
    assert (table.id, table.version) == (rivals[0].id, int(wrote))
    assert numbers(table) == [1] * wrote


def test_a_folder_that_another_one_makes_while_it_is_listed_is_no_fault(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow does not find the folder, asks whether it is there, and refuses to list one that is there by then."""

    class Late:
        """The storage's own file system, a moment later."""

        def __getattr__(self, name: str) -> Any:
            return getattr(filesystem, name)

        def get_file_info(self, asked: Any) -> Any:
            if isinstance(asked, fs.FileSelector) and asked.base_dir == storage.path("t"):
                monkeypatch.setattr(Storage, "filesystem", filesystem)
                ledger(storage)
                raise FileNotFoundError(2, "Cannot list directory")
            return filesystem.get_file_info(asked)

    filesystem = storage.filesystem
    monkeypatch.setattr(Storage, "filesystem", Late())
    assert ledger(storage).version == 0


def test_the_second_writer_of_a_version_is_refused_and_nothing_of_it_is_there(storage: Storage) -> None:
    ours, theirs = ledger(storage), ledger(storage)
    theirs.commit([file(storage, 1)], epoch=1)
    with pytest.raises(CommitConflict) as caught:
        ours.commit([file(storage, 2)], epoch=1)
    assert caught.value.code is Code.STATE_CONFLICT
    assert numbers(ledger(storage)) == [1]
    ours.reload()
    ours.commit([file(storage, 3)], epoch=2)
    assert numbers(ours) == [1, 3]


def test_a_commit_that_landed_although_its_answer_was_lost_is_known_again(storage: Storage) -> None:
    """A store that is asked twice refuses the second time: by then the version holds this very commit."""
    asked_once, asked_again = ledger(storage), ledger(storage)
    rows = file(storage, 1)
    asked_once.commit([rows], epoch=1)
    asked_again.commit([rows], epoch=1)
    assert (numbers(asked_again), asked_again.version) == ([1], asked_once.version)


def test_an_old_version_keeps_its_files(storage: Storage) -> None:
    table = ledger(storage)
    first = file(storage, 1)
    table.commit([first], epoch=1)
    version = table.version
    table.commit([file(storage, 2)], [first], epoch=2)
    assert [found.path for found in table.files(version=version)] == [first.path]


def test_many_commits_are_read_by_a_reader_that_was_never_there(folder: Storage) -> None:
    """More than a checkpoint's worth of them."""
    table = ledger(folder)
    for number in range(120):
        table.commit([file(folder, number)], epoch=number + 1)
    again = ledger(folder)
    assert (numbers(again), again.epoch) == (list(range(120)), 120)
    assert {found.bounds["n"] for found in again.files(("n",))} == {(n, n) for n in range(120)}


def test_a_table_that_does_not_open_is_named(storage: Storage) -> None:
    ledger(storage)
    log = storage.path("t", "_delta_log", f"{0:020d}.json")
    with storage.filesystem.open_output_stream(log) as out:
        out.write(b"damaged")
    with pytest.raises(StateError) as caught:
        ledger(storage)
    assert (caught.value.code, caught.value.where) == (Code.STATE_TABLE_CORRUPT, storage.uri("t"))


def test_the_table_is_an_ordinary_delta_table(folder: Storage) -> None:
    table = ledger(folder)
    table.commit([file(folder, 1, 2)], epoch=1)
    assert DeltaTable(folder.uri("t")).to_pyarrow_table()["n"].to_pylist() == [1, 2]


def break_first_commit(log: Path) -> None:
    (log / f"{0:020d}.json").write_text('{"commitInfo"')


def empty_the_last_commit(log: Path) -> None:
    (log / f"{1:020d}.json").write_text("")


def raise_the_protocol(log: Path) -> None:
    first = log / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 99, "minWriterVersion": 99}
    first.write_text("\n".join(map(json.dumps, lines)))


def point_to_no_checkpoint(log: Path) -> None:
    (log / "_last_checkpoint").write_text('{"version": 7, "size": 1}')


def take_the_first_commit_out(log: Path) -> None:
    (log / f"{0:020d}.json").unlink()


def take_the_log_out(log: Path) -> None:
    shutil.rmtree(log)


def take_the_data_out(log: Path) -> None:
    for data in log.parent.glob("*.parquet"):
        data.unlink()


def overwrite_the_data(log: Path) -> None:
    for data in log.parent.glob("*.parquet"):
        data.write_bytes(b"PAR1" * 5)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (break_first_commit, Code.STATE_TABLE_CORRUPT),
        (empty_the_last_commit, Code.STATE_TABLE_CORRUPT),
        (raise_the_protocol, Code.STATE_TABLE_CORRUPT),
        (take_the_first_commit_out, Code.STATE_TABLE_CORRUPT),
        (take_the_data_out, Code.STATE_TABLE_CORRUPT),
        (overwrite_the_data, Code.STATE_TABLE_CORRUPT),
        (take_the_log_out, Code.STATE_PATH_INVALID),
        (point_to_no_checkpoint, Code.STATE_TABLE_CORRUPT),
    ],
)
def test_a_damaged_table_is_named_and_never_made_anew(
    folder: Storage, damage: Callable[[Path], None], code: Code
) -> None:
    ledger(folder).commit([file(folder, 1)], epoch=1)
    damage(Path(folder.root, "t", "_delta_log"))
    with pytest.raises(StateError) as caught:
        numbers(ledger(folder))
    assert (caught.value.code, caught.value.exit_status) == (code, 6)
    assert str(caught.value.where).startswith(folder.uri("t"))
