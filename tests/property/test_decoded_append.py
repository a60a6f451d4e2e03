"""Rows of `append` are decoded to what the reference decoder reads, and outputs have the form that is checked."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro.registered import KnownSchemas, SchemaIds
from schemas.errors import Code, InputError
from schemas.formats.append import AppendFormat, AppendOutput
from schemas.records import Change, Op, Row
from state.columns import PARTITION, VNODE
from streaming.lane.faults import MOST_FAULTS
from streaming.source.decoded import KEY
from tests.kit.avro_records import batches
from tests.kit.columns import origins
from tests.kit.decoding import by_reference, changes_of, differences
from tests.kit.json_records import broken, objects
from tests.kit.sent_records import sent_reader, sent_row
from tests.kit.single_records import single_records
from tests.kit.two_ways import as_text
from tests.kit.values import drawn, examples, rows_of
from tests.property import test_decoded_upserts

WIDE = replace(
    test_decoded_upserts.WIDE,
    columns=tuple(replace(column, nullable=True) for column in test_decoded_upserts.WIDE.columns),
    primary_key=(),
    distribution_key=(),
)
KEYS = st.sampled_from([None, b"", b"k", b"\xff", b'{"id":7}'])
ENCODINGS = get_args(AppendOutput.model_fields["encoding"].annotation)


def test_every_odd_cell_is_the_same_to_columns_and_reference_in_every_column() -> None:
    found = [(None, value) for _, value in test_decoded_upserts.one_by_one()]
    for start in range(0, len(found), MOST_FAULTS - 1):
        assert differences(AppendFormat(), WIDE, found[start : start + MOST_FAULTS - 1]) == []


def test_rows_in_json_are_the_same_to_columns_and_reference() -> None:
    sound = drawn(st.tuples(KEYS, objects(WIDE.columns, odd=False).map(str.encode)), 250)
    odd = drawn(st.tuples(KEYS, broken(objects(WIDE.columns, odd=True))), 250)
    assert differences(AppendFormat(), WIDE, [*sound, *odd]) == []
    refused = [isinstance(each, str) for each in by_reference(AppendFormat(), WIDE, [*sound, *odd])]
    assert not any(refused[: len(sound)])
    assert any(refused[len(sound) :])


@pytest.mark.parametrize("odd", [False, True], ids=["sound", "odd"])
def test_rows_in_avro_are_the_same_to_columns_and_reference(odd: bool) -> None:
    for schemas, pairs in drawn(batches(WIDE, key="record", odd=odd), 2):
        format_ = AppendFormat(encoding="avro-registry").with_schemas(KnownSchemas(schemas))
        found = [pair for pair in pairs if pair[1] or (odd and pair[1] is not None)]  # empty ones are no rows
        assert differences(format_, WIDE, found) == []
        if not odd:
            assert not [each for each in by_reference(format_, WIDE, found) if isinstance(each, str)]


def test_a_null_is_no_row_and_keys_are_left_as_they_came() -> None:
    found = [(key, value) for key in (None, b"", b"k", b"\xff") for value in (None, b"{}", b"")]
    changes = changes_of(AppendFormat(), WIDE, found)
    kept = [pair for pair in found if pair[1] is not None]
    assert changes.record_keys.to_pylist() == changes.rows[KEY].to_pylist() == [key for key, _ in kept]
    assert changes.ops.tolist() == [Op.INSERT if value else -1 for _, value in kept]
    assert set(changes.rows[VNODE].to_pylist()) == {0}
    assert set(changes.rows[PARTITION].to_pylist()) == {0}
    rows = single_records(AppendFormat(), WIDE.columns, ())
    assert rows.read_record(b"k", None).change is None
    with pytest.raises(InputError) as caught:
        rows.read_record(b"k", b"", where="t-0@7")
    assert (caught.value.code, caught.value.where) == (Code.JSON_MALFORMED, "t-0@7")


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_an_output_is_written_in_the_one_form_that_the_checker_reads(
    encoding: str, data: st.DataObject
) -> None:
    format_ = AppendOutput.model_validate({"encoding": encoding}).with_ids(SchemaIds(key=0, value=70_000))
    found: list[Row] = data.draw(st.lists(rows_of(WIDE.columns), max_size=4))
    ops = pa.array([Op.INSERT] * len(found), pa.int8())
    before, after = (
        [pa.array([row[at] for row in rows], each.type.arrow) for at, each in enumerate(WIDE.columns)]
        for rows in ([(None,) * len(WIDE.columns)] * len(found), found)
    )
    values = format_.values(WIDE.columns).changes(ops, before, after, origins(len(found))).to_pylist()
    reader = sent_reader(format_, WIDE.columns, ())
    assert values == [sent_row(format_, WIDE.columns, row) for row in found]
    read = [reader.record(b"any", value).change for value in values]
    assert as_text(read) == as_text([Change(Op.INSERT, None, row) for row in found])
    for value in values[:1]:
        for wrong in (None, b"", value[:-1], value + b"\x00"):
            with pytest.raises(InputError):
                reader.record(None, wrong)
