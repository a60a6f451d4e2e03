"""Columns under other names and masked, in every form of output, against a plain model of them."""

from __future__ import annotations

import hashlib
import hmac
import json
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro.output_schemas import text_of
from schemas.avro.registered import KnownSchemas, SchemaIds, WriterSchema
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.outputs.formats import UpsertOutput
from schemas.formats.protocol import Images
from schemas.formats.upsert import UpsertFormat
from schemas.job import JobDefinition
from schemas.kinds.projection import OutputColumn
from schemas.records import Change, Op, Row
from schemas.settings.security import hash_key_of
from schemas.table import declare
from streaming.lane.live import keyed_changes
from streaming.sink.columns import ChangeColumns, EncodedRecords, SnapshotRows
from streaming.sink.output import Output
from tests.kit import masks
from tests.kit.barriers import barrier
from tests.kit.columns import changes_of, columns_of
from tests.kit.sent_records import sent_reader, sent_row
from tests.kit.single_records import single_records
from tests.kit.two_ways import as_text
from tests.kit.values import TYPES, examples, rows_of

FORMS: list[dict[str, str]] = [
    {},
    *(
        {"format": form, "encoding": encoding}
        for form in ("upsert", "debezium")
        for encoding in ("json", "json-schema", "avro-registry")
    ),
]
COLUMNS = {f"c{number}": str(kind) for number, kind in enumerate(TYPES)}
TABLE = declare({"name": "t", "columns": {"id": "bigint"} | COLUMNS, "primary_key": ["id"]})
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: " ".join(form.values()) or "change")


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    rows = rows_of(TABLE.columns)
    images = draw(st.lists(st.tuples(rows, rows) | rows.map(lambda row: (row, row)), min_size=1, max_size=4))
    ops = draw(st.lists(st.sampled_from(Op), min_size=len(images), max_size=len(images)))
    return [
        Change(op, None if op is Op.INSERT else before, None if op is Op.DELETE else (before[0], *after[1:]))
        for op, (before, after) in zip(ops, images, strict=True)
    ]


@st.composite
def jobs(draw: st.DrawFn, form: dict[str, str]) -> JobDefinition:
    names = draw(st.lists(st.sampled_from(TABLE.column_names), min_size=1, unique=True))
    columns = masks.projected(names, TABLE, draw(st.randoms(use_true_random=False)))
    key = masks.another_key(columns, TABLE, draw(st.randoms(use_true_random=False)))
    keys: dict[str, Any] = {"key": list(key)} if draw(st.booleans()) and key else {}
    declared = {"name": "copy", "output": "copy", **masks.keys_of(columns), **keys, **form}
    return JobDefinition.declare(declared, TABLE).with_ids(SchemaIds(key=7, value=8))


def sent(job: JobDefinition, written: Sequence[Change]) -> EncodedRecords:
    found, output = changes_of(TABLE, written), Output(job, TABLE)
    rows, ops = keyed_changes(output, found, np.arange(len(written)), found.ops)
    count = len(rows)
    return ChangeColumns(
        output=output,
        decoded=found,
        rows=rows,
        ops=ops,
        partitions=np.zeros(count, np.int32),
        parts=np.zeros(count, np.int32),
        bounds=np.array([0, count]),
        barriers=[barrier(1, 1)],
    ).records


def snapshot(job: JobDefinition, rows: Sequence[Row]) -> EncodedRecords:
    named = dict(zip(TABLE.column_names, columns_of(TABLE.columns, rows), strict=True))
    read = {name: named[name] for name in job.read_columns(TABLE)}
    parts = np.zeros(len(rows), np.int32)
    return SnapshotRows(output=Output(job, TABLE), parts=parts, barrier=barrier(1, 1), arrays=read).records


def shown(job: JobDefinition, row: Row | None) -> Row | None:
    if row is None:
        return None
    named = dict(zip(TABLE.column_names, row, strict=True))
    return tuple(masks.shown(column, named[column.source]) for column in job.columns)


def key_of_row(job: JobDefinition, row: Row) -> Row:
    named = dict(zip(TABLE.column_names, row, strict=True))
    return tuple(masks.shown(column, named[column.source]) for column in job.in_key(TABLE))


def moved(job: JobDefinition, written: Sequence[Change]) -> list[Change]:
    """Each change, or the two that it is by the job's key."""
    found = list[Change]()
    for change in written:
        keys = [key_of_row(job, row) for row in (change.before, change.after) if row is not None]
        if keys[0] == keys[-1]:
            found.append(change)
        else:
            found += [Change(Op.DELETE, change.before, None), Change(Op.INSERT, None, change.after)]
    return found


