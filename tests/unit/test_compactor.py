"""Maintenance beside the batches, on real Delta; merging needs no Spark."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Queue
from typing import NoReturn

import pyarrow as pa
import pytest
import structlog

from state.columns import EPOCH
from state.journal import Journal
from state.maintenance import compaction
from state.maintenance.compaction import CompactionPart, CompactionResult
from state.maintenance.merge import LEAST_FILES, Merge, Merged
from state.progress_table import ProgressTable
from state.replica import BASE_PATH, LOG_BOUNDS, Replica
from state.storage import Storage
from state.values.plan import Slice
from streaming.compaction import compactor as compactor_module
from streaming.compaction import maintenance
from streaming.compaction.compactor import MOST_LOG_FILES, Compactor
from streaming.scan.snapshot import SnapshotReader
from tests.kit.compactions import TABLE, append, compact_here, merge_here, no_compaction, no_merge


def test_a_merge_that_somebody_came_before_is_tried_again_on_what_is_there(tmp_path: Path) -> None:
    """The former owner may still commit to the log: that is no reason to end."""
    storage = Storage(str(tmp_path))
    replica = Replica(storage, TABLE)
    for epoch in range(1, LEAST_FILES + 1):
        append(replica, epoch)
    compactor = Compactor(no_compaction, merge_here, replica, lambda report: None)
    compactor.between_batches(LEAST_FILES, wait_for_compaction=False)
    append(Replica(storage, TABLE), LEAST_FILES + 1)
    compactor.finish()
    assert len(replica.log.files()) == LEAST_FILES + 1, "refused, and theirs is seen"
    compactor.between_batches(LEAST_FILES + 1, wait_for_compaction=False)
    compactor.finish()
    compactor.close()
    (merged,) = Replica(storage, TABLE).log.files(LOG_BOUNDS)
    assert (merged.rows, merged.bounds[EPOCH]) == (LEAST_FILES + 1, (1, LEAST_FILES + 1))


class Pieces:
    """Compactions, and notes of how many parts each piece was; every vnode is a part."""

    def __init__(self) -> None:
        self.sizes: Queue[int] = Queue()

    def __call__(self, parts: Sequence[CompactionPart]) -> CompactionResult:
        self.sizes.put(len(parts))
        return compact_here(parts)

    @property
    def rest(self) -> list[int]:
        """Results not taken yet."""
        return [self.sizes.get() for _ in range(self.sizes.qsize())]


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Pieces:
    monkeypatch.setattr(compaction, "ROWS_PER_PART", 1)
    monkeypatch.setattr(compactor_module, "LONGEST_WAIT_S", 60.0)
    return Pieces()


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    """With a change to compact."""
    replica = Replica(Storage(str(tmp_path)), TABLE)
    append(replica, 1)
    return replica


def test_pieces_of_a_compaction_begin_in_the_pauses_between_batches_one_in_each(
    replica: Replica, pieces: Pieces
) -> None:
    compacted: list[int] = []
    compactor = Compactor(
        pieces, no_merge, replica, lambda report: compacted.append(report.epoch), compaction_least_rows=0
    )
    compactor.batch_begins()
    for _ in range(TABLE.vnode_count):
        assert pieces.sizes.empty()
        compactor.between_batches(1, wait_for_compaction=False)
        assert pieces.sizes.get(timeout=30) == 1
    compactor.finish()
    compactor.close()
    assert compacted == [1]


def test_a_compaction_ends_with_the_instance_that_began_it(replica: Replica, pieces: Pieces) -> None:
    compactor = Compactor(pieces, no_merge, replica, lambda report: None, compaction_least_rows=0)
    compactor.between_batches(1, wait_for_compaction=False)
    pieces.sizes.get(timeout=30)
    compactor.close()
    compactor.finish()
    assert pieces.sizes.empty()
    assert replica.files(replica.pin()).base == {}


def test_a_compaction_waits_for_no_pause_when_its_time_is_over_and_takes_half_of_the_slots(
    replica: Replica, pieces: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compactor_module, "LONGEST_WAIT_S", 0.01)
    compactor = Compactor(
        pieces, no_merge, replica, lambda report: None, compaction_least_rows=0, slots=lambda: 6
    )
    compactor.between_batches(1, wait_for_compaction=False)
    compactor.batch_begins()
    compactor.finish()
    compactor.close()
    assert pieces.rest == [3, 3, 2]


def test_a_compaction_that_is_waited_for_is_done_in_one_piece(replica: Replica, pieces: Pieces) -> None:
    compactor = Compactor(pieces, no_merge, replica, lambda report: None, compaction_least_rows=0)
    compactor.between_batches(1, wait_for_compaction=True)
    compactor.close()
    assert pieces.rest == [TABLE.vnode_count]


@pytest.mark.parametrize(("least_bytes", "compacted"), [(1 << 30, []), (10, [1])])
def test_a_log_of_few_rows_is_compacted_if_they_are_wide(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, least_bytes: int, compacted: list[int]
) -> None:
    monkeypatch.setattr(compactor_module, "COMPACTION_LEAST_BYTES", least_bytes)
    reports: list[int] = []
    compactor = Compactor(compact_here, no_merge, replica, lambda report: reports.append(report.epoch))
    compactor.between_batches(1, wait_for_compaction=True)
    compactor.close()
    assert reports == compacted


class Held:
    """Compactions once it may."""

    def __init__(self) -> None:
        self.began, self.may = threading.Event(), threading.Event()

    def __call__(self, parts: Sequence[CompactionPart]) -> CompactionResult:
        self.began.set()
        assert self.may.wait(30)
        return compact_here(parts)


def epochs(replica: Replica) -> list[tuple[int, int]]:
    return sorted(file.bounds[EPOCH] for file in replica.log.files(LOG_BOUNDS))


def test_beside_a_compaction_files_are_merged_that_begin_behind_it_and_no_others(replica: Replica) -> None:
    for epoch in range(2, LEAST_FILES + 4):
        append(replica, epoch)
    compaction, last = Held(), LEAST_FILES + 3
    merges = Turned()
    compactor = Compactor(compaction, merges, replica, lambda report: None, compaction_least_rows=LEAST_FILES)
    compactor.between_batches(last, wait_for_compaction=False)
    assert compaction.began.wait(30)
    assert merges.count == 0, "what is folded leaves the log anyway"
    for epoch in range(last + 1, last + LEAST_FILES + 1):
        append(replica, epoch)
        compactor.between_batches(epoch, wait_for_compaction=False)
    compactor._merges.wait(30)
    compactor.between_batches(last + LEAST_FILES, wait_for_compaction=False)
    assert (last + 1, last + LEAST_FILES) in epochs(replica)
    compaction.may.set()
    compactor.finish()
    compactor.close()
    assert replica.compacted_epoch == last
    assert epochs(replica) == [(last + 1, last + LEAST_FILES)]
    assert_holds(replica, last + LEAST_FILES)


def assert_holds(replica: Replica, epochs: int) -> None:
    """Base and log together have one row of each epoch."""
    files = replica.files(replica.pin())
    reader = SnapshotReader(replica.storage, TABLE, files)
    overlay = reader.overlay(frozenset({0}), ["id"])
    found = [
        row for part in reader.read(Slice(0, None, None), ["id"], overlay) for row in part["id"].to_pylist()
    ]
    assert sorted(found) == [epoch * 100 for epoch in range(1, epochs + 1)]


class Turned:
    """Merges, and notes how many."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, merges: Sequence[Merge]) -> list[Merged]:
        self.count += len(merges)
        return merge_here(merges)


