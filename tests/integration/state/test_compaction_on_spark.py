"""Compactions and merges in Spark's Python workers, at once and beside each other."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from schemas.errors import Code, EnvironmentProblem
from schemas.records import Op
from state.columns import EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.maintenance.compaction import parts_of
from state.maintenance.merge import Merge
from state.replica import LOG_BOUNDS, Replica, write_log_file
from state.storage import DataFile, Storage
from streaming.runtime.session import compact_on, merge_on
from tests.kit.tables import table

TABLE = table(vnode_count=8)


@pytest.fixture
def replica(tmp_path: object) -> Replica:
    """With eight files of ten changes each."""
    replica = Replica(Storage(str(tmp_path)), TABLE)
    for epoch in range(1, 9):
        replica.append([changes(replica.storage, epoch)], epoch)
    return replica


def changes(storage: Storage, epoch: int) -> DataFile:
    own = {EPOCH: epoch, PARTITION: 0, OP: Op.INSERT}
    rows = [{**own, VNODE: n % 8, OFFSET: n, "id": n} for n in range(epoch * 10, epoch * 10 + 10)]
    return write_log_file(storage, pa.Table.from_pylist(rows, schema=log_schema(TABLE)), "log")


def merges(replica: Replica) -> list[Merge]:
    files = replica.log.files(LOG_BOUNDS)
    return [Merge(replica.storage, TABLE, tuple(files[:4])), Merge(replica.storage, TABLE, tuple(files[4:]))]


def test_merges_and_compactions_are_made_by_workers(spark: SparkSession, replica: Replica) -> None:
    before = replica.log.read().sort_by(OFFSET)
    for merged in merge_on(lambda: spark, merges(replica)):
        replica.replace_log_files(merged.files, merged.into)
    assert [file.rows for file in replica.log.files()] == [40, 40]
    assert replica.log.read().sort_by(OFFSET).equals(before)
    files = replica.files(replica.pin())
    result = compact_on(lambda: spark, parts_of(replica.storage, TABLE, files))
    replica.commit_compaction(result.added, result.removed, 8)
    assert (replica.trim(), replica.files(replica.pin()).base_rows) == (2, 80)


def test_a_merge_that_cannot_be_made_is_an_error_with_a_code(spark: SparkSession, replica: Replica) -> None:
    due = merges(replica)
    replica.storage.filesystem.delete_file(replica.storage.path("replica/log", due[0].files[0].path))
    with pytest.raises(EnvironmentProblem) as caught:
        merge_on(lambda: spark, due)
    assert caught.value.code is Code.SPARK_FAILED
