"""A lane whose records name schemas that are not known does nothing but name them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.errors import Code
from schemas.formats.upsert import UpsertFormat
from schemas.records import Barrier, BarrierKind
from state.replica import LOG_PATH
from state.storage import Storage
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from streaming.lane.changes import order_changes
from streaming.lane.faults import MOST_IDS, awaited_ids
from streaming.lane.run import run_lane
from streaming.lane.task import Awaits, Faulty, LaneOutcome, LaneResult, LaneTask, Undone
from tests.kit.decoding import Record, batch_of, raw
from tests.kit.lane_tasks import lane_task
from tests.kit.tables import table

TABLE = table()
FORMAT = UpsertFormat(encoding="avro-registry")
KNOWN = KnownSchemas((WriterSchema(1, json.dumps("long")), WriterSchema(2, json.dumps("long"))))


def plan(end: int, *skipped: int) -> BatchPlan:
    barrier = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (end,), in_data=False)
    places = tuple((0, offset) for offset in skipped)
    return BatchPlan(None, (barrier,), (0,), ReplicaVersion(0, 0, 0), 1, skipped=places)


def awaited(*found: Record, format_: UpsertFormat | None = None) -> frozenset[int]:
    format_ = format_ or FORMAT.with_schemas(KNOWN)
    decoded = batch_of(format_, TABLE, raw(found))
    return awaited_ids(order_changes([decoded], decoded.schema, plan(len(found)), TABLE))


def test_the_ids_of_both_parts_are_named_once_unless_the_registry_was_asked() -> None:
    rows = [
        (frame(1) + b"k", frame(7)),
        (frame(8) + b"k", None),
        (frame(9) + b"k", frame(7)),
        (frame(1), b"\x00\x00"),
        (None, b""),
    ]
    assert awaited(*rows) == {7, 8, 9}
    asked = FORMAT.with_schemas(replace(KNOWN, refused=frozenset({8, 9})))
    assert awaited(*rows, format_=asked) == {7}
    text = UpsertFormat(encoding="avro-registry", key="text").with_schemas(KNOWN)
    assert awaited(*rows, format_=text) == {7}
    assert awaited(rows[-1]) == frozenset()


def test_a_topic_full_of_ids_is_asked_about_bit_by_bit() -> None:
    rows = [(frame(number + 10), None) for number in range(MOST_IDS + 5)]
    assert awaited(*rows, format_=FORMAT) == frozenset(range(10, MOST_IDS + 10))


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_lane_that_waits_writes_nothing_and_reports_no_faults(tmp_path: Path, in_parts: bool) -> None:
    storage = Storage(str(tmp_path))
    storage.filesystem.create_dir(storage.path(LOG_PATH), recursive=True)
    task = lane_task(storage, TABLE, plan(3), upstream_format=FORMAT.with_schemas(KNOWN), in_parts=in_parts)
    records = raw([(frame(1), b"\x01"), (frame(7), frame(2))])

    def outcome(task: LaneTask) -> LaneOutcome:
        rows = batch_of(task.upstream_format, TABLE, records)
        return run_lane(task, 0, [rows.slice(0, 1), rows.slice(1)], rows.schema)

    assert outcome(task) == Undone(0, Awaits(frozenset({7})))
    refused = replace(task, upstream_format=FORMAT.with_schemas(replace(KNOWN, refused=frozenset({7}))))
    refusal = outcome(refused)
    assert isinstance(refusal, Undone)
    assert isinstance(refusal.why, Faulty)
    assert [(fault.offset, fault.code) for fault in refusal.why.faults] == [
        (0, Code.SCHEMA_INCOMPATIBLE),
        (1, Code.SCHEMA_UNKNOWN),
    ]
    left_out = outcome(replace(refused, plan=plan(3, 0, 1)))
    assert isinstance(left_out, LaneResult)
    assert left_out.changes == 0
