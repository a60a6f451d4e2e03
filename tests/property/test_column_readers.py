"""Every format that reads by whole columns reads what its twin reads one by one, and nothing that it would refuse."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas.formats.change import ChangeFormat
from schemas.formats.outputs.debezium import DebeziumOutput
from schemas.formats.outputs.upsert import UpsertOutput
from schemas.formats.protocol import ColumnReader, Format, Origins, OutputFormat
from schemas.formats.registry import OUTPUT_FORMATS
from schemas.formats.upsert import UpsertFormat
from schemas.records import Barrier, BarrierKind, Change, OddRecordError, Op, Row
from schemas.table import declare
from tests.kit.examples import examples
from tests.kit.two_ways import as_text, one_by_one, together
from tests.kit.values import TYPES, rows_of

TABLE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint"} | {f"c{number}": str(kind) for number, kind in enumerate(TYPES)},
        "primary_key": [
            "id",
            next(f"c{number}" for number, kind in enumerate(TYPES) if str(kind) == "string"),
        ],
    }
)
BARRIERS = [Barrier(n << 16, n - 1 << 16, BarrierKind.BARRIER, 1, 1_700_000_000_000 + n) for n in (1, 2)]
Record = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class Case:
    """A format that reads by columns, and one that writes for it."""

    reads: Format
    writes: OutputFormat

    def records(self, changes: Sequence[Change]) -> list[Record]:
        """Of several parts and intervals."""
        length = len(changes)
        places = np.arange(length)
        origins = Origins("copy", TABLE.name, (places % 3).astype(np.int32), places % 2, BARRIERS)
        before, after = ([getattr(change, half) for change in changes] for half in ("before", "after"))
        ops = pa.array([change.op for change in changes], pa.int8())
        values = self.writes.values(TABLE.columns).changes(
            ops, columns_of(before), columns_of(after), origins
        )
        own = columns_of([change.row for change in changes])
        encode = self.writes.keys(TABLE.key_columns)
        assert encode is not None
        keys = encode([own[index] for index in TABLE.key_indices])
        return list(zip(keys.to_pylist(), values.to_pylist(), strict=True))

    def by_columns(self, records: Sequence[Record]) -> list[Change]:
        if not isinstance(self.reads, OutputFormat) or isinstance(self.reads, ChangeFormat):
            return [each.change for each in together(self.reads, TABLE, records) if each.change]
        read = reader(self.reads)
        assert read is not None
        keys, values = (pa.array([each[half] for each in records], pa.binary()) for half in (0, 1))
        ops, *halves = read(keys, values)[:3]
        kinds = pa.struct([pa.field(column.name, column.type.arrow) for column in TABLE.columns])
        assert {half.type for half in halves} == {kinds}
        rows = ([row and tuple(row.values()) for row in half.to_pylist()] for half in halves)
        return [Change(Op(op), *pair) for op, *pair in zip(ops.tolist(), *rows, strict=True)]

    def one_by_one(self, records: Sequence[Record]) -> list[Change]:
        if not isinstance(self.reads, OutputFormat) or isinstance(self.reads, ChangeFormat):
            return [each.change for each in one_by_one(self.reads, TABLE, records) if each.change]
        rows = self.reads.rows(TABLE.columns, TABLE.key_columns)
        return [rows.read_change(*record) for record in records]


CASES = [
    Case(ChangeFormat(), ChangeFormat()),
    Case(UpsertFormat(), UpsertOutput()),
    Case(UpsertOutput(), UpsertOutput()),
    Case(DebeziumOutput(), DebeziumOutput()),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: type(case.reads).__name__)
few = settings(max_examples=examples(30))


def reader(format_: OutputFormat) -> ColumnReader | None:
    return format_.column_reader(TABLE.columns, TABLE.key_columns)


def columns_of(rows: Sequence[Row | None]) -> list[pa.Array]:
    return [
        pa.array([None if row is None else row[index] for row in rows], column.type.arrow)
        for index, column in enumerate(TABLE.columns)
    ]


def plain(row: Row) -> Row:
    """Without numbers that JSON has no form for."""
    return tuple(0.5 if isinstance(value, float) and not math.isfinite(value) else value for value in row)


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    """Changes that leave their keys as they are."""
    found = []
    for op in draw(st.lists(st.sampled_from(Op), min_size=1, max_size=6)):
        before, after = (plain(draw(rows_of(TABLE.columns))) for _ in range(2))
        kept = tuple(
            old if column.name in TABLE.primary_key else new
            for column, old, new in zip(TABLE.columns, before, after, strict=True)
        )
        found.append(Change(op, None if op is Op.INSERT else before, None if op is Op.DELETE else kept))
    return found


@every_case
@few
@given(found=changes())
def test_columns_read_what_the_twin_reads(case: Case, found: list[Change]) -> None:
    assume(case is not CASES[1] or not has_special_floats(found))
    records = case.records(found)
    assert as_text(case.by_columns(records)) == as_text(case.one_by_one(records))


@every_case
@few
@given(found=changes(), data=st.data())
def test_columns_read_no_record_otherwise_than_the_twin(
    case: Case, found: list[Change], data: st.DataObject
) -> None:
    records = case.records(found)
    place, half = data.draw(st.integers(0, len(records) - 1)), data.draw(st.integers(0, 1))
    others = [other[half] for other in records if other[half] != records[place][half]]
    broken = list(records[place])
    broken[half] = data.draw(st.sampled_from(others or [None]) | mutations(broken[half] or b"{}"))
    records[place] = (broken[0], broken[1])
    try:
        by_columns = case.by_columns(records)
    except OddRecordError:
        return
    if isinstance(case.reads, ChangeFormat):  # keys are left to the caller
        assert half == 0 or broken[1] is not None
    assert as_text(by_columns) == as_text(case.one_by_one(records))


@st.composite
def mutations(draw: st.DrawFn, text: bytes) -> bytes:
    """A piece of it exchanged, or a whole number by another."""
    place = draw(st.integers(0, len(text)))
    end = place + draw(st.sampled_from([0, 1, 1, 2, len(text)]))
    piece = st.sampled_from([b"", b"0", b"1", b" ", b"\n", b'"', b"\\", b"{}", b"null", b',"op":"c"', b"}"])
    return text[:place] + draw(piece | st.binary(max_size=2)) + text[end:]


def row_with(key: int) -> Row:
    return tuple(
        key if column.name == "id" else "x" if column in TABLE.key_columns else None
        for column in TABLE.columns
    )


def exchanged(old: bytes, new: bytes) -> Callable[[bytes, bytes], Record]:
    def change(key: bytes, value: bytes) -> Record:
        assert old in value
        return key, value.replace(old, new, 1)

    return change


def halves_exchanged(key: bytes, value: bytes) -> Record:
    begin, end = value.index(b'"after":'), value.index(b',"source"')
    row = value[begin + len(b'"after":') : end]
    return key, b'{"before":%s,"after":null' % row + value[end:]


EVENT, ROW = CASES[3], CASES[1:3]


@pytest.mark.parametrize(
    ("case", "broken"),
    [
        *((case, lambda key, value: (key.replace(b"7", b"8"), value)) for case in CASES[1:]),
        *((case, lambda key, value: (b" " + key, value)) for case in CASES[2:]),
        *((case, lambda key, value: (None, value)) for case in CASES[1:]),
        *((case, lambda key, value: (key, value[:-1])) for case in CASES),
        *((case, exchanged(b'"id":', b'"id": ')) for case in CASES[2:]),
        *((case, exchanged(b'"c0":null,"c1":null', b'"c1":null,"c0":null')) for case in CASES[2:]),
        *((case, lambda key, _: (b" " + key, None)) for case in ROW[1:]),
        *((case, lambda _, __: (None, None)) for case in ROW),
        (EVENT, exchanged(b'"op":"c"', b'"op":"u"')),
        (EVENT, exchanged(b'"op":"c"', b'"op":"c" ')),
        (EVENT, exchanged(b'"vnode":', b'"vnode":0')),
        (EVENT, exchanged(b'{"before":null', b'{"before": null')),
        (EVENT, exchanged(b'{"before":null,', b"{")),
        (EVENT, halves_exchanged),
        (EVENT, lambda key, _: (key, None)),
    ],
)
def test_a_record_that_is_not_as_it_is_written_is_odd_whichever_it_is(
    case: Case, broken: Callable[[bytes, bytes], Record]
) -> None:
    """Of an event also where others have the same ending."""
    records = case.records([Change(Op.INSERT, None, row_with(key)) for key in (7, 78, 79, 71, 72, 74, 73)])
    assert len(case.by_columns(records)) == len(records)
    for place, (key, value) in enumerate(records):
        assert key is not None
        assert value is not None
        with pytest.raises(OddRecordError):
            case.by_columns([*records[:place], broken(key, value), *records[place + 1 :]])


@few
@given(found=changes())
def test_rows_with_spaces_are_read_of_an_upstream_and_are_odd_in_an_output(found: list[Change]) -> None:
    reads, output = CASES[1:3]
    assume(not has_special_floats(found))
    records = [(spaced(key), spaced(value)) for key, value in reads.records(found)]
    assert as_text(reads.by_columns(records)) == as_text(reads.one_by_one(records))
    if any(value is not None for _, value in records):
        with pytest.raises(OddRecordError):
            output.by_columns(records)
    keys = [(spaced(key), None) for key, _ in records]
    with pytest.raises(OddRecordError):
        output.by_columns(keys)


def has_special_floats(found: list[Change]) -> bool:
    """Zeros with a sign, and what is no number: in JSON the reference decoder reads them."""
    values = [value for change in found for row in (change.before, change.after) if row for value in row]
    return any(repr(value) in ("-0.0", "nan", "inf", "-inf") for value in values if isinstance(value, float))


def spaced(data: bytes | None) -> bytes | None:
    """The same object with the spaces of `json.dumps`, its values written as they were."""
    if data is None:
        return None
    kept: dict[str, object] = json.loads(data, parse_float=_Number, parse_int=_Number)
    text = ", ".join(f"{quoted(name)}: {quoted(value)}" for name, value in kept.items())
    return f"{{{text}}}".encode()


class _Number(str):
    """The text of a number."""


def quoted(value: object) -> str:
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)


def test_every_output_that_reads_by_columns_is_in_this_suite() -> None:
    kinds = {*OUTPUT_FORMATS.values()} - {ChangeFormat}
    assert {kind for kind in kinds if reader(kind()) is not None} == {type(case.reads) for case in CASES[2:]}
    for other in (UpsertOutput(encoding="json-schema"), DebeziumOutput(encoding="json-schema")):
        assert reader(other) is None
    for own in (UpsertOutput(), DebeziumOutput()):
        assert own.column_reader(TABLE.columns[2:], TABLE.key_columns) is None
