"""The compaction on real Delta tables against a slow model of the table; parts are compacted one after another here."""

from __future__ import annotations

import functools
import operator
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from schemas.errors import Code, CommitConflict
from schemas.position import Key
from schemas.records import Op, Row
from schemas.table import TableSchema
from state import replica as state_replica
from state.columns import BEFORE_HASH, EPOCH, NO_PLACE, OFFSET, OP, PARTITION, VNODE, log_schema
from state.file_rows import FileRows
from state.maintenance import compaction, compaction_rows
from state.maintenance.compaction import CompactionResult, Illegal, compact_part, parts_of
from state.replica import BASE_PATH, Replica, write_log_file
from state.storage import Storage
from state.values.plan import Slice
from streaming.scan.snapshot import SnapshotReader
from tests.kit.tables import table, vnode_of
from tests.kit.values import examples
from tests.kit.vnodes import SEED, hash_input

TABLE = table({"b": "string", "n": "int", "a": "decimal(5,2)"}, key=["b"], vnode_count=4)


@dataclass
class Changelog:
    """Appends changes to the log of a replica, and keeps the table that they make."""

    replica: Replica
    rows: dict[Key, Row] = field(default_factory=dict)
    epoch: int = 0
    _offset: int = 0
    _pending: list[dict[str, object]] = field(default_factory=list)

    def change(self, op: Op, before: Row | None, after: Row | None, partition: int = 3) -> None:
        """Add a change as it is, legal or not."""
        row = after or before
        assert row is not None
        key = TABLE.key_of(row)
        if after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = after
        place = {PARTITION: partition, OFFSET: self._offset}
        own = {VNODE: vnode_of(TABLE, key), EPOCH: self.epoch + 1, **place, OP: op}
        hashed = {BEFORE_HASH: None if before is None else spark_hash(TABLE, before)}
        self._pending.append(own | hashed | dict(zip(TABLE.column_names, row, strict=True)))
        self._offset += 1

    def put(self, row: Row) -> None:
        before = self.rows.get(TABLE.key_of(row))
        self.change(Op.INSERT if before is None else Op.UPDATE, before, row)

    def delete(self, key: Key) -> None:
        self.change(Op.DELETE, self.rows[key], None)

    def barrier(self) -> None:
        self.epoch += 1
        random.Random(self.epoch).shuffle(self._pending)
        data = pa.Table.from_pylist(self._pending, schema=log_schema(TABLE))
        file = write_log_file(self.replica.storage, data, "log")
        self.replica.append([file], self.epoch)
        self._pending = []

    def compaction(self) -> CompactionResult:
        replica = self.replica
        parts = parts_of(replica.storage, TABLE, replica.files(replica.pin()))
        vnodes = [vnode for part in parts for vnode in part.vnodes if part.after is None]
        assert vnodes == list(range(TABLE.vnode_count))
        result = functools.reduce(operator.or_, map(compact_part, parts))
        replica.commit_compaction(result.added, result.removed, self.epoch)
        replica.trim()
        return result


def spark_hash(schema: TableSchema, row: Row) -> int:
    """Spark's xxhash64 over all columns: nulls leave the seed as it is."""
    seed = SEED
    for value, column in zip(row, schema.columns, strict=True):
        if value is not None:
            seed = xxhash.xxh64_intdigest(hash_input(value, column.type), seed)
    return seed - (1 << 64) if seed >> 63 else seed


@pytest.fixture
def changelog(storage: Storage) -> Changelog:
    return Changelog(Replica(storage, TABLE))


def base_rows(replica: Replica) -> list[Row]:
    """The base as any reader of Delta sees it."""
    found = replica.storage.delta(BASE_PATH).to_pyarrow_table().to_pylist()
    return sorted((tuple(row[name] for name in TABLE.column_names) for row in found), key=repr)


def replica_rows(replica: Replica) -> list[Row]:
    """The table as the lanes read it, base and log."""
    reader = SnapshotReader(replica.storage, TABLE, replica.files(replica.pin()))
    names = TABLE.column_names
    overlay = reader.overlay(frozenset(range(4)), names)
    slices = (Slice(vnode, None, None) for vnode in range(4))
    tables = (rows for item in slices for rows in reader.read(item, names, overlay))
    return sorted(
        (tuple(row[name] for name in names) for rows in tables for row in rows.to_pylist()), key=repr
    )


def some_changes(changelog: Changelog, number: int, chance: random.Random) -> None:
    for _ in range(number):
        key = chance.choice(["", "a", "b", "c", "ä", "\uffff", "\U0001f600", *map(str, range(20))])
        if (key,) in changelog.rows and chance.random() < 0.4:
            changelog.delete((key,))
        else:
            changelog.put((key, chance.choice([None, 1, 2]), None))


