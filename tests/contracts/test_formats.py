"""Each format of outputs keeps what `schemas.formats.protocol` asks for."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro.registered import SchemaIds
from schemas.errors import Code, InputError
from schemas.formats.protocol import Images, OutputFormat
from schemas.formats.registry import DEFAULT, OUTPUT_FORMATS, UPSTREAM_FORMATS
from schemas.records import Change, Op, Row
from schemas.table import declare
from schemas.types import ColumnType
from streaming.lane.faults import find_faults
from tests.kit.columns import columns_of, origins
from tests.kit.decoding import Record, changes_of
from tests.kit.sent_records import sent_change, sent_reader
from tests.kit.two_ways import as_text
from tests.kit.values import TYPES, examples, rows_of

COLUMNS = {f"c{number}": str(kind) for number, kind in enumerate(TYPES)}
KEY = ["id", next(name for name, kind in COLUMNS.items() if ColumnType.parse(kind).allowed_in_key)]
TABLE = declare({"name": "t", "columns": {"id": "bigint"} | COLUMNS, "primary_key": KEY})
"""A column of each type."""


def change(op: Op, before: Row, after: Row) -> Change:
    """A change that leaves its key as it is."""
    kept = tuple(
        old if column.name in TABLE.primary_key else new
        for column, old, new in zip(TABLE.columns, before, after, strict=True)
    )
    return Change(op, None if op is Op.INSERT else before, None if op is Op.DELETE else kept)


ROWS = rows_of(TABLE.columns)
CHANGES = st.lists(st.builds(change, st.sampled_from(Op), ROWS, ROWS), min_size=1, max_size=4)


def formats_of(kind: type[OutputFormat]) -> list[OutputFormat]:
    """One in each of its encodings."""
    encodings = get_args(kind.model_fields["encoding"].annotation)
    found = (kind.model_validate({"encoding": encoding}) for encoding in encodings)
    return [each.with_ids(SchemaIds(key=7, value=70_000)) for each in found]


FORMATS = [
    format_
    for kind in OUTPUT_FORMATS.values()
    for format_ in formats_of(kind)
    if format_.images is not Images.ROWS  # these have no keys: `tests/property/test_decoded_append.py`
]
few = settings(max_examples=examples(12))
"""The rows are wide, and `tests/property` goes deeper into single types."""
every_format = pytest.mark.parametrize(
    "format_", FORMATS, ids=lambda each: " ".join(map(str, each.model_dump().values()))
)


def encoded(format_: OutputFormat, changes: Sequence[Change]) -> list[bytes | None]:
    ops = pa.array([change.op for change in changes], pa.int8())
    before, after = (
        columns_of(TABLE.columns, [getattr(change, name) for change in changes])
        for name in ("before", "after")
    )
    columns = format_.values(TABLE.columns).changes(ops, before, after, origins(len(changes)))
    return list(columns.to_pylist())


def keys_of(format_: OutputFormat, changes: Sequence[Change]) -> list[bytes]:
    encode, keys = format_.keys(TABLE.key_columns), [TABLE.key_of(change.row) for change in changes]
    assert encode is not None
    return list(map(bytes, encode(columns_of(TABLE.key_columns, keys)).to_pylist()))


def said(format_: OutputFormat, change: Change) -> Change:
    """The rest of a change in a format's records."""
    if format_.images is not Images.AFTER_ONLY:
        return change
    if change.op is not Op.DELETE:
        return Change(Op.INSERT, None, change.after)
    named = zip(TABLE.columns, change.row, strict=True)
    return Change(
        Op.DELETE, tuple(value if each in TABLE.key_columns else None for each, value in named), None
    )


@every_format
@few
@given(data=st.data())
def test_changes_are_written_in_the_one_form_that_the_checker_reads(
    format_: OutputFormat, data: st.DataObject
) -> None:
    changes = data.draw(CHANGES)
    reader = sent_reader(format_, TABLE.columns, TABLE.key_columns)
    values, keys = encoded(format_, changes), keys_of(format_, changes)
    assert values == [sent_change(format_, TABLE.columns, change) for change in changes]
    read = [reader.record(key, value).change for key, value in zip(keys, values, strict=True)]
    assert as_text(read) == as_text([said(format_, change) for change in changes])
    assert [reader.key(key) for key in keys] == [TABLE.key_of(change.row) for change in changes]