def test_a_merge_of_files_that_were_compacted_meanwhile_comes_to_nothing(replica: Replica) -> None:
    for epoch in range(2, LEAST_FILES + 1):
        append(replica, epoch)
    may = threading.Event()

    def late(merges: Sequence[Merge]) -> list[Merged]:
        assert may.wait(30)
        return merge_here(merges)

    compactor = Compactor(compact_here, late, replica, lambda report: None, compaction_least_rows=LEAST_FILES)
    compactor.between_batches(LEAST_FILES, wait_for_compaction=False)
    append(replica, LEAST_FILES + 1)
    compactor.between_batches(LEAST_FILES + 1, wait_for_compaction=True)
    assert epochs(replica) == []
    may.set()
    compactor.finish()
    compactor.close()
    assert epochs(replica) == []
    assert_holds(replica, LEAST_FILES + 1)


def test_a_compaction_of_a_base_that_somebody_else_has_compacted_meanwhile_comes_to_nothing(
    replica: Replica,
) -> None:
    """The former owner may commit a last one; its files hold what ours hold."""
    compaction = Held()
    compactor = Compactor(compaction, no_merge, replica, lambda report: None, compaction_least_rows=0)
    theirs = Replica(replica.storage, TABLE)
    append(replica, 2)
    compactor.between_batches(2, wait_for_compaction=False)
    assert compaction.began.wait(30)
    former = Compactor(compact_here, no_merge, theirs, lambda report: None, compaction_least_rows=0)
    former.between_batches(1, wait_for_compaction=True)
    former.close()
    replica.reload()
    compaction.may.set()
    compactor.finish()
    assert replica.compacted_epoch == 1
    compactor.between_batches(2, wait_for_compaction=True)
    compactor.close()
    assert replica.compacted_epoch == 2
    assert_holds(replica, 2)


