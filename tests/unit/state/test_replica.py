"""The writer's handle of base and log, on real Delta; compactions are made by hand here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.codec.logs import LogId
from schemas.errors import CommitConflict
from schemas.records import Op
from state.columns import EPOCH, VNODE, base_schema, log_schema
from state.replica import BASE_PATH, Replica, write_log_file
from state.storage import DataFile, Storage
from state.values.seen import Mark, Seen
from tests.kit.tables import table

pytestmark = pytest.mark.any_storage

TABLE = table(vnode_count=8)

LOG = LogId("postgresql", "shop", "shop")


def opened(storage: Storage) -> Replica:
    return Replica(storage, TABLE)


def log_file(storage: Storage, *rows: tuple[int, int, int]) -> DataFile:
    """Inserts as (vnode, epoch, id)."""
    values: list[dict[str, Any]] = [
        {VNODE: vnode, EPOCH: epoch, "_bf_partition": 0, "_bf_offset": id_, "_bf_op": Op.INSERT, "id": id_}
        for vnode, epoch, id_ in rows
    ]
    data = pa.Table.from_pylist(values, schema=log_schema(TABLE))
    return write_log_file(storage, data, "log")


def commit_compaction(storage: Storage, replica: Replica, epoch: int, *ids: int) -> None:
    """One file for each of these ids; nothing is taken out."""
    schema = pa.schema([field for field in base_schema(TABLE) if field.name != VNODE])
    files = [
        replace(
            storage.write_parquet(BASE_PATH, pa.Table.from_pylist([{"id": id_}], schema=schema), stem="base"),
            partition={VNODE: str(id_ % 8)},
        )
        for id_ in ids
    ]
    replica.commit_compaction(files, [], epoch)


def test_a_new_replica_is_empty(storage: Storage) -> None:
    replica = opened(storage)
    files = replica.files(replica.pin())
    assert (files.compacted_epoch, files.base_rows, files.log_rows, replica.log_epoch) == (0, 0, 0, 0)


def test_the_changes_of_a_batch_are_appended_once(storage: Storage) -> None:
    replica = opened(storage)
    replica.append([log_file(storage, (0, 10, 1), (3, 10, 2)), log_file(storage, (7, 10, 3))], 10)
    replica.append([log_file(storage, (0, 10, 1))], 10)
    assert replica.files(replica.pin()).log_rows == 3
    again = opened(storage)
    assert (again.log_epoch, again.id) == (10, replica.id)
    assert sorted(file.bounds[VNODE] for file in again.files(again.pin()).log) == [(0, 3), (7, 7)]


def test_what_was_seen_is_there_with_the_batch_and_after_what_maintenance_commits(storage: Storage) -> None:
    replica, first, second = (
        opened(storage),
        Seen({LOG: Mark((1, 8))}),
        Seen({LOG: Mark((2, 9), frozenset({"a"}))}, "key"),
    )
    assert opened(storage).seen is None
    replica.append_part([log_file(storage, (0, 10, 1))], 1, {0: first})
    assert opened(storage).seen == {0: first}
    replica.append([log_file(storage, (0, 10, 2))], 10, {0: first, 1: second})
    replica.append([log_file(storage, (0, 10, 2))], 10, {0: second})  # is there, with what was seen then
    commit_compaction(storage, replica, 10, 1, 2)
    assert replica.trim() == 2
    assert (replica.seen, opened(storage).seen) == ({0: first, 1: second}, {0: first, 1: second})
    replica.append([], 20, {})
    assert opened(storage).seen == {}


def test_a_batch_without_changes_moves_the_epoch_and_adds_no_file(storage: Storage) -> None:
    replica = opened(storage)
    replica.append([], 10)
    assert (replica.log_epoch, replica.files(replica.pin()).log) == (10, ())


def test_a_second_writer_of_the_log_is_refused(storage: Storage) -> None:
    ours, theirs = opened(storage), opened(storage)
    theirs.append([log_file(storage, (0, 10, 1))], 10)
    with pytest.raises(CommitConflict):
        ours.append([log_file(storage, (0, 10, 1))], 10)


def test_a_pinned_version_is_what_it_was_whatever_comes_later(storage: Storage) -> None:
    replica = opened(storage)
    replica.append([log_file(storage, (0, 10, 1))], 10)
    pinned = replica.pin()
    files = replica.files(pinned)
    replica.append([log_file(storage, (0, 20, 2))], 20)
    commit_compaction(storage, replica, 20, 1, 2)
    replica.trim()
    assert replica.files(replica.pin()) != files
    assert replica.files(pinned) == files
    assert opened(storage).files(pinned) == files


def test_a_compaction_counts_from_its_commit_and_for_others_from_when_they_look(storage: Storage) -> None:
    replica = opened(storage)
    replica.append([log_file(storage, (1, 10, 1))], 10)
    replica.append([log_file(storage, (2, 20, 2))], 20)
    other = opened(storage)
    commit_compaction(storage, replica, 10, 1)
    assert (other.compacted_epoch, other.files(other.pin()).base_rows) == (0, 0)
    other.reload()
    assert other.files(other.pin()) == replica.files(replica.pin())
    files = replica.files(replica.pin())
    assert (files.compacted_epoch, files.base_rows, files.log_rows) == (10, 1, 1)
    assert {vnode: [file.rows for file in found] for vnode, found in files.base.items()} == {1: [1]}


def test_trimming_takes_out_what_was_compacted_and_nothing_else(storage: Storage) -> None:
    replica = opened(storage)
    replica.append([log_file(storage, (1, 10, 1))], 10)
    replica.append([log_file(storage, (1, 20, 2), (1, 30, 3))], 30)
    assert replica.trim() == 0
    commit_compaction(storage, replica, 20, 1, 2)
    assert replica.trim() == 1
    assert replica.trim() == 0
    assert (replica.log_epoch, replica.files(replica.pin()).log_rows) == (30, 2)


def test_small_log_files_are_replaced_by_one_with_the_same_rows(storage: Storage) -> None:
    replica = opened(storage)
    small = [log_file(storage, (1, 10, 1)), log_file(storage, (2, 10, 2))]
    replica.append(small, 10)
    replica.replace_log_files(small, log_file(storage, (1, 10, 1), (2, 10, 2)))
    (merged,) = replica.files(replica.pin()).log
    assert (merged.rows, merged.bounds, replica.log_epoch) == (2, {VNODE: (1, 2), EPOCH: (10, 10)}, 10)


def test_a_lane_is_given_only_the_files_that_may_hold_its_vnodes(storage: Storage) -> None:
    replica = opened(storage)
    files = [
        log_file(storage, *((vnode, 10, vnode) for vnode in vnodes)) for vnodes in ((0, 1), (1, 4), (5, 6))
    ]
    replica.append(files, 10)
    commit_compaction(storage, replica, 5, 1, 4, 6)
    every = replica.files(replica.pin())
    some = every.of_vnodes(frozenset({2, 4}))
    assert {file.path for file in some.log} == {files[1].path}
    assert set(some.base) == {4}
    nothing = every.of_vnodes(frozenset())
    assert (nothing.log, dict(nothing.base)) == ((), {})


def test_the_few_commits_of_compactions_have_a_checkpoint_sooner_than_a_month(folder: Storage) -> None:
    """Commits go in front of a checkpoint only; a base is compacted some times a day."""
    replica = opened(folder)
    for number in range(folder.retention.base_checkpoint_commits):
        commit_compaction(folder, replica, number + 1, number)
    log = Path(folder.root, BASE_PATH, "_delta_log")
    assert len(list(log.glob("*.checkpoint.parquet"))) == 1
