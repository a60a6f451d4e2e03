"""Columns that frames have lost: what lanes find, batch by batch, is what one reader of whole partitions finds.

A frame has lost a column if a record of an earlier batch of its partition had it, whichever lane read that record. One
that is older than the first with the column has not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from schemas.codec.json.frame_columns import FrameColumns
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.registry import DEFAULT
from schemas.formats.upsert import UpsertFormat
from schemas.kinds.columns import lost_column_in
from schemas.kinds.table_changes import RetireColumn, altered
from schemas.records import Barrier, BarrierKind
from schemas.table import declare
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from state.values.seen import Seen, marks_from_dict, marks_to_dict, merged, without_columns
from streaming.lane.changes import order_changes
from streaming.lane.frames import FramesSeen
from streaming.source.decoded import LACKING
from streaming.source.records import Records
from tests.kit.decoding import batch_of, raw

PARTITIONS, LANES = 2, 2
TABLE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", "c": "int", "d": {"type": "int", "field": ["d", "d_new"]}},
        "primary_key": ["id"],
    }
)
FORMAT = UpsertFormat()


class Framed(NamedTuple):
    """A record: the fields of its frame beside the key; None for one without a frame."""

    key: int
    names: frozenset[str] | None

    @property
    def lacking(self) -> set[str]:
        names = self.names or frozenset()
        return {name for name, own in (("c", {"c"}), ("d", {"d", "d_new"})) if not names & own}


NAMES = st.frozensets(st.sampled_from(["c", "d", "d_new", "e"]))
RECORDS = st.builds(Framed, st.integers(0, 4), st.none() | NAMES)
INTERVALS = st.lists(st.tuples(*[st.lists(RECORDS, max_size=3)] * PARTITIONS), min_size=1, max_size=5)


def framed(names: Sequence[str], payload: Any) -> dict[str, Any]:
    fields = [{"field": name, "type": "int32", "optional": True} for name in names]
    return {"schema": {"type": "struct", "fields": fields}, "payload": payload}


def value_of(record: Framed) -> bytes:
    row = {"id": record.key, **dict.fromkeys(sorted(record.names or ()), 1)}
    return json.dumps(row if record.names is None else framed(["id", *sorted(record.names)], row)).encode()


class Lane:
    """The records of one lane; each key is in one of them."""

    def __init__(self, intervals: Sequence[Sequence[Sequence[Framed]]], number: int) -> None:
        self.ends = [(0,) * PARTITIONS]
        self.rows = list[list[Any]]()
        for interval in intervals:
            own = []
            for partition, records in enumerate(interval):
                first = self.ends[-1][partition]
                own += [
                    (partition, offset, json.dumps({"id": each.key}).encode(), value_of(each), False)
                    for offset, each in enumerate(records, first)
                    if each.key % LANES == number
                ]
            self.rows.append(own)
            self.ends.append(
                tuple(end + len(each) for end, each in zip(self.ends[-1], interval, strict=True))
            )

    def batch(self, first: int, end: int, before: dict[int, Seen]) -> FramesSeen:
        """The state behind the batch of some intervals; `faults` are those that it found."""
        barrier = AlignedBarrier(
            Barrier(1 << 16, 0, BarrierKind.INITIAL, PARTITIONS, 0), self.ends[end], False
        )
        plan = BatchPlan(None, (barrier,), self.ends[first], ReplicaVersion(0, 0, 0), LANES, seen=before)
        batch = batch_of(FORMAT, TABLE, Records.of([row for rows in self.rows[first:end] for row in rows]))
        seen = FramesSeen(TABLE, before)
        self.faults = {
            (fault.partition, fault.offset): lost_column_in(fault.found)
            for fault in seen(order_changes([batch], batch.schema, plan, TABLE))
        }
        return seen


def expected(
    intervals: Sequence[Sequence[Sequence[Framed]]], cuts: Sequence[int]
) -> dict[tuple[int, int], str]:
    """By whole partitions, record by record."""
    found = {}
    for partition in range(PARTITIONS):
        had, offset = set[str](), 0
        for first, end in pairwise(cuts):
            records = [each for interval in intervals[first:end] for each in interval[partition]]
            for record in records:
                if record.names is not None and (lost := sorted(record.lacking & had)):
                    found[partition, offset] = lost[0]
                offset += 1
            for record in records:
                had |= set() if record.names is None else {"c", "d"} - record.lacking
    return found


@given(INTERVALS, st.data())
def test_a_frame_lacks_what_an_earlier_batch_of_its_partition_had(
    intervals: list[tuple[list[Framed], list[Framed]]], data: st.DataObject
) -> None:
    inner = data.draw(st.sets(st.integers(1, len(intervals) - 1)) if len(intervals) > 1 else st.just(set()))
    cuts = [0, *sorted(inner), len(intervals)]
    lanes = [Lane(intervals, number) for number in range(LANES)]
    found, seen = dict[tuple[int, int], str | None](), dict[int, Seen]()
    for first, end in pairwise(cuts):
        after = [lane.batch(first, end, seen).added_to({}) for lane in lanes]
        found |= {place: name for lane in lanes for place, name in lane.faults.items()}
        seen = marks_from_dict(json.loads(json.dumps(marks_to_dict(merged(seen, after)))))
    assert found == expected(intervals, cuts)


# Frames -----------------------------------------------------------------------------------------------------------


def lacking(*values: Any, image: str | None = None) -> list[str | None]:
    given_bytes = [
        each if each is None or isinstance(each, bytes) else json.dumps(each).encode() for each in values
    ]
    columns = [column for column in TABLE.columns if column.name != "id"]
    found: list[str | None] = (
        FrameColumns(columns, image).lacking(raw([(b"k", each) for each in given_bytes]).values).to_pylist()
    )
    return found


@given(st.lists(RECORDS, max_size=30))
@example([Framed(0, frozenset(map(str, range(size)))) for size in range(12)] * 2)
def test_each_record_has_what_its_own_frame_lacks(records: list[Framed]) -> None:
    assert lacking(*map(value_of, records)) == [
        None if each.names is None else ",".join(sorted(each.lacking)) for each in records
    ]


def test_what_has_no_schema_of_a_row_lacks_nothing() -> None:
    row = {"id": 1, "c": 1}
    assert lacking(
        None,
        b"",
        b'{"schema"',
        b'{"schema": {"fields": [{"field": "id"}]}, "payload": \xff}',
        {"schema": None, "payload": row},
        {"schema": {"type": "struct", "fields": []}, "payload": row},
        {"payload": row, "schema": framed(["id"], row)["schema"]},
        framed(["id"], None),
        {"schema": "text"},
        json.dumps(framed(["id"], row)).encode() + b"\xff",  # though another record has its frame
        b'{"schema": [}, "payload": 5}',
    ) == [None, None, None, "c,d", None, None, None, "c,d", None, None, None]


def test_the_row_of_an_event_is_a_field_of_its_schema() -> None:
    schema = framed(["id", "d_new"], {})["schema"]
    event = {"schema": {"type": "struct", "fields": [{"field": "after", **schema}, {"field": "c"}]}}
    gone = {"op": "d", "before": {"id": 1}, "after": None}
    other = framed(["status", "id"], {"status": "BEGIN"})
    assert lacking({**event, "payload": gone}, other, image="after") == ["c", None]


def test_formats_that_judge_frames() -> None:
    both = declare(
        {"name": "t", "columns": {"id": "int", "schema": "int", "payload": "int"}, "primary_key": ["id"]}
    )
    judging = UpsertFormat(), DebeziumFormat()
    assert all(each.frame_columns(TABLE) is not None for each in judging)
    assert judging[1].frame_columns(both) is not None
    silent = (
        UpsertFormat(on_lost_column="null"),
        UpsertFormat(encoding="avro-registry"),
        DebeziumFormat(encoding="avro-registry"),
        DEFAULT,
    )
    assert all(each.frame_columns(TABLE) is None for each in silent)
    assert judging[0].frame_columns(both) is None


def test_a_retired_column_is_lost_no_more_and_may_come_back_later_in_each_partition() -> None:
    retired = altered(TABLE, [RetireColumn("c")])
    frames = FORMAT.frame_columns(retired)
    assert frames is not None
    assert frames.lacking(raw([(b"k", value_of(Framed(1, frozenset({"d"}))))]).values).to_pylist() == [""]
    before = {0: Seen(columns=frozenset({"c", "d"}))}
    assert without_columns(before, ["c"]) == {0: Seen(columns=frozenset({"d"}))}
    assert LACKING in batch_of(FORMAT, retired, raw([(b"k", b"{}")])).schema.names
