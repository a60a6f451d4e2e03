from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from deltalake import DeltaTable

from schemas.errors import CommitConflict
from schemas.job import JobDefinition
from state import progress_table
from state.progress_table import ProgressRow, ProgressTable
from state.storage import Storage
from state.values.plan import JobState
from state.values.progress import Completed, InProgress, NotStarted, Progress
from tests.kit.tables import table

pytestmark = pytest.mark.any_storage

AMOUNT = Decimal("1.50")
TABLE = table({"a": "decimal(5,2)", "b": "string", "n": "int"}, key=["b", "a"], vnode_count=8)


def opened(storage: Storage) -> ProgressTable:
    return ProgressTable(storage, TABLE)


def load(store: ProgressTable, job: str, start: int) -> dict[int, Progress]:
    return dict(store.load([created(job, start)])[job])


def created(job: str, start: int, **how: Any) -> JobState:
    definition = JobDefinition.declare({"name": job, "output": job, **how}, TABLE)
    return JobState(definition, start)


def rows(job: str = "copy", **progress: Progress) -> list[ProgressRow]:
    """`v3=...` is vnode 3."""
    return [ProgressRow(job, int(name[1:]), state) for name, state in progress.items()]


def test_the_newest_row_of_each_vnode_counts(storage: Storage) -> None:
    store = opened(storage)
    store.commit(rows(v0=InProgress(("ü", AMOUNT), 3), v1=Completed(None, 0)), 10)
    store.commit(rows(v0=InProgress(("\U0001f600", AMOUNT), 5)), 20)
    store.commit(rows(v2=Completed(("z", AMOUNT), 7)), 30)
    assert load(opened(storage), "copy", 0) == {
        0: InProgress(("\U0001f600", AMOUNT), 5),
        1: Completed(None, 0),
        2: Completed(("z", AMOUNT), 7),
    }
    assert opened(storage).epoch == 30


def test_a_barrier_that_is_there_already_is_not_committed_again(storage: Storage) -> None:
    store = opened(storage)
    store.commit(rows(v0=Completed(None, 1)), 10)
    store.commit(rows(v0=Completed(None, 99)), 10)
    store.commit([], 5)
    assert (load(store, "copy", 0), store.epoch) == ({0: Completed(None, 1)}, 10)


def test_a_barrier_at_which_nothing_changed_is_remembered_too(storage: Storage) -> None:
    opened(storage).commit([], 10)
    assert opened(storage).epoch == 10


def test_a_second_writer_is_refused(storage: Storage) -> None:
    ours, theirs = opened(storage), opened(storage)
    theirs.commit(rows(v0=Completed(None, 1)), 10)
    with pytest.raises(CommitConflict):
        ours.commit(rows(v0=Completed(None, 2)), 10)


def test_jobs_are_kept_apart(storage: Storage) -> None:
    store = opened(storage)
    store.commit([*rows("a", v0=Completed(None, 1)), *rows("b", v0=InProgress(("x", AMOUNT), 2))], 10)
    assert load(store, "a", 0) == {0: Completed(None, 1)}
    assert load(store, "c", 0) == {}


def test_a_job_that_has_the_name_of_a_dropped_one_begins_with_nothing(storage: Storage) -> None:
    """Dropped and added in one batch, it starts at the very barrier of the former one's last rows."""
    store = opened(storage)
    store.commit(rows(v0=Completed(None, 1)), 10)
    store.commit(rows(v1=Completed(None, 1)), 20)
    assert load(store, "copy", 20) == {}
    store.commit(rows(v1=InProgress(("x", AMOUNT), 2)), 30)
    assert load(store, "copy", 20) == {1: InProgress(("x", AMOUNT), 2)}


def test_many_small_files_become_one_with_the_newest_rows(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_table, "_MERGE_FILES", 4)
    store = opened(storage)
    for number in range(1, 12):
        changed = rows(v0=InProgress((f"{number:03}", AMOUNT), number)) + rows("b", v1=Completed(None, 0))
        store.commit(changed, number * 10)
        assert len(store._ledger.files()) <= 4
    assert load(store, "copy", 0) == {0: InProgress(("011", AMOUNT), 11)}
    assert load(store, "b", 0) == {1: Completed(None, 0)}


def test_rows_of_dropped_jobs_leave_the_table_when_it_is_rewritten(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_table, "_MERGE_FILES", 3)
    store = opened(storage)
    store.commit([*rows("kept", v0=Completed(None, 1)), *rows("dropped", v0=Completed(None, 2))], 10)
    store.commit([*rows("again", v0=Completed(None, 3), v1=Completed(None, 4))], 20)
    store.commit(rows("again", v1=InProgress(("x", AMOUNT), 5)), 30, {"kept": 0, "again": 20})
    store.commit([], 40, {"kept": 0, "again": 20})
    left = storage.delta("progress").to_pyarrow_table().select(["job", "vnode", "barrier"])
    assert sorted(map(tuple, (row.values() for row in left.to_pylist()))) == [
        ("again", 1, 30),
        ("kept", 0, 10),
    ]
    store.commit(rows("last", v0=Completed(None, 1)), 50)
    store.commit(rows("last", v1=Completed(None, 1)), 60)
    store.commit([], 70, {})
    assert (opened(storage).epoch, store._ledger.files()) == (70, [])


def test_all_jobs_are_loaded_at_once(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(storage)
    store.commit([*rows("a", v0=Completed(None, 1)), *rows("b", v0=InProgress(("x", AMOUNT), 2))], 10)
    store.commit([*rows("a", v1=Completed(None, 3)), *rows("gone", v0=Completed(None, 4))], 20)
    reads: list[str] = []
    read = Storage.read_parquet

    def counted(storage: Storage, path: str, *args: Any, **how: Any) -> Any:
        reads.append(path)
        return read(storage, path, *args, **how)

    monkeypatch.setattr(Storage, "read_parquet", counted)
    jobs = [created("a", 0), created("b", 0), created("new", 20)]
    assert store.load(jobs) == {
        "a": {0: Completed(None, 1), 1: Completed(None, 3)},
        "b": {0: InProgress(("x", AMOUNT), 2)},
        "new": {},
    }
    assert reads == ["progress"]


def test_of_a_job_that_begins_now_all_is_done_from_its_start_on(storage: Storage) -> None:
    job = created("now", 10, format="upsert", **{"from": "now"})
    assert opened(storage).load([job])["now"] == {vnode: Completed(None, 0) for vnode in range(8)}


def test_anybody_can_read_the_table(folder: Storage) -> None:
    opened(folder).commit(rows(v3=InProgress(('a"b', AMOUNT), 3)), 10)
    assert DeltaTable(folder.uri("progress")).to_pyarrow_table().to_pylist() == [
        {
            "job": "copy",
            "vnode": 3,
            "position": '["a\\"b","1.50"]',
            "backfill_finished": False,
            "row_count": 3,
            "barrier": 10,
        }
    ]


def test_a_vnode_without_a_row_was_not_started(storage: Storage) -> None:
    store = opened(storage)
    store.commit(rows(v0=NotStarted()), 10)
    assert load(store, "copy", 0) == {0: NotStarted()}
