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
from state.replica import LOG_BOUNDS, Replica, write_log_file
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
    file = write_log_file(replica.storage, rows, "log")
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


class Pieces:
    """Folds, and notes of how many parts each piece was; every vnode is a part."""

    def __init__(self) -> None:
        self.sizes: Queue[int] = Queue()

    def __call__(self, parts: Sequence[FoldPart]) -> FoldResult:
        self.sizes.put(len(parts))
        return fold_here(parts)

    @property
    def rest(self) -> list[int]:
        """Those not taken yet."""
        return [self.sizes.get() for _ in range(self.sizes.qsize())]


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Pieces:
    monkeypatch.setattr(fold, "ROWS_PER_PART", 1)
    monkeypatch.setattr(maintenance, "PATIENCE_S", 60.0)
    return Pieces()


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    """With a change to fold."""
    replica = Replica(Storage(str(tmp_path)), TABLE)
    append(replica, 1)
    return replica


def test_pieces_of_a_fold_begin_in_the_pauses_between_batches_one_in_each(
    replica: Replica, pieces: Pieces
) -> None:
    folded: list[int] = []
    upkeep = Upkeep(pieces, replica, lambda report: folded.append(report.epoch), fold_least_rows=0)
    upkeep.batch_begins()
    for _ in range(TABLE.vnode_count):
        assert pieces.sizes.empty()
        upkeep.between_batches(1, wait_for_fold=False)
        assert pieces.sizes.get(timeout=30) == 1
    upkeep.finish()
    upkeep.close()
    assert folded == [1]


def test_a_fold_ends_with_whoever_began_it(replica: Replica, pieces: Pieces) -> None:
    upkeep = Upkeep(pieces, replica, lambda report: None, fold_least_rows=0)
    upkeep.between_batches(1, wait_for_fold=False)
    pieces.sizes.get(timeout=30)
    upkeep.close()
    upkeep.finish()
    assert pieces.sizes.empty()
    assert replica.files(replica.pin()).base == {}


def test_a_fold_waits_for_no_pause_when_its_time_is_over_and_takes_half_of_the_slots(
    replica: Replica, pieces: Pieces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PATIENCE_S", 0.01)
    upkeep = Upkeep(pieces, replica, lambda report: None, fold_least_rows=0, slots=lambda: 6)
    upkeep.between_batches(1, wait_for_fold=False)
    upkeep.batch_begins()
    upkeep.finish()
    upkeep.close()
    assert pieces.rest == [3, 3, 2]


def test_a_fold_that_is_waited_for_is_done_in_one_piece(replica: Replica, pieces: Pieces) -> None:
    upkeep = Upkeep(pieces, replica, lambda report: None, fold_least_rows=0)
    upkeep.between_batches(1, wait_for_fold=True)
    upkeep.close()
    assert pieces.rest == [TABLE.vnode_count]
