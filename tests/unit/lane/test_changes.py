"""Records of a batch that are changes, and their intervals."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro.columnar import encode_keys
from schemas.errors import Code
from schemas.records import Barrier, BarrierKind, Op
from state.columns import BEFORE_HASH, OFFSET, OP, PARTITION, VNODE
from state.replica import LOG_PATH
from state.storage import Storage
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from streaming.lane.changes import order_changes
from streaming.lane.faults import find_faults
from streaming.lane.run import run_lane
from streaming.lane.task import LaneResult, LaneTask
from streaming.source.decoded import (
    AFTER,
    BEFORE,
    KEY,
    MARKED,
    SIZE,
    Changes,
    DecodedSchemaError,
    check_decoded,
    decoded_schema,
)
from tests.kit.lane_tasks import lane_task
from tests.kit.tables import table

TABLE = table()


def insert(id_: int, partition: int, offset: int) -> dict[str, Any]:
    key = encode_keys(TABLE.key_columns, [pa.array([id_])])[0].as_py()
    row = {"id": id_, "n": 0, "v": ""}
    own = {
        PARTITION: partition,
        OFFSET: offset,
        KEY: key,
        SIZE: 9,
        OP: Op.INSERT.value,
        VNODE: 0,
    }
    return {**own, BEFORE: None, AFTER: row, BEFORE_HASH: None}


def marked(partition: int, offset: int, key: bytes | None = None) -> dict[str, Any]:
    own = {PARTITION: partition, OFFSET: offset, KEY: key, SIZE: 1, OP: MARKED, VNODE: None}
    return {**own, BEFORE: None, AFTER: None, BEFORE_HASH: None}


def plan(*ends: tuple[int, ...], in_data: bool = True) -> BatchPlan:
    """Of barriers that end so."""
    barriers = tuple(
        AlignedBarrier(Barrier(n << 16, (n - 1) << 16, BarrierKind.CHECKPOINT, len(each), 0), each, in_data)
        for n, each in enumerate(ends, 1)
    )
    return BatchPlan(None, barriers, (0,) * len(ends[0]), ReplicaVersion(0, 0, 0), 1)


def decoded(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=decoded_schema(TABLE))


def ordered(plan: BatchPlan, *rows: dict[str, Any]) -> Changes:
    batch = decoded(*reversed(rows))
    return order_changes([batch], batch.schema, plan, TABLE)


def intervals(changes: Changes) -> list[tuple[int, int, int]]:
    """Interval, partition and offset of each change."""
    places = (changes.rows[name].to_pylist() for name in (PARTITION, OFFSET))
    return list(zip(changes.interval.tolist(), *places, strict=True))


PLACES = [(partition, offset) for partition in range(2) for offset in range(6)]


@given(st.permutations(PLACES), st.lists(st.integers(0, len(PLACES)), max_size=3))
def test_in_whatever_order_and_batches_changes_come_the_lane_has_the_same(
    places: list[tuple[int, int]], cuts: list[int]
) -> None:
    two = plan((3, 2), (6, 6), in_data=False)
    rows = [insert(10 * partition + offset, partition, offset) for partition, offset in places]
    bounds = [0, *sorted(cuts), len(rows)]
    batches = [decoded(*rows[first:end]) for first, end in pairwise(bounds)]
    found = order_changes(batches, batches[0].schema, two, TABLE)
    in_order = ordered(two, *[insert(10 * p + o, p, o) for p, o in PLACES])
    assert found.rows.equals(in_order.rows)
    assert found.interval.tolist() == in_order.interval.tolist()


@pytest.mark.parametrize("has_records", [True, False])
def test_intervals_end_before_the_ends_of_barriers_with_or_without_records_of_their_own(
    has_records: bool,
) -> None:
    changes = [insert(number, 0, number) for number in (0, 1, 3, 4)] + [insert(9, 1, 0)]
    own = [marked(0, 2), marked(0, 5), marked(1, 1), marked(1, 2)] if has_records else []
    ends = ((3, 2), (6, 3)) if has_records else ((3, 1), (5, 1))
    found = ordered(plan(*ends, in_data=has_records), *changes, *own)
    assert intervals(found) == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 3), (1, 0, 4)]
    assert not find_faults(found, TABLE)


def test_the_last_record_before_a_barrier_beside_the_data_is_a_change_like_any_other() -> None:
    beside = plan((1,), (3,), (3,), (4,), in_data=False)
    found = ordered(beside, *(insert(number, 0, number) for number in range(4)))
    assert intervals(found) == [(0, 0, 0), (1, 0, 1), (1, 0, 2), (3, 0, 3)]


@pytest.mark.parametrize(("in_data", "faults"), [(True, []), (False, [Code.AMBIGUOUS_RECORD])])
def test_a_marked_record_right_before_the_end_of_a_barrier_beside_the_data_is_not_its_marker(
    in_data: bool, faults: list[Code]
) -> None:
    found = ordered(plan((2,), in_data=in_data), insert(0, 0, 0), marked(0, 1))
    assert [fault.code for fault in find_faults(found, TABLE)] == faults


def test_a_lane_writes_the_last_record_before_a_barrier_beside_the_data_to_the_log(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.filesystem.create_dir(storage.path(LOG_PATH), recursive=True)
    rows = decoded(*(insert(number, 0, number) for number in range(4)))
    task = lane_task(storage, TABLE, plan((2,), (4,), in_data=False))
    result = run_lane(task, 0, [rows], rows.schema)
    assert isinstance(result, LaneResult)
    assert (result.changes, [file.rows for file in result.log]) == (4, [4])


@pytest.mark.parametrize(("offset", "key"), [(1, None), (1, b"\x02"), (3, b"\x02")])
def test_what_is_marked_as_a_barrier_and_is_none_of_the_plan_is_at_fault(
    offset: int, key: bytes | None
) -> None:
    found = ordered(plan((4,)), insert(0, 0, 0), marked(0, offset, key))
    assert [(fault.offset, fault.code) for fault in find_faults(found, TABLE)] == [
        (offset, Code.AMBIGUOUS_RECORD)
    ]


SCHEMA = decoded_schema(TABLE)


def replaced(name: str, kind: pa.DataType) -> pa.Schema:
    return SCHEMA.set(SCHEMA.get_field_index(name), pa.field(name, kind))


def test_other_places_further_columns_and_nullability_do_no_harm() -> None:
    row = pa.struct([field.with_nullable(False) for field in SCHEMA.field(AFTER).type])
    fields = [field.with_nullable(False) for field in reversed(list(replaced(AFTER, row)))]
    check_decoded(pa.schema([*fields, ("more", pa.int8())]), TABLE)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (SCHEMA.remove(SCHEMA.get_field_index(OFFSET)), r"lack the column _bf_offset \(int64\)"),
        (replaced(OP, pa.int32()), "column _bf_op of decoded records is int32, expected int8"),
        (replaced(BEFORE, pa.int8()), r"lack the column _bf_before.id \(int64\)"),
        (
            replaced(AFTER, pa.struct([("id", pa.int64()), ("n", pa.int64()), ("v", pa.string())])),
            "column _bf_after.n of decoded records is int64, expected int32",
        ),
        (
            replaced(BEFORE, pa.struct([("n", pa.int32()), ("id", pa.int64()), ("v", pa.string())])),
            r"column _bf_before of decoded records has \['n', 'id', 'v'\]",
        ),
    ],
)
def test_a_column_that_is_missing_or_of_another_type_is_named(schema: pa.Schema, problem: str) -> None:
    with pytest.raises(DecodedSchemaError, match=problem):
        check_decoded(schema, TABLE)


def test_a_lane_looks_at_its_door() -> None:
    class Task:
        table = TABLE

    with pytest.raises(DecodedSchemaError, match="_bf_op"):
        run_lane(cast("LaneTask", Task()), 0, [], replaced(OP, pa.int16()))
