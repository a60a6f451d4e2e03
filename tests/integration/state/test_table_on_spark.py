"""Spark reads the replica at a barrier by the SQL that `backfill table` prints, also weeks after it was pinned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from state.retention import StateRetention
from state.storage import Storage
from streaming.control.table_version import ReplicaVersions
from tests.kit.replica_history import TABLE, ReplicaHistory

OFTEN = StateRetention(log_s=0, checkpoint_commits=4, base_checkpoint_commits=2)


def test_spark_reads_the_table_at_a_barrier_and_a_pinned_one_behind_a_gap_in_the_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = ReplicaHistory(replace(Storage(str(tmp_path / "state")), retention=OFTEN))
    versions = ReplicaVersions(history.storage, TABLE)
    for epoch in range(10, 60, 10):
        history.batch(epoch)
    history.compact(20)
    pinned = versions.at(40)
    versions.pin(pinned)
    for epoch in range(60, 200, 10):
        history.batch(epoch)
        if epoch % 50 == 0:
            history.compact(epoch)
        history.clean()
    for found in (pinned, versions.at(None)):
        rows = sorted(tuple(row) for row in spark.sql(found.spark).collect())
        assert rows == history.at[found.epoch]
