"""Events are decoded to what the reference decoder reads: recorded events, random ones and broken ones."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import strategies as st

from schemas.codec.logs import TEXTS
from schemas.errors import Code
from schemas.formats.debezium import DebeziumFormat
from schemas.json.debezium_values import TimeMode
from schemas.json.placeholder import UNAVAILABLE, placeholder
from schemas.records import Op
from schemas.table import TableSchema, declare
from schemas.types import ColumnType, TypeName
from state.columns import TRANSACTION
from streaming.source.decoded import POSITION, UNCHANGED
from tests.kit.debezium import RECORDED, recorded
from tests.kit.decoding import Record, by_reference, changes_of, differences
from tests.kit.json_records import ODD, broken, sound_cells
from tests.kit.single_records import single_records
from tests.kit.values import drawn

PRECISE = DebeziumFormat(time="microseconds", decimal="precise")
FRAMED = DebeziumFormat(time="adaptive", decimal="precise")
TEXT = DebeziumFormat(time="isostring", decimal="string")
WHOLE = DebeziumFormat(time="microseconds", decimal="precise", before="full")
WHOLE_FRAMED = DebeziumFormat(time="adaptive", decimal="precise", before="full")
TABLE = declare(
    {
        "name": "t",
        "columns": {
            "id": "bigint",
            "name": "string",
            "small": "decimal(9,2)",
            "large": "decimal(38,20)",
            "day": "date",
            "at": "timestamp",
            "note": "string",
            "raw": "binary",
            "ratio": "double",
            "ok": "boolean",
            "n": "int",
        },
        "primary_key": ["name", "id"],
    }
)


@pytest.mark.parametrize(("name", "format_"), [("plain", PRECISE), ("schemas", FRAMED)])
def test_recorded_events_are_the_same_to_columns_and_reference(name: str, format_: DebeziumFormat) -> None:
    format_ = format_.with_transactions()
    found: list[Record] = [(each.key, each.value) for each in recorded(name) if "orders" in each.topic]
    assert differences(format_, RECORDED, found) == []
    numbers = set(changes_of(format_, RECORDED, found).rows[TRANSACTION].drop_null().to_pylist())
    assert len(numbers) > 10
    refused = [said for said in by_reference(format_, RECORDED, found) if isinstance(said, str)]
    assert set(refused) == {
        Code.VALUE_OUT_OF_RANGE
    }  # the extremes of the recording: "infinity" and 39 digits
    assert len(refused) < len(found) / 10
    rows = changes_of(format_, RECORDED, found).rows
    body = RECORDED.column_names.index("body")
    assert [each for each in rows[UNCHANGED].to_pylist() if each] == [[body]]
    places = [tuple(each.values()) for each in rows[POSITION].to_pylist() if each]
    assert len(places) > 15


def test_recorded_events_with_whole_rows_are_the_same_to_columns_and_reference() -> None:
    found: list[Record] = [
        (each.key, each.value)
        for each in recorded("plain")
        if each.topic == "public.orders_full" and each.value
    ]
    assert differences(WHOLE, RECORDED, found) == []
    ops = changes_of(WHOLE, RECORDED, found).ops
    assert {Op.INSERT, Op.UPDATE, Op.DELETE} <= set(ops.tolist())


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        pytest.param("plain", PRECISE, marks=pytest.mark.thorough),
        pytest.param("schemas", FRAMED),
    ],
)
def test_what_says_nothing_of_the_table_is_no_change_to_either(name: str, format_: DebeziumFormat) -> None:
    others: list[Record] = [(each.key, each.value) for each in recorded(name) if "orders" not in each.topic]
    rows = single_records(format_, RECORDED.columns, RECORDED.key_columns)
    assert len(others) > 2
    assert all(rows.read_record(*each).change is None for each in others)
    assert len(changes_of(format_, RECORDED, others)) == 0


@pytest.mark.parametrize(
    "format_",
    [
        pytest.param(PRECISE.with_transactions(), id="transactions"),
        pytest.param(WHOLE_FRAMED, id="whole-framed"),
        pytest.param(TEXT, id="text"),
        *(
            pytest.param(further, id=name, marks=pytest.mark.thorough)
            for name, further in {
                "precise": PRECISE,
                "framed": FRAMED,
                "whole": WHOLE,
                "framed-transactions": FRAMED.with_transactions(),
            }.items()
        ),
    ],
)
def test_random_events_are_the_same_to_columns_and_reference(format_: DebeziumFormat) -> None:
    sound, odd = drawn(events(TABLE, format_, odd=False), 250), drawn(events(TABLE, format_, odd=True), 100)
    assert differences(format_, TABLE, [*sound, *odd]) == []
    twin = [isinstance(each, str) for each in by_reference(format_, TABLE, [*sound, *odd])]
    assert not any(twin[: len(sound)])
    assert any(twin[len(sound) :])
    if format_.reads_transactions:
        numbers = changes_of(format_, TABLE, [*sound, *odd]).rows[TRANSACTION].to_pylist()
        assert {None, 7, (1 << 32) - 1} == set(numbers)


def test_a_number_is_no_time_if_nothing_tells_its_unit() -> None:
    key = b'{"name":"a","id":7}'
    rows = (f'{{"op":"c","after":{{"at":{number}}}}}' for number in (0, 7, 5_000, "null"))
    found: list[Record] = [(key, row.encode()) for row in rows]
    assert differences(FRAMED, TABLE, found) == []
    assert by_reference(FRAMED, TABLE, found)[:3] == [Code.JSON_MALFORMED] * 3


@pytest.mark.parametrize(
    "format_",
    [
        pytest.param(PRECISE, id="precise", marks=pytest.mark.thorough),
        pytest.param(FRAMED, id="framed"),
        pytest.param(WHOLE, id="whole"),
    ],
)
def test_further_fields_may_have_any_name(format_: DebeziumFormat) -> None:
    row = '{"name":"a","id":7,"n":1}'
    event = f'"op":"c","after":{row}'
    own = ['"payload":7', '"schema":"s"', '"schema":[1],"payload":{"op":1}', '"payload":{"after":{"n":"x"}}']
    beside = ['"op":{}', '"after":7', '"source":"s","before":[1]']
    values = [f"{{{event},{each}}}" for each in own]
    values += [f'{{"schema":{{}},"payload":{{{event}}},{each}}}' for each in beside]
    found: list[Record] = [(b'{"name":"a","id":7}', each.encode()) for each in values]
    assert differences(format_, TABLE, found) == []
    assert len(set(by_reference(format_, TABLE, found))) == 1
    assert TRANSACTION not in changes_of(format_, TABLE, found).rows.column_names


def test_half_a_surrogate_pair_beside_the_row_costs_no_other_record() -> None:
    key, row = b'{"name":"a","id":7}', '"after":{"name":"a","id":7}'
    values = [rf'{{"op":"c",{row},"source":{{"connector":"mysql","{name}":"\ud800"}}}}' for name in TEXTS]
    values += [
        rf'{{"op":"\ude00\ud83d",{row}}}',
        rf'{{"op":"c",{row},"\ud800":"\ud800"}}',
        f'{{"op":"c",{row}}}',
    ]
    found: list[Record] = [(key, each.encode()) for each in values]
    assert differences(PRECISE, TABLE, found) == []
    read = by_reference(PRECISE, TABLE, found)
    assert [each for each in read if isinstance(each, str)] == [Code.UNKNOWN_OP]


MEANINGS = {
    "io.debezium.time.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
}
ODD_CELLS = [
    *ODD,
    *(f'"{UNAVAILABLE}"', f'"{placeholder().base64}"', f'["{UNAVAILABLE}"]', '"infinity"', '"-infinity"'),
    *("253402300800000000", "-62135596800000001", "9223372036832400000", "2932897", "-719163", "1.0", '"17"'),
    *(
        '"AQ=="',
        '"AQ"',
        '"AQ= "',
        '"f/////////////////////8="',
        '"gAAAAAAAAAAAAAAAAAAAAA=="',
        '"AAAAAAAAAAAAAAAAAAAAAAAA"',
    ),
    *(
        '{"scale":3,"value":"AQ=="}',
        '{"value":"AQ==","scale":3}',
        '{"scale":-1,"value":"AQ=="}',
        '{"scale":3}',
    ),
    *(
        '{"scale":999,"value":"AQ=="}',
        '{"scale":40,"value":"AA=="}',
        '{"scale": 3, "value": "+A=="}',
        '"2026-01-31Z"',
    ),
]

LEFT_OUT = [each if each[0] in "[{" else f'"{each}"' for each in sorted(placeholder().texts)]
"""Cells of a column of texts, arrays or maps."""


def events(table: TableSchema, format_: DebeziumFormat, *, odd: bool) -> st.SearchStrategy[Record]:
    """Events of a table whose keys and rows belong together; with `odd` some that no connector writes."""
    for column in table.columns:
        sound_cells(column.type)  # drawn now, for it can't be within a draw
    return _events(table, format_, odd=odd)


@st.composite
def _events(draw: st.DrawFn, table: TableSchema, format_: DebeziumFormat, *, odd: bool) -> Record:
    scales = {"small": draw(st.sampled_from([0, 1, 2])), "large": draw(st.sampled_from([20, 3, 0]))}
    meaning = draw(st.sampled_from(sorted(MEANINGS)))
    may_lack = odd or not format_.is_whole
    framed = format_.time == "adaptive" and (not odd or draw(st.integers(0, 9)) > 0)

    def cell(name: str, kind: ColumnType) -> str:
        if odd and draw(st.integers(0, 29)) == 0:
            return draw(st.sampled_from(ODD_CELLS))
        if name in ("note", "raw") and may_lack and draw(st.integers(0, 9)) == 0:
            return draw(st.sampled_from(LEFT_OUT)) if name == "note" else f'"{placeholder().base64}"'
        if name not in table.primary_key and draw(st.integers(0, 9)) == 0:
            return "null"
        return draw(sound(kind, format_.time, scales.get(name, 0) if framed else None, meaning))

    types = {column.name: column.type for column in table.columns}
    cells = {
        name: cell(name, kind)
        for name, kind in types.items()
        if draw(st.integers(0, 19)) or name in table.primary_key
    }
    keys = {name: cells[name] for name in table.primary_key}
    key = _object(keys)
    op = draw(st.sampled_from(["c", "u", "r", "d"] + (["t", "x", ""] if odd else [])))
    after = "null" if op == "d" else _object(cells)
    source = {
        "connector": draw(st.sampled_from(["postgresql", "mysql"])),
        "snapshot": draw(st.sampled_from(["false", "first", *(["incremental"] if odd else [])])),
    }
    before = _object({name: cell(name, kind) for name, kind in types.items()} | keys)
    if format_.is_whole and (op == "c" or (odd and draw(st.integers(0, 9)) == 0)):
        before = "null"
    source |= {
        "sequence": draw(st.sampled_from(['["5","7"]', '[null,"7"]', "", '["9223372036854775808","1"]']))
    }
    parts = {
        "before": before if format_.is_whole else "null",
        "after": after,
        "source": json.dumps(
            {
                **source,
                "lsn": draw(st.sampled_from([7, None])),
                "txId": draw(
                    st.sampled_from([7, None, (1 << 32) - 1, *(["7", 1.5, 1 << 63, {}] if odd else [])])
                ),
            }
        ),
    }
    value = _object({**parts, "op": json.dumps(op), "ts_ms": "1"})
    if framed:
        fields = [_field(name, kind, scales, meaning) for name, kind in types.items()]
        whole = {"type": "struct", "fields": [{"field": "before"}, {"field": "after", "fields": fields}]}
        value = _object({"schema": json.dumps(whole), "payload": value})
        key = _object({"schema": json.dumps({"type": "struct"}), "payload": key})
    encoded = value.encode("utf-8", "surrogatepass")
    if odd and draw(st.integers(0, 4)) == 0:
        encoded = draw(broken(st.just(value))) or b"{"
    is_null = not format_.is_whole and draw(st.integers(0, 14)) == 0  # with whole rows it is no change
    return key.encode("utf-8", "surrogatepass"), None if is_null else encoded


def sound(kind: ColumnType, time: TimeMode | None, scale: int | None, meaning: str) -> st.SearchStrategy[str]:
    """Cells as a connector writes them; decimals of a `scale` that a frame tells, if not of their column's own."""
    match kind.name:
        case TypeName.DATE if time != "isostring":
            return st.integers(-719_162, 2_932_896).map(str)
        case TypeName.TIMESTAMP if time != "isostring":
            micros = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
            step = MEANINGS[meaning] if time == "adaptive" else 1
            iso = sound_cells(kind)
            return st.one_of(micros.map(lambda n: str(n // step if n >= 0 else -(-n // step))), iso)
        case TypeName.DECIMAL if time != "isostring":
            own = kind.scale or 0
            plain = _unscaled(kind, own if scale is None else scale).map(lambda text: f'"{text}"')
            at = st.integers(0, own)
            return plain | at.flatmap(
                lambda s: _unscaled(kind, s).map(lambda text: json.dumps({"scale": s, "value": text}))
            )
        case _:
            return sound_cells(kind)


def _unscaled(kind: ColumnType, scale: int) -> st.SearchStrategy[str]:
    digits = (kind.precision or 0) - (kind.scale or 0) + min(scale, kind.scale or 0)
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(
        lambda n: base64.b64encode(n.to_bytes((n.bit_length() + 8) // 8, signed=True)).decode()
    )


def _field(name: str, kind: ColumnType, scales: dict[str, int], meaning: str) -> dict[str, Any]:
    if kind.name is TypeName.DECIMAL:
        return {
            "field": name,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": str(scales[name])},
        }
    return {"field": name, **({"name": meaning} if kind.name is TypeName.TIMESTAMP else {})}


def _object(fields: dict[str, str]) -> str:
    return "{" + ",".join(f'"{name}":{cell}' for name, cell in fields.items()) + "}"
