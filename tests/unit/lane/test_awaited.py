"""A lane whose records name schemas that are not known does nothing but name them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.errors import Code
from schemas.formats.upsert import UpsertFormat
from schemas.records import Barrier, BarrierKind
from state.columns import BEFORE_HASH, OFFSET, OP, PARTITION, VNODE
from state.replica import LOG_PATH
from state.storage import Storage
from state.values.plan import AlignedBarrier, BatchPlan, ReplicaVersion
from streaming.lane.awaited import MOST_IDS, awaited_ids
from streaming.lane.changes import Changes, order_changes
from streaming.lane.run import run_lane
from streaming.lane.task import Awaits, Faulty, LaneResult, Undone
from streaming.source.decoded import AFTER, AWAITS, BEFORE, KEY, SIZE, VALUE, decoded_schema
from tests.kit.lane_tasks import lane_task
from tests.kit.tables import table

TABLE = table()
FORMAT = UpsertFormat(encoding="avro-registry")
KNOWN = KnownSchemas((WriterSchema(1, json.dumps("long")), WriterSchema(2, json.dumps("long"))))


def record(offset: int, op: int | None, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    own = {PARTITION: 0, OFFSET: offset, KEY: key, VALUE: value, SIZE: 9, OP: op, VNODE: None}
    return {**own, BEFORE: None, AFTER: None, BEFORE_HASH: None}


def waits(offset: int, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    return record(offset, AWAITS, key, value)


def plan(end: int, *skipped: int) -> BatchPlan:
    barrier = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (end,), in_data=False)
    places = tuple((0, offset) for offset in skipped)
    return BatchPlan(None, (barrier,), (0,), ReplicaVersion(0, 0, 0), 1, skipped=places)


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), decoded_schema(TABLE))


def ordered(*rows: dict[str, Any]) -> Changes:
    found = batch(*rows)
    return order_changes([found], found.schema, plan(len(rows)), TABLE)


def test_the_ids_of_both_halves_are_named_once_unless_the_registry_was_asked() -> None:
    rows = [
        waits(0, frame(1) + b"k", frame(7)),
        waits(1, frame(8) + b"k", None),
        waits(2, frame(9) + b"k", frame(7)),
        waits(3, frame(1), b"\x00\x00"),
        record(4, None, frame(99), frame(99)),
    ]
    assert awaited_ids(ordered(*rows), FORMAT.with_schemas(KNOWN)) == {7, 8, 9}
    asked = FORMAT.with_schemas(replace(KNOWN, refused=frozenset({8, 9})))
    assert awaited_ids(ordered(*rows), asked) == {7}
    text = UpsertFormat(encoding="avro-registry", key="text").with_schemas(KNOWN)
    assert awaited_ids(ordered(*rows), text) == {7}
    assert awaited_ids(ordered(rows[-1]), FORMAT.with_schemas(KNOWN)) == frozenset()


def test_a_topic_full_of_ids_is_asked_about_bit_by_bit() -> None:
    rows = [waits(number, frame(number + 10), None) for number in range(MOST_IDS + 5)]
    assert awaited_ids(ordered(*rows), FORMAT) == frozenset(range(10, MOST_IDS + 10))


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_lane_that_waits_writes_nothing_and_reports_no_faults(tmp_path: Path, in_parts: bool) -> None:
    storage = Storage(str(tmp_path))
    storage.filesystem.create_dir(storage.path(LOG_PATH), recursive=True)
    task = lane_task(storage, TABLE, plan(3), upstream_format=FORMAT.with_schemas(KNOWN), in_parts=in_parts)
    rows = [record(0, None, frame(1), b"\x01"), waits(1, frame(7), frame(2))]
    pieces = [batch(each) for each in rows]
    schema = decoded_schema(TABLE)
    assert run_lane(task, 0, pieces, schema) == Undone(0, Awaits(frozenset({7})))
    refused = replace(task, upstream_format=FORMAT.with_schemas(replace(KNOWN, refused=frozenset({7}))))
    refusal = run_lane(refused, 0, pieces, schema)
    assert isinstance(refusal, Undone)
    assert isinstance(refusal.why, Faulty)
    assert [(fault.offset, fault.code) for fault in refusal.why.faults] == [
        (0, Code.SCHEMA_INCOMPATIBLE),
        (1, Code.SCHEMA_UNKNOWN),
    ]
    left_out = run_lane(replace(refused, plan=plan(3, 0, 1)), 0, pieces, schema)
    assert isinstance(left_out, LaneResult)
    assert left_out.changes == 0
