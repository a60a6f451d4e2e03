"""What every format has to keep (`schemas.formats.protocol`), the product's and one that only this suite has."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro.registered import SchemaIds
from schemas.errors import Code, InputError
from schemas.formats.change import ChangeFormat
from schemas.formats.protocol import Images, OutputFormat, UpstreamFormat
from schemas.formats.registry import DEFAULT, OUTPUT_FORMATS, UPSTREAM_FORMATS
from schemas.records import Change, Op, Row
from schemas.table import TableSchema, declare
from schemas.types import ColumnType
from streaming.lane.faults import find_faults
from tests.kit.decoding import changes_of
from tests.kit.examples import examples
from tests.kit.line_format import LINE_TYPES, LineFormat, know_lines
from tests.kit.origins import origins
from tests.kit.sent_records import sent_change, sent_reader
from tests.kit.two_ways import as_text
from tests.kit.values import TYPES, rows_of


@dataclass(frozen=True)
class Case:
    """A format and a table with a column of each type that it can hold."""

    format: OutputFormat
    types: Sequence[ColumnType]

    def table(self) -> TableSchema:
        columns = {f"c{number}": str(kind) for number, kind in enumerate(self.types)}
        key = ["id", *(name for name, kind in columns.items() if ColumnType.parse(kind).allowed_in_key)][:2]
        return declare({"name": "t", "columns": {"id": "bigint"} | columns, "primary_key": key})

    def changes(self) -> st.SearchStrategy[list[Change]]:
        """Changes that leave their keys as they are."""
        table = self.table()

        def change(op: Op, before: Row, after: Row) -> Change:
            kept = tuple(
                old if column.name in table.primary_key else new
                for column, old, new in zip(table.columns, before, after, strict=True)
            )
            return Change(op, None if op is Op.INSERT else before, None if op is Op.DELETE else kept)

        rows = rows_of(table.columns)
        return st.lists(st.builds(change, st.sampled_from(Op), rows, rows), min_size=1, max_size=4)


def formats_of(kind: type[OutputFormat]) -> list[OutputFormat]:
    """One in each of its encodings."""
    encodings = get_args(kind.model_fields["encoding"].annotation)
    found = (kind.model_validate({"encoding": encoding}) for encoding in encodings)
    return [each.with_ids(SchemaIds(key=7, value=70_000)) for each in found]


CASES = [
    Case(format_, TYPES)
    for kind in OUTPUT_FORMATS.values()
    for format_ in formats_of(kind)
    if format_.images is not Images.ROWS  # these have no keys: `tests/property/test_append_twin.py`
]
CASES += [Case(LineFormat(), LINE_TYPES)]
few = settings(max_examples=examples(12))
"""The rows are wide, and `tests/property` goes deeper into single types."""
every_case = pytest.mark.parametrize(
    "case", CASES, ids=lambda case: " ".join(map(str, case.format.model_dump().values()))
)
every_upstream = pytest.mark.parametrize(
    "case",
    [case for case in CASES if isinstance(case.format, ChangeFormat | LineFormat)],
    ids=lambda case: case.format.format,
)
"""Those that an upstream may have as well; of the others `tests/property` has the twins."""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    know_lines(monkeypatch)


def half(table: TableSchema, rows: Sequence[Row | None]) -> list[pa.Array]:
    """Whole columns; rows that are not there are nulls."""
    return [
        pa.array([None if row is None else row[index] for row in rows], column.type.arrow)
        for index, column in enumerate(table.columns)
    ]


def encoded(format_: OutputFormat, table: TableSchema, changes: Sequence[Change]) -> list[bytes | None]:
    ops = pa.array([change.op for change in changes], pa.int8())
    before, after = ([getattr(change, name) for change in changes] for name in ("before", "after"))
    halves = half(table, before), half(table, after)
    columns = format_.values(table.columns).changes(ops, *halves, origins(len(changes)))
    return list(columns.to_pylist())


def keys_of(format_: OutputFormat, table: TableSchema, changes: Sequence[Change]) -> list[bytes]:
    arrays, encode = half(table, [change.row for change in changes]), format_.keys(table.key_columns)
    assert encode is not None
    return list(map(bytes, encode([arrays[i] for i in table.key_indices]).to_pylist()))


def said(format_: OutputFormat, table: TableSchema, change: Change) -> Change:
    """The rest of a change in a format's records."""
    if format_.images is not Images.AFTER_ONLY:
        return change
    if change.op is not Op.DELETE:
        return Change(Op.INSERT, None, change.after)
    named = zip(table.columns, change.row, strict=True)
    return Change(
        Op.DELETE, tuple(value if each in table.key_columns else None for each, value in named), None
    )


@every_case
@few
@given(data=st.data())
@pytest.mark.usefixtures("lines")
def test_changes_are_written_in_the_one_form_that_the_checker_reads(case: Case, data: st.DataObject) -> None:
    table, changes = case.table(), data.draw(case.changes())
    reader = sent_reader(case.format, table.columns, table.key_columns)
    values, keys = encoded(case.format, table, changes), keys_of(case.format, table, changes)
    assert values == [sent_change(case.format, table.columns, change) for change in changes]
    read = [reader.record(key, value).change for key, value in zip(keys, values, strict=True)]
    assert as_text(read) == as_text([said(case.format, table, change) for change in changes])
    assert [reader.key(key) for key in keys] == [table.key_of(change.row) for change in changes]


