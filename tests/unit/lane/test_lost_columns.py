"""A lane reports the columns of its records' frames, and records that have lost one; not those that came before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code
from schemas.formats.debezium import DebeziumFormat
from schemas.kinds.table_changes import RetireColumn, altered
from schemas.records import Barrier, BarrierKind
from schemas.table import TableSchema
from state.replica import LOG_PATH
from state.storage import Storage
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from state.values.seen import Seen
from streaming.core.redelivery import Judgement
from streaming.lane.run import run_lane
from streaming.lane.task import Faulty, LaneOutcome, LaneResult, Undone
from tests.kit.decoding import batch_of, raw
from tests.kit.lane_tasks import lane_task
from tests.kit.one_value import event, table_of

TABLE = table_of("int")
HAD = {0: Seen(columns=frozenset({"c"}))}
WITH, WITHOUT = event(1, {"type": "int32"}), event(1, {"type": "int32"}, name="d")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    storage = Storage(str(tmp_path))
    storage.filesystem.create_dir(storage.path(LOG_PATH), recursive=True)
    return storage


def outcome(storage: Storage, seen: dict[int, Seen], table: TableSchema = TABLE, **more: Any) -> LaneOutcome:
    """The outcome of a frame with column c, and one without."""
    barrier = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (2,), in_data=False)
    plan = BatchPlan(None, (barrier,), (0,), ReplicaVersion(0, 0, 0), 1, seen=seen)
    task = lane_task(storage, table, plan, upstream_format=DebeziumFormat(), **more)
    rows = batch_of(task.upstream_format, table, raw([WITH, WITHOUT]))
    return run_lane(task, 0, [rows], rows.schema)


def test_the_columns_of_frames_are_reported_by_partition(storage: Storage) -> None:
    found = outcome(storage, {})
    assert isinstance(found, LaneResult)
    assert found.seen[0].columns == {"c"}


def test_a_record_whose_frame_has_lost_a_column_is_invalid(storage: Storage) -> None:
    found = outcome(storage, HAD)
    assert isinstance(found, Undone)
    assert isinstance(found.why, Faulty)
    [fault] = found.why.faults
    assert (fault.offset, fault.code) == (1, Code.SCHEMA_INCOMPATIBLE)
    assert "column c" in fault.found


def test_a_retired_column_is_not_lost(storage: Storage) -> None:
    found = outcome(storage, HAD, altered(TABLE, [RetireColumn("c")]))
    assert isinstance(found, LaneResult)
    assert found.seen[0].columns == frozenset()


def test_a_redelivered_record_is_older_than_the_column(storage: Storage) -> None:
    judgement = Judgement(dropped={0: [(1, 1)]}, runs=(), falls=(), snapshots=(), seen={0: Seen()})
    found = outcome(storage, HAD, judgement=judgement)
    assert isinstance(found, LaneResult)
    assert (found.changes, found.redelivered) == (2, 1)
    assert found.seen[0].columns == {"c"}
