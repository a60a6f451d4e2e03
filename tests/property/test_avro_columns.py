"""Changes read side by side are those that the codec reads one by one, and nothing is read that it would refuse."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro.columns.records import read_changes
from schemas.errors import InputError
from schemas.records import Change, Op
from schemas.table import Column, declare
from tests.kit.avro_codec import ChangeCodec
from tests.kit.values import TYPES, column_types, rows_of

ALL_TYPES = declare(
    {
        "name": "t",
        "columns": {"id": "bigint"} | {f"c{number}": str(kind) for number, kind in enumerate(TYPES)},
        "primary_key": ["id"],
    }
).columns


def changes_of(columns: Sequence[Column]) -> st.SearchStrategy[Change]:
    """Legal ones by their halves, with one NaN."""
    rows = rows_of(columns).map(lambda row: tuple(math.nan if value != value else value for value in row))
    return st.one_of(
        rows.map(lambda row: Change(Op.INSERT, None, row)),
        rows.map(lambda row: Change(Op.DELETE, row, None)),
        st.tuples(rows, rows).map(lambda pair: Change(Op.UPDATE, *pair)),
    )


@st.composite
def some_columns(draw: st.DrawFn) -> tuple[Column, ...]:
    kinds = draw(st.lists(st.tuples(column_types, st.booleans()), min_size=1, max_size=4))
    return tuple(Column(f"c{number}", kind, nullable) for number, (kind, nullable) in enumerate(kinds))


def read(columns: Sequence[Column], values: Sequence[bytes | None]) -> list[Change | None]:
    """None for a record that is marked."""
    ops, *images, marked = read_changes(columns, pa.array(values, pa.binary()))
    rows = ([None if row is None else tuple(row.values()) for row in image.to_pylist()] for image in images)
    found = zip(ops.to_pylist(), *rows, marked, strict=True)
    return [None if is_marked else Change(Op(op), *pair) for op, *pair, is_marked in found]


def decoded(codec: ChangeCodec, value: bytes) -> Change | None:
    try:
        return codec.decode(value)
    except InputError:
        return None


def as_text(changes: Sequence[Change | None]) -> str:
    """Text in which NaN is NaN, -0.0 is not 0.0, and UTC has one name; Arrow and fastavro name it differently."""
    return repr(changes).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


@given(data=st.data(), columns=some_columns())
def test_changes_are_read_as_the_codec_has_written_them(
    data: st.DataObject, columns: tuple[Column, ...]
) -> None:
    codec = ChangeCodec(columns)
    values = [codec.encode(change) for change in data.draw(st.lists(changes_of(columns), max_size=8))]
    assert as_text(read(columns, values)) == as_text([codec.decode(value) for value in values])


@given(data=st.data())
def test_a_broken_record_is_marked_alone_and_what_is_read_is_what_the_codec_reads(
    data: st.DataObject,
) -> None:
    codec = ChangeCodec(ALL_TYPES)
    sound = [
        codec.encode(change) for change in data.draw(st.lists(changes_of(ALL_TYPES), min_size=1, max_size=3))
    ]
    broken = bytearray(sound[-1])
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, len(broken)))
        end = place + data.draw(st.sampled_from([0, 1, 1, 2, len(broken)]))
        piece = st.sampled_from([b"", b"\x00", b"\x01", b"\x80", b"\xff"]) | st.binary(max_size=2)
        broken[place:end] = data.draw(piece)
    values = [*sound[:-1], bytes(broken)]
    found = read(ALL_TYPES, values)
    read_by_codec = [decoded(codec, value) for value in values]
    assert None not in found[:-1]
    assert as_text(found[:-1]) == as_text(read_by_codec[:-1])
    assert found[-1] is None or as_text(found[-1:]) == as_text(read_by_codec[-1:])


ONE = (Column("c", TYPES[1], nullable=False),)


@pytest.mark.parametrize(
    ("value", "is_read"),
    [
        (b"\x00\x00\x02\x06", True),
        (b"\x00\x00\x02\x86\x00", False),
        (b"\x00\x00\x02\xfe\xff\xff\xff\x0f", True),
        (b"\x00\x00\x02\xfe\xff\xff\xff\x1f", False),
        (b"\x00\x00\x02\x06\x00", False),
        (b"\x00\x00\x02", False),
        (b"\x00\x00\x02\x86", False),
        (b"\x00\x02\x06\x02\x06", False),
        (b"\x02\x00\x02\x06", False),
        (b"\x04\x02\x06\x00", True),
        (b"\x06\x00\x00", False),
        (b"\x01\x00\x02\x06", False),
        (b"\x00\x01\x02\x06", False),
        (b"", False),
    ],
)
def test_an_int_is_read_if_it_is_written_as_the_codec_does(value: bytes, is_read: bool) -> None:
    assert str(ONE[0].type) == "int"
    sound = b"\x00\x00\x02\x06"
    first, found, last = read(ONE, [sound, value, sound])
    assert first == last == ChangeCodec(ONE).decode(sound)
    assert found == (ChangeCodec(ONE).decode(value) if is_read else None)


def test_a_null_in_the_place_of_a_record_is_marked_and_every_nan_is_kept() -> None:
    assert read(ONE, [None, b"\x00\x00\x02\x06", None])[::2] == [None, None]
    doubles = (Column("c", next(kind for kind in TYPES if str(kind) == "double"), nullable=False),)
    for bits in (0x7FF8000000000000, 0x7FF8000000000001, 0xFFF0000000000001):
        value = b"\x00\x00\x02" + struct.pack("<Q", bits)
        [cell] = read_changes(doubles, pa.array([value])).after.flatten()
        assert cell.to_numpy().view(np.uint64).tolist() == [bits]