@pytest.mark.any_storage
def test_the_base_becomes_the_table_and_the_replica_is_the_table_all_along(changelog: Changelog) -> None:
    chance = random.Random(1)
    for number in range(6):
        some_changes(changelog, 30, chance)
        changelog.barrier()
        assert replica_rows(changelog.replica) == sorted(changelog.rows.values(), key=repr)
        if number % 2:
            assert changelog.compaction().illegal == {}
            assert changelog.replica.compacted_epoch == changelog.epoch
            assert base_rows(changelog.replica) == sorted(changelog.rows.values(), key=repr)
            assert replica_rows(changelog.replica) == base_rows(changelog.replica)
            assert changelog.replica.files(changelog.replica.pin()).log_rows == 0


@pytest.mark.any_storage
def test_a_vnode_that_lost_all_its_rows_is_empty_and_the_others_are_left_alone(changelog: Changelog) -> None:
    for number in range(20):
        changelog.put((str(number), number, None))
    changelog.barrier()
    changelog.compaction()
    before = changelog.replica.files(changelog.replica.pin()).base
    for key in [key for key in changelog.rows if vnode_of(TABLE, key) == 2]:
        changelog.delete(key)
    changelog.barrier()
    report = changelog.compaction()
    after = changelog.replica.files(changelog.replica.pin()).base
    assert report.vnodes == 1
    assert after == {vnode: files for vnode, files in before.items() if vnode != 2}
    assert replica_rows(changelog.replica) == sorted(changelog.rows.values(), key=repr)


def test_changes_that_contradict_the_table_are_counted_and_the_first_is_named(changelog: Changelog) -> None:
    for key in ("a", "b", "c"):
        changelog.put((key, 1, None))
    changelog.barrier()
    changelog.compaction()
    changelog.put(("a", 2, None))
    changelog.change(Op.INSERT, None, ("a", 3, None))  # present: offset 4
    changelog.change(Op.DELETE, ("z", 1, None), None)  # absent
    changelog.change(Op.UPDATE, ("y", 1, None), ("y", 2, None))  # absent
    changelog.change(Op.UPDATE, ("b", 7, None), ("b", 8, None))  # another row is there
    changelog.change(Op.DELETE, ("c", None, None), None)  # another row is there
    changelog.change(Op.INSERT, None, ("d", 1, None))
    changelog.change(Op.UPDATE, ("d", 1, None), ("d", 2, None), partition=0)
    changelog.barrier()
    report = changelog.compaction()
    assert report.illegal == {
        Code.KEY_IN_TWO_PARTITIONS: Illegal(1, (0, 10)),
        Code.INSERT_EXISTING_KEY: Illegal(1, (3, 4)),
        Code.DELETE_MISSING_KEY: Illegal(2, (3, 5)),
        Code.OLD_ROW_MISMATCH: Illegal(2, (3, 7)),
    }
    assert base_rows(changelog.replica) == sorted(changelog.rows.values(), key=repr)


@pytest.mark.any_storage
def test_a_compaction_that_is_run_again_does_nothing(changelog: Changelog) -> None:
    some_changes(changelog, 30, random.Random(2))
    changelog.barrier()
    replica = changelog.replica
    parts = parts_of(replica.storage, TABLE, replica.files(replica.pin()))
    result = changelog.compaction()
    version = replica.base.version
    again = functools.reduce(operator.or_, map(compact_part, parts))
    replica.commit_compaction(again.added, again.removed, changelog.epoch)
    assert (again.rows_read, replica.base.version) == (result.rows_read, version)
    assert base_rows(replica) == sorted(changelog.rows.values(), key=repr)


def test_a_large_vnode_has_several_files_in_key_order(
    changelog: Changelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "ROWS_PER_FILE", 4)
    for number in range(60):
        changelog.put((str(number), number, None))
    changelog.barrier()
    changelog.compaction()
    replica = changelog.replica
    base = replica.files(replica.pin()).base
    reader = SnapshotReader(replica.storage, TABLE, replica.files(replica.pin()))
    for files in base.values():
        assert [file.rows for file in files[:-1]] == [4] * (len(files) - 1)
        in_files = sorted(reader.base_keys(file)[0].to_pylist() for file in files)
        keys = [key for keys in in_files for key in keys]
        assert keys == sorted(keys)
    assert base_rows(replica) == sorted(changelog.rows.values(), key=repr)