@every_case
@few
@given(data=st.data())
def test_values_depend_on_their_origin_only_where_the_format_says_so(case: Case, data: st.DataObject) -> None:
    table, [change, *_] = case.table(), data.draw(case.changes())
    encoder, ops = case.format.values(table.columns), pa.array([change.op], pa.int8())
    halves = half(table, [change.before]), half(table, [change.after])
    others = replace(origins(1), job="another", parts=np.array([4], np.int32))
    values = [encoder.changes(ops, *halves, each).to_pylist() for each in (origins(1), others)]
    assert (values[0] != values[1]) == case.format.names_origin


@every_case
@few
@given(data=st.data())
@pytest.mark.usefixtures("lines")
def test_a_snapshot_row_is_an_insert(case: Case, data: st.DataObject) -> None:
    table = case.table()
    found = data.draw(st.lists(rows_of(table.columns), min_size=1, max_size=4))
    values = case.format.values(table.columns).inserts(half(table, found), origins(len(found))).to_pylist()
    reader = sent_reader(case.format, table.columns, table.key_columns)
    changes = [Change(Op.INSERT, None, row) for row in found]
    keys = keys_of(case.format, table, changes)
    read = [reader.record(key, value).change for key, value in zip(keys, values, strict=True)]
    assert as_text(read) == as_text(changes)


@every_case
@few
@given(data=st.data())
def test_the_same_rows_are_the_same_bytes_in_batches_of_any_size_and_in_another_process(
    case: Case, data: st.DataObject
) -> None:
    table, changes = case.table(), data.draw(case.changes())
    cut = data.draw(st.integers(0, len(changes)))
    parts = [part for part in (changes[:cut], changes[cut:]) if part]
    again: OutputFormat = pickle.loads(pickle.dumps(case.format))  # noqa: S301 (as Spark sends it)
    for encode in (encoded, keys_of):
        assert encode(case.format, table, changes) == [
            each for part in parts for each in encode(again, table, part)
        ]
    assert (again, hash(again)) == (case.format, hash(case.format))
    assert again.keys(table.key_columns) == case.format.keys(table.key_columns)
    assert hash(again.keys(table.key_columns)) == hash(case.format.keys(table.key_columns))


@every_case
@few
@given(data=st.data())
@pytest.mark.usefixtures("lines")
def test_what_is_cut_short_or_goes_on_is_refused_with_its_place(case: Case, data: st.DataObject) -> None:
    table, changes = case.table(), data.draw(case.changes())
    reader = sent_reader(case.format, table.columns, table.key_columns)
    values, keys = encoded(case.format, table, changes[:1]), keys_of(case.format, table, changes[:1])
    for [sound], read in ((values, partial(reader.record, keys[0])), (keys, reader.key)):
        if sound is None:
            assert case.format.may_be_null
            continue
        cut = data.draw(st.integers(0, len(sound) - 1))
        for broken in (b"", sound[:cut], sound + b"\x00"):
            with pytest.raises(InputError) as caught:
                read(broken, where="t-0@7")
            assert caught.value.where == "t-0@7"


@every_upstream
@few
@given(data=st.data())
@pytest.mark.usefixtures("lines")
def test_a_lane_reads_what_the_format_writes(case: Case, data: st.DataObject) -> None:
    table, changes = case.table(), data.draw(case.changes())
    keys, values = keys_of(case.format, table, changes), encoded(case.format, table, changes)
    assert isinstance(case.format, UpstreamFormat)
    found = changes_of(case.format, table, list(zip(keys, values, strict=True)))
    assert not find_faults(found, table, format_=case.format)
    ops = pa.array(found.ops, pa.int8())
    read = DEFAULT.values(table.columns).changes(ops, found.before, found.after, origins(len(found)))
    assert read.to_pylist() == encoded(DEFAULT, table, changes)


@every_upstream
@few
@given(data=st.data())
@pytest.mark.usefixtures("lines")
def test_a_lane_leaves_no_broken_record_unseen(case: Case, data: st.DataObject) -> None:
    table, row = case.table(), data.draw(rows_of(case.table().columns))
    change = Change(Op.INSERT, None, row)
    [value], [key] = encoded(case.format, table, [change]), keys_of(case.format, table, [change])
    assert value is not None
    broken = [(key, value[:cut]) for cut in range(len(value))]
    broken += [(key, value + b"\x00"), (key[:-1], value)]
    records = [(key, value), *broken, (None, value), (key, None)]
    assert isinstance(case.format, UpstreamFormat)
    faults = find_faults(changes_of(case.format, table, records), table, format_=case.format)
    refused = len(broken) + 1 + (not case.format.may_be_null)
    assert [fault.offset for fault in faults] == list(range(1, 1 + refused))
    assert case.format.may_be_null or faults[-1].code is Code.TOMBSTONE_UNSUPPORTED


def test_every_kind_has_its_name() -> None:
    for kinds in (UPSTREAM_FORMATS, OUTPUT_FORMATS):
        assert all(model().model_dump()["format"] == kind for kind, model in kinds.items())
        for model in kinds.values():
            # Every default is one that a file can have, too.
            assert model.model_validate(model().model_dump(mode="json")) == model()
    assert isinstance(DEFAULT.images, Images)