def test_a_compaction_that_fails_keeps_neither_merges_nor_cleaning_waiting_and_is_tried_later_and_later(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    def fails(parts: object) -> NoReturn:
        tries.append(time.monotonic())
        raise MemoryError

    merges = Turned()
    Journal(replica.storage, TABLE).take_over("me", "{}")
    ProgressTable(replica.storage, TABLE)
    orphan = replica.storage.write_parquet(BASE_PATH, pa.table({"id": [1]}), stem="orphan")
    os.utime(replica.storage.path(BASE_PATH, orphan.path), (0, 0))
    monkeypatch.setattr(maintenance, "FIRST_DELAY_S", 0.02)
    compactor = Compactor(
        fails, merges, replica, lambda report: None, compaction_least_rows=0, first_cleaning_s=0.0
    )
    with structlog.testing.capture_logs() as logged:
        enough = 3 * LEAST_FILES
        for epoch in itertools.takewhile(lambda n: n < enough or len(tries) < 6, itertools.count(2)):
            append(replica, epoch)
            compactor.between_batches(epoch, wait_for_compaction=False)
            compactor._compaction.wait()
        compactor.finish()
    compactor.close()
    waits = [later - sooner for sooner, later in itertools.pairwise(tries)]
    assert all(wait >= 0.02 * 2**number for number, wait in enumerate(waits))
    failures = [line for line in logged if line.get("work") == "compaction"]
    assert [line["failures"] for line in failures] == list(range(1, len(tries) + 1))
    assert failures[0]["work"] == "compaction"
    assert "memory" in failures[0]["next_step"]
    assert merges.count > 0
    assert len(replica.log.files()) < 5 * LEAST_FILES
    assert not Path(replica.storage.path(BASE_PATH, orphan.path)).exists()


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [4, 80])
def test_a_batch_meets_a_bounded_number_of_log_files_however_many_lanes_write_them(
    tmp_path: Path, lanes: int
) -> None:
    replica = Replica(Storage(str(tmp_path)), TABLE)
    compactor = Compactor(
        compact_here, merge_here, replica, lambda report: None, compaction_least_rows=1 << 40
    )
    most = 0
    for epoch in range(1, 16):
        compactor.batch_begins()
        most = max(most, len(replica.files(replica.pin()).log))
        append(replica, epoch, count=lanes, files=lanes)
        compactor.between_batches(epoch, wait_for_compaction=False)
    compactor.finish()
    compactor.close()
    assert most <= MOST_LOG_FILES
    assert sum(file.rows for file in replica.log.files()) == 15 * lanes


def test_merges_take_half_of_the_slots_and_all_where_batches_wait_for_them(replica: Replica) -> None:
    sizes: list[tuple[int, int]] = []

    def noted(merges: Sequence[Merge]) -> list[Merged]:
        sizes.append((len(replica.log.files()), len(merges)))
        return merge_here(merges)

    compactor = Compactor(
        no_compaction, noted, replica, lambda report: None, compaction_least_rows=1 << 40, slots=lambda: 4
    )
    append(replica, 2, count=199, files=199)
    compactor.between_batches(2, wait_for_compaction=False)
    compactor.finish()
    append(replica, 3, count=300, files=300)
    compactor.between_batches(3, wait_for_compaction=False)
    compactor.finish()
    compactor.close()
    (at_rest, half), (behind, every), *_ = sizes
    assert (at_rest, half) == (MOST_LOG_FILES, 2)
    assert behind > MOST_LOG_FILES
    assert every == 4