def said(job: JobDefinition, change: Change) -> Change:
    """The rest of a change in records of the job's format."""
    before, after = shown(job, change.before), shown(job, change.after)
    if job.format.images is Images.FULL:
        return Change(change.op, before, after)
    if after is not None:
        return Change(Op.INSERT, None, after)
    key = [column.source for column in job.in_key(TABLE)]
    kept = (
        value if each.source in key else None for each, value in zip(job.columns, before or (), strict=True)
    )
    return Change(Op.DELETE, tuple(kept), None)


def read_back(job: JobDefinition, records: EncodedRecords) -> list[tuple[Any, Change]]:
    reader = sent_reader(job.format, job.columns_of(TABLE), job.key_columns_of(TABLE))
    pairs = zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True)
    found = [(reader.key(key), reader.record(key, value).change) for key, value in pairs]
    return [(key, change) for key, change in found if change is not None]


@every_form
@settings(max_examples=examples(25))
@given(data=st.data())
def test_changes_and_rows_are_those_that_the_job_shows(form: dict[str, str], data: st.DataObject) -> None:
    job, written = data.draw(jobs(form)), data.draw(changes())
    expected = [(key_of_row(job, change.row), said(job, change)) for change in moved(job, written)]
    assert as_text(read_back(job, sent(job, written))) == as_text(expected)
    rows = [change.row for change in written]
    inserts = [(key_of_row(job, row), Change(Op.INSERT, None, shown(job, row))) for row in rows]
    assert as_text(read_back(job, snapshot(job, rows))) == as_text(inserts)


@settings(max_examples=examples(60))
@given(row=rows_of(TABLE.columns))
def test_a_hash_is_that_of_the_text_in_json(row: Row) -> None:
    plain = json.loads(sent_row(UpsertOutput(), TABLE.columns, row) or b"")
    hashed = [
        OutputColumn(column.name, column.name, "hash")
        for column in TABLE.columns[1:]
        if str(column.type) not in ("float", "double")
    ]
    declared = {"name": "copy", "output": "copy", "format": "upsert", **masks.keys_of(hashed)}
    job = JobDefinition.declare(declared, TABLE)
    [value] = snapshot(job, [row]).values.to_pylist()
    for name, found in json.loads(value).items():
        text = plain[name]
        if text is None:
            assert found is None
            continue
        text = json.dumps(text) if not isinstance(text, str) else text
        assert found == hmac.new(masks.HASH_KEY, text.encode(), hashlib.sha256).hexdigest()


def test_the_key_of_hashes_is_in_nothing_that_leaves_a_lane() -> None:
    declared = {"name": "copy", "output": "copy", **masks.keys_of([OutputColumn("m", "c0", "hash")])}
    job = JobDefinition.declare(declared, TABLE)
    assert masks.hash_key_file() in job.to_json()
    assert hash_key_of(job) == masks.HASH_KEY
    for text in (
        job.to_json().encode(),
        repr(job).encode(),
        pickle.dumps(job),
        pickle.dumps(Output(job, TABLE)),
    ):
        assert masks.HASH_KEY not in text
        assert masks.HASH_KEY.hex().encode() not in text


BY_REGION = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", "region": "string", "n": "int"},
        "primary_key": ["region", "id"],
    }
)


@pytest.mark.parametrize("encoding", ["json", "avro-registry"])
@pytest.mark.parametrize("read_as", [UpsertFormat, DebeziumFormat])
def test_an_output_by_another_key_is_an_upstream_by_that_key(read_as: Any, encoding: str) -> None:
    of_id = declare(
        {"name": "t", "columns": {"id": "bigint", "region": "string", "n": "int"}, "primary_key": ["id"]}
    )
    form = {"format": read_as().format, "encoding": encoding}
    declared = {"name": "copy", "output": "copy", "key": ["region", "id"], **form}
    job = JobDefinition.declare(declared, of_id).with_ids(SchemaIds(key=7, value=8))
    schemas = job.schemas(of_id)
    writers = WriterSchema(7, text_of(schemas["key"])), WriterSchema(8, text_of(schemas["value"]))
    upstream = read_as(encoding=encoding).with_schemas(KnownSchemas(writers))
    arrays_of = {
        "id": pa.array([1], pa.int64()),
        "region": pa.array(["EU"]),
        "n": pa.array([None], pa.int32()),
    }
    records = SnapshotRows(
        output=Output(job, of_id), parts=np.zeros(1, np.int32), barrier=barrier(1, 1), arrays=arrays_of
    ).records
    rows = single_records(upstream, BY_REGION.columns, BY_REGION.key_columns)
    [key], [value] = records.keys.to_pylist(), records.values.to_pylist()
    change = rows.read_record(key, value).change
    assert change is not None
    assert (rows.read_key(key), change.after) == (("EU", 1), (1, "EU", None))
