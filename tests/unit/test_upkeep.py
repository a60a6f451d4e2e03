"""Upkeep beside the batches, on real Delta; merging needs no Spark."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from pathlib import Path
from queue import Queue
from typing import NoReturn

import pyarrow as pa
import pytest

from schemas.records import Op
from state import fold
from state.columns import EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.fold import FoldPart, FoldResult, fold_part
from state.replica import LOG_BOUNDS, LOG_PATH, Replica
from state.storage import Storage
from streaming.service import maintenance
from streaming.service.maintenance import MERGE_FILES, Upkeep
from tests.kit.scene import table

TABLE = table(vnode_count=8)


def no_fold(parts: object) -> NoReturn:
    raise AssertionError("nothing is to be folded")


def fold_here(parts: Sequence[FoldPart]) -> FoldResult:
    return functools.reduce(operator.or_, map(fold_part, parts), FoldResult())


def append(replica: Replica, epoch: int, count: int = 1) -> None:
    """A batch with so many changes."""
    row = {VNODE: 0, EPOCH: epoch, PARTITION: 0, OP: Op.INSERT}
    numbers = range(epoch * 100, epoch * 100 + count)
    rows = pa.Table.from_pylist([{**row, OFFSET: n, "id": n} for n in numbers], schema=log_schema(TABLE))
    file = replica.storage.write_parquet(LOG_PATH, rows, stem="log", bound_columns=LOG_BOUNDS)
    replica.append([file], epoch)


def test_a_merge_that_somebody_came_before_is_tried_again_on_what_is_there(tmp_path: Path) -> None:
    """Whom we took over from may still commit to the log: that is no reason to end."""
    storage = Storage(str(tmp_path))
    replica = Replica(storage, TABLE)
    for epoch in range(1, MERGE_FILES + 1):
        append(replica, epoch)
    upkeep = Upkeep(no_fold, replica, lambda report: None)
    upkeep.between_batches(MERGE_FILES, wait_for_fold=False)
    append(Replica(storage, TABLE), MERGE_FILES + 1)
    upkeep.finish()
    assert len(replica.log.files()) == MERGE_FILES + 1, "refused, and theirs is seen"
    upkeep.between_batches(MERGE_FILES + 1, wait_for_fold=False)
    upkeep.finish()
    upkeep.close()
    (merged,) = Replica(storage, TABLE).log.files(LOG_BOUNDS)
    assert (merged.rows, merged.bounds[EPOCH]) == (MERGE_FILES + 1, (1, MERGE_FILES + 1))


def test_pieces_of_a_fold_begin_in_the_pauses_between_batches_one_in_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PATIENCE_S", 60.0)
    monkeypatch.setattr(fold, "ROWS_PER_PART", 1)
    replica = Replica(Storage(str(tmp_path)), TABLE)
    pieces: Queue[list[FoldPart]] = Queue()

    def fold_one(parts: Sequence[FoldPart]) -> FoldResult:
        pieces.put(list(parts))
        return fold_here(parts)

    folded: list[int] = []
    upkeep = Upkeep(fold_one, replica, lambda report: folded.append(report.epoch), fold_least_rows=0)
    append(replica, 1)
    upkeep.batch_begins()
    for _ in range(TABLE.vnode_count):
        assert pieces.empty()
        upkeep.between_batches(1, wait_for_fold=False)
        assert len(pieces.get(timeout=30)) == 1
    upkeep.finish()
    upkeep.close()
    assert folded == [1]


def test_a_fold_ends_with_whoever_began_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PATIENCE_S", 60.0)
    monkeypatch.setattr(fold, "ROWS_PER_PART", 1)
    replica = Replica(Storage(str(tmp_path)), TABLE)
    pieces: Queue[list[FoldPart]] = Queue()

    def fold_one(parts: Sequence[FoldPart]) -> FoldResult:
        pieces.put(list(parts))
        return fold_here(parts)

    upkeep = Upkeep(fold_one, replica, lambda report: None, fold_least_rows=0)
    append(replica, 1)
    upkeep.between_batches(1, wait_for_fold=False)
    pieces.get(timeout=30)
    upkeep.close()
    upkeep.finish()
    assert pieces.empty()
    assert replica.files(replica.pin()).base == {}


def test_a_fold_waits_for_no_pause_when_its_time_is_over_and_takes_half_of_the_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PATIENCE_S", 0.01)
    monkeypatch.setattr(fold, "ROWS_PER_PART", 1)
    replica = Replica(Storage(str(tmp_path)), TABLE)
    pieces: list[int] = []

    def fold_some(parts: Sequence[FoldPart]) -> FoldResult:
        pieces.append(len(parts))
        return fold_here(parts)

    upkeep = Upkeep(fold_some, replica, lambda report: None, fold_least_rows=0, slots=lambda: 6)
    append(replica, 1)
    upkeep.between_batches(1, wait_for_fold=False)
    upkeep.batch_begins()
    upkeep.finish()
    upkeep.close()
    assert pieces == [3, 3, 2]


def test_a_fold_that_is_waited_for_is_done_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "ROWS_PER_PART", 1)
    replica = Replica(Storage(str(tmp_path)), TABLE)
    pieces: list[int] = []

    def fold_all(parts: Sequence[FoldPart]) -> FoldResult:
        pieces.append(len(parts))
        return fold_here(parts)

    upkeep = Upkeep(fold_all, replica, lambda report: None, fold_least_rows=0)
    append(replica, 1)
    upkeep.between_batches(1, wait_for_fold=True)
    upkeep.close()
    assert pieces == [TABLE.vnode_count]
