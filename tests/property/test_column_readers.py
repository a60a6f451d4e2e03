"""Records that an output writes are decoded as an upstream's, the same in blocks and one by one."""

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
from schemas.formats.outputs.formats import UpsertOutput
from schemas.formats.protocol import Origins, OutputFormat, UpstreamFormat
from schemas.formats.upsert import UpsertFormat
from schemas.records import Barrier, BarrierKind, Change, Op, Row
from schemas.table import declare
from tests.kit.examples import examples
from tests.kit.two_ways import NotColumnarError, as_text, one_by_one, together
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

    reads: UpstreamFormat
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
        return [each.change for each in together(self.reads, TABLE, records) if each.change]

    def one_by_one(self, records: Sequence[Record]) -> list[Change]:
        return [each.change for each in one_by_one(self.reads, TABLE, records) if each.change]


CASES = [Case(ChangeFormat(), ChangeFormat()), Case(UpsertFormat(), UpsertOutput())]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: type(case.reads).__name__)
few = settings(max_examples=examples(30))


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
    except NotColumnarError:
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


KEYED = CASES[1]


@pytest.mark.parametrize(
    ("case", "broken"),
    [
        (KEYED, lambda key, value: (key.replace(b"7", b"8"), value)),
        (KEYED, lambda key, value: (None, value)),
        (KEYED, lambda _, __: (None, None)),
        *((case, lambda key, value: (key, value[:-1])) for case in CASES),
    ],
)
def test_an_invalid_record_is_one_wherever_it_stands(
    case: Case, broken: Callable[[bytes, bytes], Record]
) -> None:
    records = case.records([Change(Op.INSERT, None, row_with(key)) for key in (7, 78, 79, 71, 72, 74, 73)])
    assert len(case.by_columns(records)) == len(records)
    for place, (key, value) in enumerate(records):
        assert key is not None
        assert value is not None
        with pytest.raises(NotColumnarError):
            case.by_columns([*records[:place], broken(key, value), *records[place + 1 :]])


@few
@given(found=changes())
def test_rows_with_spaces_are_read(found: list[Change]) -> None:
    assume(not has_special_floats(found))
    records = [(spaced(key), spaced(value)) for key, value in KEYED.records(found)]
    assert as_text(KEYED.by_columns(records)) == as_text(KEYED.one_by_one(records))


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