def in_pieces(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Parts and files of so many bytes, and row groups of two rows."""
    for module in (compaction, compaction_rows):
        monkeypatch.setattr(module, "BYTES_PER_PART", size)
    monkeypatch.setattr(compaction, "BYTES_PER_FILE", size)
    monkeypatch.setattr(state_replica, "ROWS_PER_GROUP", 2)


@pytest.mark.parametrize("size", [1, 50, 300])
@pytest.mark.parametrize("seed", range(examples(8)))
def test_a_compaction_in_pieces_makes_the_base_that_a_compaction_of_everything_at_once_makes(
    changelog: Changelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, seed: int
) -> None:
    at_once = Changelog(Replica(Storage(str(tmp_path / "at-once")), TABLE))
    for number in range(4):
        for each in (changelog, at_once):
            chance = random.Random(f"{seed} {number}")
            some_changes(each, 40, chance)
            if chance.random() < 0.5:
                each.change(Op.INSERT, None, ("a", 7, None), partition=chance.choice([0, 3]))
                each.change(Op.UPDATE, ("b", 8, None), ("b", 9, None))
                each.change(Op.DELETE, ("absent", 1, None), None)
            each.barrier()
        whole = at_once.compaction()
        with monkeypatch.context() as patched:
            in_pieces(patched, size)
            pieces = changelog.compaction()
        assert (pieces.vnodes, pieces.illegal) == (whole.vnodes, whole.illegal)
        assert base_rows(changelog.replica) == base_rows(at_once.replica)
        assert replica_rows(changelog.replica) == sorted(changelog.rows.values(), key=repr)
        files = changelog.replica.files(changelog.replica.pin()).base
        reader = SnapshotReader(
            changelog.replica.storage, TABLE, changelog.replica.files(changelog.replica.pin())
        )
        for of_vnode in files.values():
            runs = sorted(reader.base_keys(file)[0].to_pylist() for file in of_vnode)
            keys = [key for run in runs for key in run]
            assert keys == sorted(set(keys)), "files of a vnode are disjoint and sorted"


def test_only_the_ranges_of_a_large_vnode_that_changed_are_written_anew(
    changelog: Changelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pieces(monkeypatch, 60)
    for number in range(200):
        changelog.put((f"{number:03}", number, None))
    changelog.barrier()
    changelog.compaction()
    replica = changelog.replica
    before = {file.path for files in replica.files(replica.pin()).base.values() for file in files}
    changelog.put(("100", 1, None))
    changelog.barrier()
    result = changelog.compaction()
    after = {file.path for files in replica.files(replica.pin()).base.values() for file in files}
    assert result.vnodes == 1
    assert len(before - after) == len(result.removed) < len(before) / 8
    assert base_rows(replica) == sorted(changelog.rows.values(), key=repr)


def test_rows_that_are_wider_than_their_file_s_average_are_read_in_smaller_pieces(
    changelog: Changelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_rows, "BYTES_PER_PART", 2_000)
    taken: list[int] = []
    take = FileRows.take

    def noted(*args: Any) -> pa.Table | None:
        found = take(*args)
        taken.append(0 if found is None else found.nbytes)
        return found

    monkeypatch.setattr(FileRows, "take", noted)
    for number in range(1_000):
        changelog.put((f"{number:03}", number, None))
        if number % 20 == 0:
            changelog.put(("w" * 900 + str(number), number, None))
    changelog.barrier()
    changelog.compaction()
    assert max(taken) <= 2 * 2_000
    assert 0 in taken, "no piece was larger than expected"
    assert base_rows(changelog.replica) == sorted(changelog.rows.values(), key=repr)


@pytest.mark.any_storage
def test_a_second_writer_of_the_base_is_refused(changelog: Changelog) -> None:
    changelog.put(("a", 1, None))
    changelog.barrier()
    rival = Replica(changelog.replica.storage, TABLE)
    changelog.compaction()
    with pytest.raises(CommitConflict):
        rival.commit_compaction([], [], changelog.epoch)
    rival.reload()
    assert rival.compacted_epoch == changelog.epoch


def test_a_key_is_in_the_order_of_its_barriers_whatever_its_offsets_are(changelog: Changelog) -> None:
    first, second, third = ("k", 1, None), ("k", 2, None), ("k", 3, None)
    changelog._offset = 1_000
    changelog.change(Op.INSERT, None, first, partition=0)
    changelog.barrier()
    changelog._offset = 0
    changelog.change(Op.UPDATE, first, second, partition=NO_PLACE)
    changelog.change(Op.UPDATE, second, third, partition=NO_PLACE)
    changelog.barrier()
    assert replica_rows(changelog.replica) == [third]
    assert not changelog.compaction().illegal
    assert base_rows(changelog.replica) == [third]
