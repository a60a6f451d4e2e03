"""Objects read side by side are those that were written, and nothing is read that the twin would refuse."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.formats.outputs.json_records import read_row
from schemas.json.base64_columns import base64_texts, base64_values
from schemas.json.objects import parsed, read_objects
from schemas.json.parsing.scan import read_object
from schemas.json.written import written_row
from schemas.records import OddRecordError, Row
from schemas.table import Column
from tests.kit.examples import examples
from tests.kit.values import TYPES, column_types, rows_of

ALL_TYPES = tuple(
    Column(f"c{number}", kind, nullable=bool(number % 2)) for number, kind in enumerate([*TYPES, *TYPES])
)
PIECES = [
    b"",
    b"0",
    b" ",
    b"\n",
    b"\\",
    b'"',
    b"{}",
    b"null",
    b"e1",
    b"-",
    b"\xff",
    b"}",
    b",",
    b'{"c0":',
    b"=",
]


@st.composite
def some_columns(draw: st.DrawFn) -> tuple[Column, ...]:
    kinds = draw(st.lists(st.tuples(column_types, st.booleans()), min_size=1, max_size=4))
    names = draw(
        st.lists(st.text('aé"\\\n€😀_', min_size=1), unique=True, min_size=len(kinds), max_size=len(kinds))
    )
    return tuple(Column(name, *kind) for name, kind in zip(names, kinds, strict=True))


def text_of(row: Row, columns: Sequence[Column]) -> bytes:
    return written_row(row, columns, "json").encode()


def read(columns: Sequence[Column], texts: Sequence[bytes]) -> list[bytes]:
    """The rows, written again one by one."""
    arrays = read_objects(columns, pa.array(texts, pa.binary()))
    assert [array.type for array in arrays] == [column.type.arrow for column in columns]
    return [text_of(row, columns) for row in zip(*(array.to_pylist() for array in arrays), strict=True)]


def has_words(row: Row) -> bool:
    """Numbers that JSON has no form for are texts, which Arrow's reader does not take for numbers."""
    return any(isinstance(value, float) and value - value != 0 for value in row)


@given(data=st.data(), columns=some_columns())
def test_objects_are_read_as_they_were_written(data: st.DataObject, columns: tuple[Column, ...]) -> None:
    rows = data.draw(st.lists(rows_of(columns), max_size=8))
    texts = [text_of(row, columns) for row in rows]
    if any(map(has_words, rows)):
        with pytest.raises(OddRecordError):
            read(columns, texts)
    else:
        assert read(columns, texts) == texts


@given(data=st.data())
def test_what_the_twin_refuses_is_odd_and_what_is_read_is_what_it_reads(data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(rows_of(ALL_TYPES).filter(lambda row: not has_words(row)), min_size=1, max_size=3)
    )
    texts = [text_of(row, ALL_TYPES) for row in rows]
    broken = bytearray(texts[-1])
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, len(broken)))
        end = place + data.draw(st.sampled_from([0, 1, 1, 2, len(broken)]))
        broken[place:end] = data.draw(st.sampled_from(PIECES) | st.binary(max_size=2))
    texts = data.draw(st.permutations([*texts[:-1], bytes(broken)]))
    try:
        found = read(ALL_TYPES, texts)
    except OddRecordError:
        return
    assert found == texts
    assert [text_of(read_row(read_object(text), ALL_TYPES, "json"), ALL_TYPES) for text in texts] == texts


@pytest.mark.parametrize(
    "texts",
    [
        [b"null"],
        [b""],
        [None],
        [b"[]"],
        [b"1"],
        [b'{"c":1}null'],
        [b'{"c":1}{"c":2}'],
        [b'{"c":1}{"c":2}', b""],
        [b'{"c":1}{"c":2}', b"null"],
        [b'{"c":1}\n{"c":2}', b'{"c":3}'],
        [b'{"c": 1}', b'{"c":1}'],
        [b'{"c":1 }'],
        [b'{"c":1.0}'],
        [b'{"c":01}'],
        [b'{"c":"1"}'],
        [b'{"c":2147483648}'],
        [b'{"c":1,"c":1}'],
        [b'{"c":1,"d":1}'],
        [b"{}"],
        [b'{"c":null}'],
    ],
)
def test_an_object_that_is_not_as_it_is_written_is_odd(texts: list[bytes]) -> None:
    one = (Column("c", next(kind for kind in TYPES if str(kind) == "int"), nullable=False),)
    assert read(one, [b'{"c":1}', b'{"c":-5}']) == [b'{"c":1}', b'{"c":-5}']
    assert read(one, [b'{"c": 1}', b'{"c": -5}']) == [b'{"c":1}', b'{"c":-5}']
    for around in ([], [b'{"c":1}']):
        with pytest.raises(OddRecordError):
            read(one, [*texts, *around])


@given(st.lists(st.binary(max_size=9) | st.none()), st.data())
def test_base64_is_read_as_it_is_written(values: list[bytes | None], data: st.DataObject) -> None:
    array = pa.array(values, pa.binary())
    array = array.slice(data.draw(st.integers(0, len(values))))
    texts = pa.array(
        [
            None if value is None else text
            for value, text in zip(array.to_pylist(), base64_texts(array).to_pylist(), strict=True)
        ],
        pa.binary(),
    )
    assert base64_values(texts).equals(array)


def test_names_are_not_looked_for_within_texts() -> None:
    one = (Column("c", next(kind for kind in TYPES if str(kind) == "string"), nullable=True),)
    text = json.dumps({"c": '{"c":1}\\"'}, separators=(",", ":")).encode()
    assert read(one, [text]) == [text]


FRAGMENTS = [
    *('{"a":1}', '{"a":1,"b":"x"}', '{"a":', '{"a":1', '{"a":{', '{"a":[', '"a":1}', '1}', "}", "}}", "]}"),
    *("[", "{", ",", ":", '"', '"b":"x"}', '"z":', ",{", " ", "\t", "null", "7", "\x0b"),
    *('{"z":[{"a":2}]}', '{"z":"}{"}', '{"b":"\\"}', '{"a":1}{"a":2,"z":', '{"q":1}}', '{"a":3}{'),
]  # fmt: skip


@settings(max_examples=examples(400))
@given(
    st.lists(
        st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4).map("".join), min_size=1, max_size=4
    )
)
@example(['{"a":1}{"a":2,"z":', '{"q":1}}'])
@example(['{"a":1}{"a":2', "}"])
@example(['{"a":1,"b":"x', '","z":2}{"a":3}'])
@example(['{"z":[{"a":1}', '{"a":1}]}'])
@example(['{"a":1}', '{"a":2}{"a":3}', '{"a":4'])
def test_no_object_is_taken_out_of_two_texts_or_two_out_of_one(texts: list[str]) -> None:
    fields = [pa.field("a", pa.int64()), pa.field("b", pa.string())]
    try:
        found = parsed(pa.array([text.encode() for text in texts]), fields, others="ignore").to_pylist()
    except OddRecordError:
        return
    own = [json.loads(text) for text in texts]
    assert found == [{"a": each.get("a"), "b": each.get("b")} for each in own]
