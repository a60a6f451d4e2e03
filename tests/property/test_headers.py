"""Headers of records come with their changes to the outputs that ask for them, and to no others: a plain model."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.formats.registry import DEFAULT
from schemas.job import JobDefinition
from schemas.records import Barrier, BarrierKind, Change, Op
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.plan import BatchPlan, JobPlan, JobState
from streaming.lane.changes import order_changes
from streaming.sink.columns import ChangeColumns, EncodedRecords, Headers
from streaming.sink.output import Output
from streaming.source.decoded import Changes, RecordDecoder
from streaming.source.exchange import BLOCK, Exchange, lane_keys, unpacked
from streaming.source.records import Records, RecordVnodes, Routes
from tests.kit.avro_codec import ChangeCodec, KeyCodec
from tests.kit.tables import table
from tests.kit.values import examples

TABLE = table(vnode_count=8)
CHANGES, KEYS = ChangeCodec(TABLE.columns), KeyCodec(TABLE.key_columns)
LANES = 3
NAMES = ("trace-id", "tenant", "x", "épreuve")
FORMS: list[dict[str, Any]] = [
    {},
    {"format": "upsert"},
    {"format": "debezium"},
    {"format": "debezium", "tombstones": False},
]


class Written(NamedTuple):
    """A record of the upstream."""

    op: Op
    number: int
    headers: Headers


HEADERS = st.lists(
    st.tuples(st.sampled_from([*NAMES, "another"]), st.none() | st.binary(max_size=5)), max_size=4
).map(tuple)
RECORDS = st.lists(st.builds(Written, st.sampled_from(Op), st.integers(0, 20), HEADERS), max_size=25)


def job(form: dict[str, Any], headers: tuple[str, ...]) -> JobDefinition:
    declared = {"name": "copy", "output": "copy", "headers": list(headers), **form}
    return JobDefinition.declare(declared, TABLE)


def plan_of(count: int, *jobs: JobDefinition) -> BatchPlan:
    barrier = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0), (count,), in_data=False)
    plans = tuple(JobPlan(JobState(each, start=1), ()) for each in jobs)
    return BatchPlan(None, (barrier,), (0,), ReplicaVersion(0, 0, 0), LANES, jobs=plans)


def raw(written: list[Written], names: tuple[str, ...]) -> Records:
    """The records as a source gives them: with the headers of these names, and with none if there are no names."""
    rows = []
    for offset, each in enumerate(written):
        image = (each.number, 1, "v")
        before, after = (None if each.op is Op.INSERT else image), (None if each.op is Op.DELETE else image)
        value = CHANGES.encode(Change(each.op, before, after))
        record = (0, offset, KEYS.encode((each.number,)), value, False)
        own = [{"key": name, "value": held} for name, held in each.headers if name in names]
        rows.append((*record, own) if names else record)
    return Records.of(rows, headers=bool(names))


def lanes_of(records: Records, plan: BatchPlan, *, exchanged: bool) -> list[Changes]:
    """The changes of each lane, brought there by the exchange or read by it directly."""
    routes, vnodes, found = Routes.of(plan, TABLE), RecordVnodes(DEFAULT, TABLE), []
    blocks = Exchange(DEFAULT, TABLE, routes, headers=plan.headers).packed([records.batch])
    rows = [row for batch in blocks for row in batch.to_pylist()]
    for lane in range(LANES):
        own = pa.array(routes.placed(records, vnodes.of(records)).among(lane))
        mine = [row[BLOCK] for row in rows if row["lane_key"] == lane_keys(LANES)[lane]]
        batch = pa.record_batch({BLOCK: pa.array(mine, pa.binary())})
        parts = unpacked([batch], headers=bool(plan.headers)) if exchanged else iter([records.filter(own)])
        decoder = RecordDecoder(DEFAULT, TABLE)
        decoded = [decoder.decoded(part, vnodes.of(part).numbers) for part in parts]
        schema = decoded[0].schema if decoded else decoder.schema
        found.append(order_changes(decoded, schema, plan, TABLE))
    return found


def sent(changes: Changes, definition: JobDefinition) -> EncodedRecords:
    count = len(changes)
    return ChangeColumns(
        output=Output(definition, TABLE),
        decoded=changes,
        rows=np.arange(count),
        ops=changes.ops,
        partitions=np.zeros(count, np.int32),
        parts=changes.vnodes,
        bounds=np.array([0, count]),
        barriers=[Barrier(1 << 16, 0, BarrierKind.INITIAL, 1, 0)],
    ).records


def expected(written: list[Written], offsets: list[int], definition: JobDefinition) -> list[Headers]:
    own = []
    for each in (written[offset] for offset in offsets):
        headers = tuple(pair for pair in each.headers if pair[0] in definition.headers)
        twice = each.op is Op.DELETE and definition.format.tombstone_follows
        own += [headers] * (1 + twice)
    return own


@pytest.mark.parametrize("exchanged", [True, False], ids=["exchanged", "direct"])
@settings(max_examples=examples(60))
@given(
    written=RECORDS,
    asked=st.lists(st.sets(st.sampled_from(NAMES)).map(sorted).map(tuple), min_size=1, max_size=3),
    forms=st.lists(st.sampled_from(FORMS), min_size=3, max_size=3),
)
def test_each_output_has_the_headers_that_it_asks_for_and_no_others(
    exchanged: bool, written: list[Written], asked: list[tuple[str, ...]], forms: list[dict[str, Any]]
) -> None:
    jobs = [job(form, names) for form, names in zip(forms, asked, strict=False)]
    plan = plan_of(len(written), *jobs)
    assert plan.headers == tuple(sorted(set(itertools.chain(*asked))))
    lanes = lanes_of(raw(written, plan.headers), plan, exchanged=exchanged)
    assert sum(map(len, lanes)) == len(written)
    for changes, definition in itertools.product(lanes, jobs):
        records = sent(changes, definition)
        if not definition.headers:
            assert records.headers is None
            continue
        assert list(records.headers or ()) == expected(written, changes.offsets.tolist(), definition)
        half = len(records) // 2
        parts = (records.slice(0, half), records.slice(half, len(records)))
        assert [each for part in parts for each in part.headers or ()] == list(records.headers or ())


def test_headers_count_as_bytes_of_their_record() -> None:
    written = [Written(Op.INSERT, 1, (("trace-id", b"x" * 100), ("tenant", None))), Written(Op.INSERT, 2, ())]
    definition = job({}, ("trace-id", "tenant"))
    plan = plan_of(2, definition)
    sizes: dict[int, int] = {}
    for changes in lanes_of(raw(written, plan.headers), plan, exchanged=False):
        records = sent(changes, definition)
        sizes |= {int(offset): records.size(row) for row, offset in enumerate(changes.offsets)}
    assert 100 + len("trace-id") + len("tenant") <= sizes[0] - sizes[1] <= 150


def test_nobody_who_asks_means_no_column() -> None:
    written = [Written(Op.INSERT, 1, (("trace-id", b"x"),))]
    plan = plan_of(1, job({}, ()))
    records = raw(written, plan.headers)
    assert records.headers is None
    assert all(changes.headers is None for changes in lanes_of(records, plan, exchanged=True))
