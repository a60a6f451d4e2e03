"""Random filters over a table with a column of every type, and rows on their edges, for Hypothesis."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from schemas.filter.ast import (
    And,
    Between,
    Comparison,
    Filter,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    number_from_text,
)
from schemas.table import Column, TableSchema, declare
from schemas.types import TypeName
from tests.kit.values import values_of

TABLE = declare(
    {
        "name": "everything",
        "columns": {
            "id": "bigint",
            "i": "int",
            "b": "boolean",
            "m": "decimal(18,2)",
            "f": "float",
            "d": "double",
            "s": "string",
            "x": "binary",
            "date": "date",
            "t": "timestamp",
        },
        "primary_key": ["id"],
    }
)
WIDE = declare(
    {
        "name": "wide",
        "columns": {"id": "int", "z": "decimal(38,0)", "h": "decimal(38,38)"},
        "primary_key": ["id"],
    }
)
"""Decimals that leave no digit for a wider common type: Spark gives up on some of these, we don't."""

Row = Mapping[str, Any]

_NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
_TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "aXb",
    "a\nb",
    "a%b",
    "a_b",
    "a\\b",
    "é",
    "e\u0301",
    "\U0001f600",
    "a\U0001f600b",
    "'",
    "z",
]
EDGES: Mapping[TypeName, Sequence[Any]] = {
    TypeName.BOOLEAN: [True, False],
    TypeName.INT: [0, 1, -1, 10, 11, 2**31 - 1, -(2**31)],
    TypeName.BIGINT: [0, 1, -1, 10, 2**53, 2**53 + 1, 2**63 - 1, 2**63 - 2, -(2**63)],
    TypeName.DECIMAL: [
        Decimal(text)
        for text in ("0.00", "0.01", "-0.01", "10.50", "9999999999999999.99", "-9999999999999999.99")
    ],
    TypeName.FLOAT: [0.0, -0.0, 1.5, 10.5, 16777216.0, float("nan"), float("inf"), -float("inf")],
    TypeName.DOUBLE: [
        0.0,
        -0.0,
        0.1,
        10.5,
        9007199254740992.0,
        1.7e308,
        5e-324,
        float("nan"),
        float("inf"),
        -float("inf"),
    ],
    TypeName.STRING: _TEXTS,
    TypeName.BINARY: [b"", b"\x00", b"a"],
    TypeName.DATE: [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 1, 31), dt.date(9999, 12, 31)],
    TypeName.TIMESTAMP: [
        _NOON,
        _NOON.replace(microsecond=1),
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    ],
}

_NUMBERS = """
    0 1 -1 10 10.5 10.4999999999 -0.5 0.005 0.01 0.1 2147483647 2147483647.5 2147483648 -2147483649 16777217
    9007199254740993 9223372036854775807 9223372036854775807.5 9223372036854775808 -9223372036854775808.1
    9999999999999999.99 9999999999999999.995 10000000000000000 -10000000000000000
"""
_EXTREME_NUMBERS = [
    "1e300",
    "-1e300",
    "1e-300",
    "1e20",
    "9" * 38,
    "0." + "9" * 38,
    "0." + "0" * 37 + "1",
    "1e-400",
    "1e38",
]


def edge_literals(column: Column, *, extreme: bool) -> list[Literal]:
    """Literals on, beside and between the column's edges.

    `extreme` ones are those on which Spark leaves SQL: numbers too wide for its decimals, and numbers beyond
    every bigint against an integer column, which it compares to TRUE or FALSE even where the column is NULL.
    """
    match column.type.name:
        case TypeName.BOOLEAN | TypeName.STRING | TypeName.DATE | TypeName.TIMESTAMP:
            return list(EDGES[column.type.name])
        case TypeName.BINARY:
            return []
        case TypeName.INT | TypeName.BIGINT if not extreme:
            numbers = [number_from_text(text) for text in _NUMBERS.split()]
            return [number for number in numbers if -(2**63) <= number <= 2**63 - 1]
        case _:
            return [number_from_text(text) for text in _NUMBERS.split() + _EXTREME_NUMBERS * extreme]


def literals_of(column: Column, *, extreme: bool) -> st.SearchStrategy[Literal]:
    """Literals that the column may meet, most of them edges."""
    edges = st.sampled_from(edge_literals(column, extreme=extreme))
    match column.type.name:
        case TypeName.BOOLEAN:
            return edges
        case TypeName.STRING:
            return edges | st.text(max_size=4)
        case TypeName.DATE:
            return edges | st.dates()
        case TypeName.TIMESTAMP:
            return edges | st.datetimes(timezones=st.just(dt.UTC))
        case _:
            return edges | st.decimals(-(10**18), 10**18, places=3).map(str).map(number_from_text)


_patterns = st.lists(
    st.sampled_from(["%", "_", r"\%", r"\_", r"\\", "a", "b", "é", "\n", ".", "\U0001f600"]), max_size=5
).map("".join)


def _predicates(column: Column, *, extreme: bool) -> st.SearchStrategy[Filter]:
    name, is_null = st.just(column.name), st.builds(IsNull, st.just(column.name))
    if column.type.name is TypeName.BINARY:
        return is_null
    literals = literals_of(column, extreme=extreme)
    kinds: list[st.SearchStrategy[Filter]] = [
        st.builds(Comparison, name, st.sampled_from(Operator), literals),
        st.builds(Comparison, name, st.sampled_from(Operator), literals),
        st.builds(InList, name, st.lists(literals, min_size=1, max_size=12).map(tuple)),
        st.builds(Between, name, literals, literals),
        is_null,
    ]
    if column.type.name is TypeName.STRING:
        kinds += [st.builds(Like, name, _patterns)] * 2
    return st.one_of(kinds)


def filters(table: TableSchema, *, extreme: bool = True) -> st.SearchStrategy[Filter]:
    """Legal filters over the table, up to a dozen predicates."""
    predicates = st.sampled_from(table.columns).flatmap(lambda column: _predicates(column, extreme=extreme))

    def combine(smaller: st.SearchStrategy[Filter]) -> st.SearchStrategy[Filter]:
        terms = st.lists(smaller, min_size=2, max_size=3).map(tuple)
        return st.builds(Not, smaller) | st.builds(And, terms) | st.builds(Or, terms)

    return st.recursive(predicates, combine, max_leaves=12)


def rows_of(table: TableSchema, *, max_size: int = 12) -> st.SearchStrategy[list[Row]]:
    """A few rows, each value null or anything at all."""
    values = {
        c.name: st.none() | values_of(c.type) if c.nullable else values_of(c.type) for c in table.columns
    }
    return st.lists(st.fixed_dictionaries(values), max_size=max_size)


def edge_rows(count: int) -> list[Row]:
    """Rows of TABLE made of edges and nulls only, every edge among them once `count` is 16."""
    dice = random.Random(1)
    choices = {c.name: [*EDGES[c.type.name], *([None] if c.nullable else [])] for c in TABLE.columns}
    return [
        {name: values[row] if row < len(values) else dice.choice(values) for name, values in choices.items()}
        for row in range(count)
    ]


def arrays_of(rows: Sequence[Row], table: TableSchema) -> dict[str, pa.Array]:
    """The rows as columns of their declared Arrow types."""
    return {c.name: pa.array([row[c.name] for row in rows], c.type.arrow) for c in table.columns}
