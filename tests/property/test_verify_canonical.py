"""The judge: outputs in every format are read back as they were written, and random histories are judged."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro.registered import KnownSchemas, SchemaIds, WriterSchema
from schemas.formats.outputs.formats import DebeziumOutput, UpsertOutput
from schemas.formats.protocol import Format, Origins, OutputFormat
from schemas.formats.upsert import UpsertFormat
from schemas.records import Barrier, BarrierKind, Change, Op
from schemas.table import declare
from streaming.reading.entries import RowChange
from streaming.reading.records.forms import RecordForm, RowImages
from streaming.verify.findings import Side
from streaming.verify.history import TopicEntry
from streaming.verify.records import canonical as module
from streaming.verify.records.canonical import Decoding, Processes, canonical, in_process
from tests.kit.avro_codec import KeyCodec
from tests.kit.columns import columns_of
from tests.kit.encoded_histories import ListSource, closing, judge
from tests.kit.histories import clean_history
from tests.kit.mutants import MUTANTS, folds_to_the_law
from tests.kit.mutants.service import KEY_SCHEMA, ROW_SCHEMA, UPSTREAMS
from tests.kit.mutants.service import TABLE as FAULTY
from tests.kit.values import examples, is_quick

TABLE = declare({"name": "t", "columns": {"id": "int", "a": "string", "b": "double"}, "primary_key": ["id"]})
BARRIER = Barrier(2 << 16, 1 << 16, BarrierKind.BARRIER, 1, 1_700_000_000_123)
IDS = SchemaIds(3, 4)
CASES: list[tuple[Format, OutputFormat]] = [
    (UpsertFormat(), UpsertOutput()),
    *((UpsertOutput(encoding=each).with_ids(IDS),) * 2 for each in ("json", "json-schema", "avro-registry")),
    *(
        (DebeziumOutput(encoding=each).with_ids(IDS),) * 2
        for each in ("json", "json-schema", "avro-registry")
    ),
    (DebeziumOutput(tombstones=False), DebeziumOutput(tombstones=False)),
]
KEYS, ROWS = KeyCodec(TABLE.key_columns), KeyCodec(TABLE.columns)
rows = st.tuples(
    st.integers(0, 3), st.sampled_from([None, "", "x", "é\n"]), st.sampled_from([None, 0.5, -0.0, 1e30])
)


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    found = []
    for op in draw(st.lists(st.sampled_from(Op), min_size=1, max_size=30)):
        before, after = draw(rows), draw(rows)
        after = (before[0], *after[1:])
        found.append(Change(op, None if op is Op.INSERT else before, None if op is Op.DELETE else after))
    return found


def records(format_: OutputFormat, found: Sequence[Change]) -> list[TopicEntry]:
    """Records as a sink sends them: with tombstones where the format has them."""
    length = len(found)
    origins = Origins(
        "copy", "t", np.arange(length, dtype=np.int32) % 2, np.zeros(length, np.int64), [BARRIER]
    )
    before, after = (
        columns_of(TABLE.columns, [getattr(change, half) for change in found]) for half in ("before", "after")
    )
    ops = pa.array([change.op for change in found], pa.int8())
    values = format_.values(TABLE.columns).changes(ops, before, after, origins).to_pylist()
    encode = format_.keys(TABLE.key_columns)
    assert encode is not None
    keys = encode(columns_of(TABLE.key_columns, [TABLE.key_of(change.row) for change in found])).to_pylist()
    sent: list[TopicEntry] = []
    for change, key, value in zip(found, keys, values, strict=True):
        sent.append(TopicEntry(0, key, value))
        if change.op is Op.DELETE and format_.tombstone_follows:
            sent.append(TopicEntry(0, key, None))
    return sent


def recoded(
    entries: Sequence[TopicEntry], format_: Format, decoding: Decoding = in_process
) -> list[TopicEntry]:
    form = RecordForm.of(format_)
    [source] = canonical([ListSource(entries)], form, TABLE.columns, TABLE.key_columns, decoding=decoding)
    return list(source.entries())


def expected(change: Change, format_: Format) -> RowChange:
    """A key and what a change amounts to in this format."""
    if RecordForm.of(format_).rows_before is RowImages.NONE:
        key_alone = (change.row[0], None, None)
        change = (
            Change(Op.DELETE, key_alone, None)
            if change.after is None
            else Change(Op.INSERT, None, change.after)
        )
    before, after = (None if row is None else ROWS.encode(row) for row in (change.before, change.after))
    return RowChange(KEYS.encode((change.row[0],)), before, after)


@pytest.mark.parametrize(("format_", "writes"), CASES, ids=lambda case: case.form)
@settings(max_examples=examples(40))
@given(found=changes(), chunk=st.sampled_from([1, 7, 1_000]))
def test_what_an_output_has_is_read_back(
    format_: Format, writes: OutputFormat, found: list[Change], chunk: int
) -> None:
    found = [
        replace(change, before=change.before and (change.row[0], *change.before[1:])) for change in found
    ]
    entries = [entry._replace(offset=offset) for offset, entry in enumerate(records(writes, found))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_RECORDS", chunk)
        read = recoded(entries, format_)
    assert [entry.change for entry in read] == [expected(change, format_) for change in found]
    assert [(entry.key, entry.value) for entry in read] == [
        (entries[entry.offset].key, entries[entry.offset].value) for entry in read
    ]


@pytest.mark.parametrize(("format_", "writes"), CASES[1:], ids=lambda case: case.form)
def test_an_output_has_one_form_of_each_record(format_: Format, writes: OutputFormat) -> None:
    row = 1, "é", 0.5
    [entry] = records(writes, [Change(Op.INSERT, None, row)])
    key, value = entry.key or b"", entry.value or b""
    others = [
        *((part + b" ", value) for part in (key,)),
        *(
            (key, other)
            for other in (value + b" ", b" " + value, value.replace(b"0.5", b"5e-1"), value[:-1], b"")
        ),
        (None, value),
        (b"", value),
    ]
    for other in others:
        if other != (key, value):
            [read] = recoded([TopicEntry(0, *other)], format_)
            assert (read.key, read.value, read.change) == (*other, None), other


def test_a_null_that_follows_no_delete_is_invalid_and_so_is_a_delete_without_one() -> None:
    format_, row = DebeziumOutput(), (1, "a", 0.5)
    insert, delete = Change(Op.INSERT, None, row), Change(Op.DELETE, row, None)
    first, gone, null = records(format_, [insert, delete])
    assert [bool(entry.change) for entry in recoded([first, null, gone, null], format_)] == [
        True,
        False,
        True,
    ]
    assert [bool(entry.change) for entry in recoded([gone, first], format_)] == [False, True]


@pytest.mark.slow
def test_other_processes_read_the_same_in_the_same_order() -> None:
    row = 1, "a", 0.5
    sound = [Change(Op.INSERT, None, row), Change(Op.UPDATE, row, row), Change(Op.DELETE, row, None)] * 700
    barrier = closing(BARRIER)
    with Processes(2) as processes:
        for format_, writes in CASES:
            sent = records(writes, sound)
            entries = [*sent[:1_500], barrier, *sent[1_500:], TopicEntry(0, b"{}", b"nothing")]
            entries = [entry._replace(offset=offset) for offset, entry in enumerate(entries)]
            there = recoded(entries, format_, processes.in_other_processes)
            assert there == recoded(entries, format_)
        schemas = KnownSchemas(
            (WriterSchema(1, json.dumps(KEY_SCHEMA)), WriterSchema(2, json.dumps(ROW_SCHEMA)))
        )
        form = RecordForm.of(UpsertFormat(encoding="avro-registry").with_schemas(schemas))
        _, registered = UPSTREAMS["upsert avro"]
        read = [
            list(source.entries())
            for how in (in_process, processes.in_other_processes)
            for source in canonical(
                [ListSource(registered)], form, FAULTY.columns, FAULTY.key_columns, decoding=how
            )
        ]
        assert read[0] == read[1]
        assert all(entry.change for entry in read[0])


CLEAN_SEEDS = examples(1_000)
SEEDS_OF_A_MUTANT = 150
FEWEST_APPLIED = 10


@pytest.mark.slow
def test_nothing_is_found_in_a_clean_history() -> None:
    records = 0
    for seed in range(CLEAN_SEEDS):
        report = judge(clean_history(random.Random(seed)))
        assert report.clean, f"seed {seed}: {report.findings}"
        records += report.output_records
    assert records > 10 * CLEAN_SEEDS, "histories too small to mean anything"


@pytest.mark.parametrize("seed", range(examples(200)))
def test_nothing_is_found_where_a_job_begins_now(seed: int) -> None:
    report = judge(clean_history(random.Random(seed), from_now=True))
    assert report.clean, report.findings
    assert (report.snapshot_rows, report.vnodes_finished) == (0, report.vnode_count)


def test_a_clean_history_folds_to_the_law_at_every_barrier() -> None:
    for seed in range(CLEAN_SEEDS // 4):
        assert folds_to_the_law(clean_history(random.Random(seed))), f"seed {seed}"


@pytest.mark.parametrize("name", MUTANTS)
def test_every_broken_history_is_caught_and_named(name: str) -> None:
    tamper, rules = MUTANTS[name]
    applied = 0
    for seed in range(SEEDS_OF_A_MUTANT):
        rng = random.Random(seed)
        history = clean_history(rng)
        if not tamper(history, rng):
            continue
        applied += 1
        report = judge(history)
        named = {key.partition(".")[2] for key in report.counts if key.startswith(Side.OUTPUT)}
        assert named, f"seed {seed} was not caught"
        assert rules is None or named & rules, f"seed {seed} was called {named}"
        if is_quick() and applied == FEWEST_APPLIED:
            break
    assert applied >= FEWEST_APPLIED, f"only {applied} histories could be broken so"


def test_a_history_cut_at_any_barrier_of_the_output_is_clean() -> None:
    """An output that is behind, or was dropped, ends with the same barrier everywhere and is no fault."""
    for seed in range(examples(200)):
        history = clean_history(random.Random(seed))
        epochs = [item.barrier.curr for item in history.output[0] if item.barrier is not None]
        last = random.Random(seed).choice(epochs)
        for items in history.output:
            end = next(
                i for i, item in enumerate(items) if item.barrier is not None and item.barrier.curr == last
            )
            del items[end + 1 :]
        report = judge(history)
        assert report.clean, f"seed {seed}: {report.findings}"
        assert report.last == last
        assert report.behind == sum(step.barrier.curr > last for step in history.steps)
