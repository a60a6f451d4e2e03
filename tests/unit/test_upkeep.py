"""Upkeep beside the batches, on real Delta; merging needs no Spark."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from schemas.records import Op
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


@pytest.mark.parametrize(("rest", "folded_at"), [(1_000_000, [1, 3]), (0, [1, 2, 3])])
def test_a_fold_is_followed_by_a_rest_until_the_log_outgrows_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: int, folded_at: list[int]
) -> None:
    monkeypatch.setattr(maintenance, "FOLD_REST", rest)
    replica = Replica(Storage(str(tmp_path)), TABLE)
    folded: list[int] = []
    upkeep = Upkeep(fold_here, replica, lambda report: folded.append(report.epoch), fold_least_rows=2)
    for epoch, changes in ((1, 8), (2, 4), (3, 5)):
        append(replica, epoch, changes)
        upkeep.between_batches(epoch, wait_for_fold=True)
    upkeep.close()
    assert folded == folded_at
