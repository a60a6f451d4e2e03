"""Upkeep beside the batches, on real Delta; merging needs no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from schemas.records import Op
from state.columns import EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.replica import LOG_BOUNDS, LOG_PATH, Replica
from state.storage import Storage
from streaming.service.maintenance import MERGE_FILES, Upkeep
from tests.kit.scene import table

TABLE = table(vnode_count=8)


def no_fold(parts: object) -> NoReturn:
    raise AssertionError("nothing is to be folded")


def append(replica: Replica, epoch: int) -> None:
    """A batch with one change."""
    row = {VNODE: 0, EPOCH: epoch, PARTITION: 0, OFFSET: epoch, OP: Op.INSERT, "id": epoch}
    rows = pa.Table.from_pylist([row], schema=log_schema(TABLE))
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
