"""Files of the log that are merged, and their result."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.records import Op
from state import storage as storage_module
from state.columns import EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.maintenance import merge
from state.maintenance.merge import LEAST_FILES, MANY_FILES, Merge, choose_merges, merge_files
from state.replica import LOG_BOUNDS, LOG_PATH, Replica, write_log_file
from state.storage import DataFile, Storage
from tests.kit.tables import table

TABLE = table(vnode_count=8)


def file(rows: int, epoch: int = 1, size: int | None = None) -> DataFile:
    bounds = {VNODE: (0, 7), EPOCH: (epoch, epoch)}
    return DataFile(f"{epoch}-{rows}", rows * 20 if size is None else size, rows, bounds)


def merged(files: list[DataFile]) -> list[DataFile]:
    """The log after all merges that are due."""
    groups = choose_merges(files)
    gone = {id(one) for group in groups for one in group}
    into = [
        DataFile(
            "merged",
            sum(one.size for one in group),
            sum(one.rows for one in group),
            {VNODE: (0, 7), EPOCH: (group[0].bounds[EPOCH][0], group[-1].bounds[EPOCH][1])},
        )
        for group in groups
    ]
    return [one for one in files if id(one) not in gone] + into


def test_a_tier_is_merged_once_it_is_full_in_the_order_of_time() -> None:
    files = [file(100, epoch) for epoch in range(LEAST_FILES, 0, -1)]
    assert choose_merges(files[1:]) == []
    (group,) = choose_merges([*files, file(100_000)])
    assert [one.bounds[EPOCH][0] for one in group] == list(range(1, LEAST_FILES + 1))


def test_a_merge_has_a_bounded_number_of_files_rows_and_bytes() -> None:
    for group in choose_merges([file(100, epoch) for epoch in range(1_000)]):
        assert len(group) <= merge.MOST_FILES
    for group in choose_merges([file(40_000, epoch) for epoch in range(60)]):
        assert sum(one.rows for one in group) <= merge.LARGE_ROWS
    for group in choose_merges([file(5_000, epoch, size=3 << 20) for epoch in range(60)]):
        assert sum(one.size for one in group) <= merge.LARGE_BYTES


@pytest.mark.parametrize("large", [{"rows": merge.LARGE_ROWS}, {"rows": 10, "size": merge.LARGE_BYTES}])
def test_large_files_are_never_merged_again(large: dict[str, int]) -> None:
    assert choose_merges([file(epoch=epoch, **large) for epoch in range(20)]) == []


@pytest.mark.parametrize("seed", range(8))
def test_the_number_of_files_is_bounded_whatever_their_sizes(seed: int) -> None:
    """Of a log of 10 M and more changes that are never compacted."""
    chance = random.Random(seed)
    lanes, rows = chance.choice([1, 4, 80]), chance.choice([1, 200, 20_000, 300_000])
    files: list[DataFile] = []
    most = 0
    for epoch in range(1_000):
        files += [
            file(chance.randint(1, rows), epoch, size=chance.randint(1, 60 * rows)) for _ in range(lanes)
        ]
        files = merged(files)
        most = max(most, len(files))
    assert most <= 2 * MANY_FILES


def test_too_many_files_are_merged_whatever_tiers_they_are_in() -> None:
    files = [file(16**tier, epoch) for tier in range(4) for epoch in range(LEAST_FILES - 1)]
    assert choose_merges(files) == []
    assert choose_merges(files, others=MANY_FILES)


def rows(*changes: tuple[int, int, int]) -> pa.Table:
    """INSERTs as vnode, epoch and offset."""
    own = {PARTITION: 0, OP: Op.INSERT}
    values = [{**own, VNODE: v, EPOCH: e, OFFSET: o, "id": o, "v": "x" * 50} for v, e, o in changes]
    return pa.Table.from_pylist(values, schema=log_schema(TABLE))


@pytest.mark.any_storage
@pytest.mark.parametrize("part_rows", [1, 7, 250_000])
def test_a_merged_file_has_the_same_rows_and_true_bounds_however_many_parts_it_was_made_in(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, part_rows: int
) -> None:
    monkeypatch.setattr(merge, "PART_ROWS", part_rows)
    chance = random.Random(1)
    replica = Replica(storage, TABLE)
    changes = [(chance.randrange(1, 7), chance.randrange(5, 9), offset) for offset in range(100)]
    files = [write_log_file(storage, rows(*changes[n::5]), "log") for n in range(5)]
    replica.append(files, 9)
    made = merge_files(Merge(storage, TABLE, tuple(files)))
    replica.replace_log_files(made.files, made.into)
    (found,) = Replica(storage, TABLE).log.files(LOG_BOUNDS)
    held = pq.read_table(storage.path(LOG_PATH, found.path), filesystem=storage.filesystem, partitioning=None)
    assert held.schema.equals(log_schema(TABLE))
    assert found.rows == held.num_rows == 100
    assert sorted(zip(*(held[name].to_pylist() for name in (VNODE, EPOCH, OFFSET)), strict=True)) == sorted(
        changes
    )
    assert held[VNODE].to_pylist() == sorted(vnode for vnode, _, _ in changes)
    assert found.bounds == {VNODE: (1, 6), EPOCH: (5, 8)}
    assert found.size == storage.filesystem.get_file_info(storage.path(LOG_PATH, found.path)).size


@pytest.mark.parametrize("vnodes", [1, 8])
def test_a_merge_has_a_part_in_memory_at_a_time_of_one_vnode_too(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, vnodes: int
) -> None:
    monkeypatch.setattr(merge, "PART_BYTES", 40_000)
    monkeypatch.setattr(storage_module, "_BATCH_ROWS", 50)
    storage = Storage(str(tmp_path))
    Replica(storage, TABLE)
    changes = [(n % vnodes, 1, n) for n in range(4_000)]
    files = tuple(write_log_file(storage, rows(*changes[n::4]), "log") for n in range(4))
    parts = list(merge._parts(Merge(storage, TABLE, files)))
    assert sorted(offset for part in parts for offset in part[OFFSET].to_pylist()) == list(range(4_000))
    assert max(part.nbytes for part in parts) < 2 * 40_000