@every_format
@few
@given(data=st.data())
def test_values_depend_on_their_origin_only_where_the_format_says_so(
    format_: OutputFormat, data: st.DataObject
) -> None:
    [change, *_] = data.draw(CHANGES)
    encoder, ops = format_.values(TABLE.columns), pa.array([change.op], pa.int8())
    halves = columns_of(TABLE.columns, [change.before]), columns_of(TABLE.columns, [change.after])
    others = replace(origins(1), job="another", parts=np.array([4], np.int32))
    values = [encoder.changes(ops, *halves, each).to_pylist() for each in (origins(1), others)]
    assert (values[0] != values[1]) == format_.names_origin


@every_format
@few
@given(data=st.data())
def test_a_snapshot_row_is_an_insert(format_: OutputFormat, data: st.DataObject) -> None:
    found = data.draw(st.lists(rows_of(TABLE.columns), min_size=1, max_size=4))
    values = (
        format_.values(TABLE.columns)
        .inserts(columns_of(TABLE.columns, found), origins(len(found)))
        .to_pylist()
    )
    reader = sent_reader(format_, TABLE.columns, TABLE.key_columns)
    changes = [Change(Op.INSERT, None, row) for row in found]
    keys = keys_of(format_, changes)
    read = [reader.record(key, value).change for key, value in zip(keys, values, strict=True)]
    assert as_text(read) == as_text(changes)


@every_format
@few
@given(data=st.data())
def test_the_same_rows_are_the_same_bytes_in_batches_of_any_size_and_in_another_process(
    format_: OutputFormat, data: st.DataObject
) -> None:
    changes = data.draw(CHANGES)
    cut = data.draw(st.integers(0, len(changes)))
    parts = [part for part in (changes[:cut], changes[cut:]) if part]
    again: OutputFormat = pickle.loads(pickle.dumps(format_))  # noqa: S301 (as Spark sends it)
    for encode in (encoded, keys_of):
        assert encode(format_, changes) == [each for part in parts for each in encode(again, part)]
    assert (again, hash(again)) == (format_, hash(format_))
    assert again.keys(TABLE.key_columns) == format_.keys(TABLE.key_columns)
    assert hash(again.keys(TABLE.key_columns)) == hash(format_.keys(TABLE.key_columns))


@every_format
@few
@given(data=st.data())
def test_what_is_cut_short_or_goes_on_is_refused_with_its_place(
    format_: OutputFormat, data: st.DataObject
) -> None:
    changes = data.draw(CHANGES)
    reader = sent_reader(format_, TABLE.columns, TABLE.key_columns)
    values, keys = encoded(format_, changes[:1]), keys_of(format_, changes[:1])
    for [sound], read in ((values, partial(reader.record, keys[0])), (keys, reader.key)):
        if sound is None:
            assert format_.may_be_null
            continue
        cut = data.draw(st.integers(0, len(sound) - 1))
        for broken in (b"", sound[:cut], sound + b"\x00"):
            with pytest.raises(InputError) as caught:
                read(broken, where="t-0@7")
            assert caught.value.where == "t-0@7"


@few
@given(row=ROWS)
def test_a_lane_leaves_no_broken_record_unseen(row: Row) -> None:
    change = Change(Op.INSERT, None, row)
    [value], [key] = encoded(DEFAULT, [change]), keys_of(DEFAULT, [change])
    assert value is not None
    broken: list[Record] = [(key, value[:cut]) for cut in range(len(value))]
    broken += [(key, value + b"\x00"), (key[:-1], value), (None, value), (key, None)]
    faults = find_faults(changes_of(DEFAULT, TABLE, [(key, value), *broken]), TABLE, format_=DEFAULT)
    assert [fault.offset for fault in faults] == list(range(1, 1 + len(broken)))
    assert faults[-1].code is Code.TOMBSTONE_UNSUPPORTED


def test_every_kind_has_its_name() -> None:
    for kinds in (UPSTREAM_FORMATS, OUTPUT_FORMATS):
        assert all(model().model_dump()["format"] == kind for kind, model in kinds.items())
        for model in kinds.values():
            # Every default is one that a file can have, too.
            assert model.model_validate(model().model_dump(mode="json")) == model()
    assert isinstance(DEFAULT.images, Images)
