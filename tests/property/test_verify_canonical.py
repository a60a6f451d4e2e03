"""Topics in other formats have one canonical form, whether their records are read together or one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.avro.codec import KeyCodec
from schemas.formats.outputs.debezium import DebeziumOutput
from schemas.formats.outputs.upsert import UpsertOutput
from schemas.formats.protocol import Format, Origins, OutputFormat
from schemas.formats.upsert import UpsertFormat
from schemas.records import Barrier, BarrierKind, Change, Op, Row
from schemas.table import declare
from streaming.verify.history import Entry, Source
from streaming.verify.records import canonical as module
from streaming.verify.records.canonical import canonical
from tests.kit.examples import examples

TABLE = declare({"name": "t", "columns": {"id": "int", "a": "string", "b": "double"}, "primary_key": ["id"]})
BARRIER = Barrier(2 << 16, 1 << 16, BarrierKind.BARRIER, 1, 1_700_000_000_123)
CASES = [
    (UpsertFormat(), UpsertOutput()),
    (UpsertOutput(), UpsertOutput()),
    (DebeziumOutput(), DebeziumOutput()),
    (DebeziumOutput(tombstones=False), DebeziumOutput(tombstones=False)),
]
rows = st.tuples(
    st.integers(0, 3), st.sampled_from([None, "", "x", "é\n"]), st.sampled_from([None, 0.5, -0.0, 1e30])
)


@dataclass
class Listed(Source):
    records: Sequence[Entry]

    def entries(self) -> Iterator[Entry]:
        return iter(self.records)

    def extend(self) -> bool:
        return False


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    found = []
    for op in draw(st.lists(st.sampled_from(Op), min_size=1, max_size=30)):
        before, after = draw(rows), draw(rows)
        after = (before[0], *after[1:])
        found.append(Change(op, None if op is Op.INSERT else before, None if op is Op.DELETE else after))
    return found


def columns_of(found: Sequence[Row | None]) -> list[pa.Array]:
    return [
        pa.array([None if row is None else row[index] for row in found], column.type.arrow)
        for index, column in enumerate(TABLE.columns)
    ]


def records(format_: OutputFormat, found: Sequence[Change]) -> list[Entry]:
    """As a sink sends them: with tombstones where the format has them."""
    length = len(found)
    origins = Origins(
        "copy", "t", np.arange(length, dtype=np.int32) % 2, np.zeros(length, np.int64), [BARRIER]
    )
    before, after = (columns_of([getattr(change, half) for change in found]) for half in ("before", "after"))
    ops = pa.array([change.op for change in found], pa.int8())
    values = format_.values(TABLE.columns).changes(ops, before, after, origins).to_pylist()
    encode = format_.keys(TABLE.key_columns)
    assert encode is not None
    keys = encode([columns_of([change.row for change in found])[0]]).to_pylist()
    sent: list[Entry] = []
    for change, key, value in zip(found, keys, values, strict=True):
        sent.append(Entry(0, key, value))
        if change.op is Op.DELETE and format_.tombstone_follows:
            sent.append(Entry(0, key, None))
    return sent


def one_by_one(entries: Sequence[Entry], format_: Format) -> list[Entry]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(format_), "column_reader", lambda *_: None)
        return recoded(entries, format_)


def recoded(entries: Sequence[Entry], format_: Format) -> list[Entry]:
    [source] = canonical([Listed(entries)], format_, TABLE.columns, TABLE.key_columns)
    return list(source.entries())


@pytest.mark.parametrize(("format_", "writes"), CASES, ids=lambda case: case.form)
@settings(max_examples=examples(60))
@given(found=changes(), data=st.data())
def test_records_are_the_same_read_together_and_one_by_one(
    format_: Format, writes: OutputFormat, found: list[Change], data: st.DataObject
) -> None:
    entries = records(writes, found)
    places = st.integers(0, len(entries) - 1)
    for place in data.draw(st.lists(places, max_size=2)):
        entry = entries[place]
        kinds = [
            Entry(0, None, b"", b"\x00"),
            Entry(0, None, entry.value),
            Entry(0, entry.key, None),
            Entry(0, entry.key, b""),
            Entry(0, b"{}", entry.value),
            Entry(0, entry.key, (entry.value or b"") + b" ", epoch=b"7"),
        ]
        entries[place : place + data.draw(st.integers(0, 1))] = [data.draw(st.sampled_from(kinds))]
    entries = [entry._replace(offset=offset) for offset, entry in enumerate(entries)]
    expected = one_by_one(entries, format_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_RECORDS", data.draw(st.sampled_from([1, 7, 2_000])))
        patch.setattr(module, "_CHUNK_BYTES", data.draw(st.sampled_from([1, 100, 4 << 20])))
        patch.setattr(module, "_FEW", data.draw(st.sampled_from([1, 4, 60])))
        assert recoded(entries, format_) == expected


def test_sound_records_are_never_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    row = 1, "a", 0.5
    sound = [Change(Op.INSERT, None, row), Change(Op.UPDATE, row, row), Change(Op.DELETE, row, None)] * 2
    for format_, writes in CASES:
        entries = records(writes, sound)
        expected = one_by_one(entries, format_)
        assert len(expected) == len(sound)
        monkeypatch.setattr(KeyCodec, "encode", None)  # called for every record that is read by itself
        assert recoded(entries, format_) == expected
        monkeypatch.undo()
