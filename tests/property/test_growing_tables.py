"""A table that grows by itself is the same however intervals are batched, and whichever partition comes first.

A slow model says what each row is: by its last record, and by the first one of all that has a column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import BackfillError, Code
from schemas.records import Barrier, BarrierKind, Op
from schemas.settings.config import ServiceConfig, check
from state.columns import OP
from state.journal import Entry
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan
from streaming.control.known_table import version_of, with_version
from streaming.kafka.clients import KafkaSettings
from streaming.lane.changes import order_changes
from streaming.lane.faults import find_faults
from streaming.protocol.bad_records import BadRecords
from streaming.service.columns import NewColumns
from streaming.source.decoded import AFTER, KEY
from streaming.source.records import RawRecord, Records
from tests.kit.decoding import batch_of

PARTITIONS = 2
Rows = dict[int, dict[str, Any]]


class Said(NamedTuple):
    """A record: the further fields that its schema has, each with its default, and their values. None: a delete.

    `kind` is the type of these fields in the schema.
    """

    key: int
    defaults: Mapping[str, int | None]
    values: Mapping[str, int | None] | None
    kind: str = "int32"


@st.composite
def said(draw: st.DrawFn) -> Said:
    names = draw(st.lists(st.sampled_from(["c", "d"]), unique=True))
    defaults = {name: draw(st.sampled_from([None, 0, 5, 6])) for name in names}
    kind = draw(st.sampled_from(["int32", "int32", "int64"]))
    more = [2**31, -(2**31) - 1] if kind == "int64" else [2**31 - 1, -(2**31)]
    values = {name: draw(st.sampled_from([None, 0, 5, 7, *more])) for name in names}
    key = draw(st.integers(0, 3))
    return Said(key, defaults, draw(st.sampled_from([values, values, values, None])), kind)


# Of each interval the records of each partition; a key has one partition.
INTERVALS = st.lists(st.tuples(*[st.lists(said(), max_size=3)] * PARTITIONS), min_size=1, max_size=4)


def home(each: Said, partition: int) -> Said:
    return each._replace(key=2 * each.key + partition)


def encoded(each: Said) -> tuple[bytes, bytes | None]:
    key = json.dumps({"id": each.key}).encode()
    if each.values is None:
        return key, None
    fields: list[dict[str, Any]] = [{"field": "id", "type": "int64"}]
    for name, default in each.defaults.items():
        more = {} if default is None else {"default": default}
        fields.append({"field": name, "type": each.kind, "optional": True, **more})
    payload = {"id": each.key, **each.values}
    frame = {"schema": {"type": "struct", "fields": fields}, "payload": payload}
    return key, json.dumps(frame).encode()


def model(intervals: Sequence[Sequence[Sequence[Said]]]) -> Rows:
    """Law 2.14, word by word."""
    ordered = [
        home(each, partition)
        for interval in intervals
        for partition, records in enumerate(interval)
        for each in records
    ]
    fills: dict[str, int | None] = {}
    for each in ordered:
        for name, default in each.defaults.items() if each.values is not None else ():
            fills.setdefault(name, default)
    rows: Rows = {}
    for each in ordered:
        rows.pop(each.key, None)
        if each.values is not None:
            rows[each.key] = {**fills, **each.values}
    return rows


@dataclass
class Service:
    """A service without a broker: batches of intervals, each tried again as the table grows."""

    intervals: Sequence[Sequence[Sequence[Said]]]
    upside_down: bool
    config: ServiceConfig
    entry: Entry | None = None
    rows: Rows = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.records: list[list[RawRecord]] = [[] for _ in range(PARTITIONS)]
        self.ends: list[list[int]] = [[0] * PARTITIONS]
        for interval in self.intervals:
            for partition, records in enumerate(interval):
                of_partition = self.records[partition]
                for each in records:
                    key, value = encoded(home(each, partition))
                    of_partition.append((partition, len(of_partition), key, value, False))
            self.ends.append([len(each) for each in self.records])
        self._settle(())

    def _settle(self, changes: Any) -> None:
        assert changes or self.entry is None, "a record that no change makes valid"
        version = version_of(self.config, self.entry, changes, state="s")
        self.entry = Entry("me", 1, json.dumps(version.to_dict()), None)
        self.config = with_version(self.config, version)

    def run(self, first: int, end: int) -> None:
        """The batch of some intervals."""
        barriers = tuple(
            AlignedBarrier(
                Barrier((n + 1) << 16, n << 16, BarrierKind.CHECKPOINT, 2, 0), tuple(ends), in_data=False
            )
            for n, ends in enumerate(self.ends[first + 1 : end + 1], first)
        )
        plan = BatchPlan(None, barriers, tuple(self.ends[first]), ReplicaVersion(0, 0, 0), 1)
        found = [
            record
            for partition in range(PARTITIONS)
            for record in self.records[partition][self.ends[first][partition] : self.ends[end][partition]]
        ]
        raw = Records.of(found[::-1] if self.upside_down else found)
        while not self._done(plan, raw):
            pass

    def _done(self, plan: BatchPlan, raw: Records) -> bool:
        table, format_ = self.config.table, self.config.upstream_format
        batch = batch_of(format_, table, raw)
        changes = order_changes([batch], batch.schema, plan, table)
        faults = find_faults(changes, table, format_=format_)
        assert {fault.code for fault in faults} <= {Code.SCHEMA_WAITS, Code.VALUE_OUT_OF_RANGE}
        if faults:
            try:
                BadRecords("up").leave_out(plan, [(fault, 0) for fault in faults])
            except BackfillError as fault:
                asked = Replayed(self.config, KafkaSettings("none"))
                asked.__dict__["records"] = self.records
                self._settle(asked.changes(fault, self.entry))
                return False
        for row in changes.rows.to_pylist():
            [key] = row[KEY].values() if isinstance(row[KEY], dict) else [json.loads(row[KEY])["id"]]
            self.rows.pop(key, None)
            if row[OP] != Op.DELETE:
                self.rows[key] = {name: value for name, value in row[AFTER].items() if name != "id"}
        return True

    @property
    def read(self) -> Rows:
        """Rows of before have the fill of what their files lack."""
        fills = {column.name: column.fill for column in self.config.table.columns if column.name != "id"}
        return {key: {**fills, **row} for key, row in self.rows.items()}


class Replayed(NewColumns):
    """Reads the records of a test."""

    def _value(self, partition: int, offset: int) -> bytes | None:
        found: bytes | None = self.__dict__["records"][partition][offset][3]
        return found


@given(INTERVALS, st.data())
def test_rows_do_not_depend_on_batches_or_on_the_order_of_partitions(
    intervals: list[tuple[list[Said], list[Said]]], data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(intervals) - 1)) if len(intervals) > 1 else st.just(set()))
    upside_down = data.draw(st.booleans())
    service = Service(intervals, upside_down, growing())
    for first, end in pairwise([0, *sorted(cuts), len(intervals)]):
        service.run(first, end)
    assert service.read == model(intervals)


def growing() -> ServiceConfig:
    declared = {
        "upstream": {"topic": "up", "format": "upsert", "on_new_column": "add", "on_wider_type": "widen"},
        "state": "s",
        "table": {"name": "t", "columns": {"id": "bigint"}, "primary_key": ["id"]},
    }
    return check(declared, path=Path("config.yaml"))


@pytest.mark.parametrize("upside_down", [False, True])
def test_the_first_record_by_interval_decides_wherever_it_is(upside_down: bool) -> None:
    early, late = (Said(1, {"c": fill}, {"c": 1}) for fill in (5, 6))
    old = Said(0, {}, {})
    for batches in ([(0, 2)], [(0, 1), (1, 2)]):
        service = Service([([old], [early]), ([late], [])], upside_down, growing())
        for first, end in batches:
            service.run(first, end)
        assert service.read == {0: {"c": 5}, 3: {"c": 1}, 2: {"c": 1}}
