"""Random records of JSON rows, sound ones and broken ones, for Hypothesis."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from hypothesis import strategies as st

from schemas.table import Column, TableSchema
from schemas.types import ColumnType, TypeName
from tests.kit.values import drawn, values_of

ODD = [
    *("null", "true", "false", "0", "-0", "-1", "7", "1.5", "-0.0", "1.10", "1E+3", "1e400", "1e-400", "0e99"),
    *("9223372036854775808", "2147483648", "3.4028235677973366e38", "1.00000017881393432617187499", "16777217"),
    *("1" * 39, "0." + "1" * 39, "1." + "0" * 40, "1" * 1000, "1" * 1001, "1." + "1" * 1001, "9007199791611905"),
    *("NaN", "-Infinity", "INF", "+Infinity", "01", "1.", ".5", "+5", "nul", "tru", "", " ", ",", "}", "]", "{"),
    *('"NaN"', '"Infinity"', '"-Infinity"', '"+INF"', '"INF"', '"-INF"', '"nan"', '""', '" "', '"1.5"', '"7"', '"07"'),
    *('"1,000.5"', '"1E+3"', '"1e99999"', '"+5"', '".5"', '"5."', '" 5"', '"1d"', '"1.0E10"', '"true"', '"1234"'),
    *('"QQ=="', '"QR=="', '"QQ"', '"Q Q=="', '"QUJD"', '"QUJ_"', '"QUJD\\n"', '"\\"NaN\\""', '"1." ', '"0x1"'),
    *('"2026-01-31"', '"2026-02-29"', '"2026-1-1"', '"0000-01-01"', '"10000-01-01"', '"+10000-01-01"', '"20260131"'),
    *('"2026-01-31T12:00:00Z"', '"2026-01-31T12:00:00.1-18:00"', '"2026-01-31T12:00:00+18:01"', '"9999-12-31"'),
    *('"0001-01-01T00:00:00+01:00"', '"9999-12-31T23:59:59.999999-00:01"', '"2026-01-31T12:00:00"'),
    *('"2026-01-31 12:00:00Z"', '"2026-01-31T24:00:00Z"', '"2026-01-31T12:00:00.1234567Z"', '"2026-01-31T12:00:00.Z"'),
    *(r'"\ud800"', r'"\ud83d\ude00"', r'"\ude00\ud83d"', r'"\\ud83d\ude00"', r'"\\\ud83d\ude00"', r'"\u00e9\n\/"'),
    *('"\x00"', '"a\tb"', r'"\x"', '"}"', '"]"', '"{"', '"a,b"', '"é😀\u2028\x7f"', r'"\u0000"', '"\\'),
    *("[]", "{}", "[1,]", '{"a":1.5}', '"{\\"a\\":1.5}"', '[1, -0, "x"]', r'{"a": {"b": ["\ud83d\ude00", "\ud800"]}}'),
    *("[NaN]", '{"a":"NaN"}', '{"a":1,"a":2}', "[" * 998 + "]" * 998, "[" * 999 + "]" * 999, "[" * 1000 + "]" * 1000),
    *("[1e3]", '[{"x":0.1}]'),
    *(r'"2026-01-31T12:00:00Z\n"', r'"1.5\n"', r'"7\n"', r'"2026-01-31\n"'),
    *(r'"QQ==\n"', r'"1.5\u2028"', '["\u2028", 1.5]'),
    *("0.1000000000000000055511151231257827", "123456789.5", "1.0000000000000000000001", "1.50", '"1.50"'),
    '"{\\"scale\\":3,\\"value\\":\\"AQ==\\"}"',
    *("1} ", '1,"c0":2', "1]", '"a":1', "1 /**/", "[1}", '"x"y', "{'a':1}", "{a:1}"),
]  # fmt: skip


def written(value: Any, kind: ColumnType, *, number: bool = True) -> str:
    """A value in a form that its type has."""
    match value:
        case None:
            return "null"
        case float() if math.isnan(value) or math.isinf(value):
            return json.dumps({math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN"))
        case Decimal():
            return format(value, "f") if number else f'"{value:f}"'
        case dt.datetime():
            return json.dumps(value.isoformat().replace("+00:00", "Z"))
        case dt.date():
            return json.dumps(value.isoformat())
        case bytes():
            return json.dumps(base64.b64encode(value).decode())
        case str():
            return json.dumps(value, ensure_ascii=number)
        case _:
            return json.dumps(value)


@cache
def sound_cells(kind: ColumnType) -> st.SearchStrategy[str]:
    """Out of a few hundred that are drawn once: to draw each anew takes longer than all that is done with it.

    Not to be called inside of a draw.
    """
    values = values_of(kind)
    if kind.name is TypeName.STRING:
        values = st.text(st.characters(codec="utf-8"), max_size=20)
    cells = st.builds(lambda value, number: written(value, kind, number=number), values, st.booleans())
    return st.sampled_from(drawn(cells, 300))


def cells(kind: ColumnType) -> st.SearchStrategy[str]:
    """Mostly sound, for a record has many and one is enough."""
    return st.integers(0, 39).flatmap(lambda n: st.sampled_from(ODD) if n == 0 else sound_cells(kind))


def objects(columns: Sequence[Column], odd: bool) -> st.SearchStrategy[str]:
    """Objects of any of the columns, in any order, and of others."""
    fields = [
        st.tuples(st.just(column.name), cells(column.type) if odd else sound_cells(column.type))
        for column in columns
    ]
    other = st.tuples(
        st.sampled_from(["x", "X0", "id ", "c1\\u0041"]), st.sampled_from(ODD if odd else ["1.5"])
    )

    @st.composite
    def build(draw: st.DrawFn) -> str:
        found = [draw(field) for field in fields if draw(st.integers(0, 9))]
        found += [draw(other) for _ in range(draw(st.integers(0, 12)) // 12)]
        found = draw(st.permutations(found))
        colon, comma, space = draw(st.sampled_from([(":", ",", ""), (": ", ", ", ""), (" :\t", "\n, ", " ")]))
        body = comma.join(f'"{name}"{colon}{cell}' for name, cell in found)
        return f"{space}{{{space}{body}{space}}}{space}"

    return build()


TAILS = [" x", "{}", ",{}", "] {", ",1] {", "}", "\n", " ", ',"c0":1', "\ufeff", "/**/", "]}", ",0]}",
    '}', '},"":{}', ',"":{}', ',"":{"c0":true}', ',"x":{}', ',"x":{}}}',
    '}},"_bf_e1a75c0da":{"":{}', ',"_bf_e1a75c0db":{}}}',
]  # fmt: skip


def broken(texts: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """Bytes of texts, some cut short, with something behind, or with a byte changed."""

    @st.composite
    def build(draw: st.DrawFn) -> bytes:
        data = draw(texts).encode("utf-8", "surrogatepass")
        match draw(st.integers(0, 19)):
            case 0:
                return data[: draw(st.integers(0, len(data)))]
            case 1:
                return data + draw(st.sampled_from(TAILS)).encode()
            case 2 if data:
                at = draw(st.integers(0, len(data) - 1))
                return data[:at] + draw(st.binary(min_size=1, max_size=1)) + data[at + 1 :]
            case 3:
                return draw(st.sampled_from(ODD)).encode()
            case _:
                return data

    return build()


def records(
    table: TableSchema, *, key: str, odd: bool
) -> st.SearchStrategy[tuple[bytes | None, bytes | None]]:
    """Keys and values that often belong together."""
    own_cells = {column.name: sound_cells(column.type) for column in table.key_columns}
    rows = objects([column for column in table.columns if column.name not in table.primary_key], odd)

    @st.composite
    def build(draw: st.DrawFn) -> tuple[bytes | None, bytes | None]:
        cell = {name: draw(values) for name, values in own_cells.items()}
        odd_key = odd and not draw(st.integers(0, 4))
        if odd_key and draw(st.booleans()):
            cell[table.primary_key[0]] = draw(st.sampled_from(ODD))
        if key == "record":
            found = "{" + ",".join(f'"{name}":{each}' for name, each in cell.items()) + "}"
        else:
            [found] = cell.values()
        if key == "text" and found.startswith('"'):
            found = str(json.loads(found)) if found.endswith('"') and _is_json(found) else found
        text = draw(rows)
        if draw(st.booleans()) and text.rstrip()[1:-1].strip():
            own = ",".join(f'"{name}":{each}' for name, each in cell.items())
            text = text.replace("{", "{" + own + ",", 1)
        value = draw(broken(st.just(text))) if odd else text.encode()
        encoded = draw(broken(st.just(found))) if odd_key else found.encode("utf-8", "surrogatepass")
        if odd_key and not draw(st.integers(0, 4)):
            return None, value
        return encoded, draw(st.sampled_from([None, b""])) if not draw(st.integers(0, 9)) else value

    return build()


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
