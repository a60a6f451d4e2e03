"""Filters: the text gives the tree back, and lanes and `verify` decide as the reference does."""

from __future__ import annotations

import itertools
import operator

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.errors import Code, ConfigError
from schemas.filter.ast import (
    Between,
    Comparison,
    Filter,
    InList,
    IsNull,
    Like,
    Not,
    Operator,
    columns_of,
    number_from_text,
)
from schemas.filter.columnar import evaluate
from schemas.filter.parse import parse_filter
from schemas.table import Column, TableSchema
from streaming.verify.records.rows import condition_of
from tests.kit.filter_oracle import decide
from tests.kit.filters import TABLE, WIDE, Row, arrays_of, edge_literals, edge_rows, filters, rows_of

EDGES = edge_rows(40)


@given(filters(TABLE))
def test_the_text_of_a_filter_parses_back_to_the_same_filter(condition: Filter) -> None:
    assert parse_filter(str(condition), TABLE) == condition


@given(filters(TABLE))
def test_case_of_keywords_and_space_between_tokens_mean_nothing(condition: Filter) -> None:
    words = str(condition).split("'")  # every second piece is the inside of a text
    words[::2] = [_spaced(piece) for piece in words[::2]]
    assert parse_filter("'".join(words), TABLE) == condition


def _spaced(piece: str) -> str:
    for keyword in ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE"):
        piece = piece.replace(f"{keyword} ", f"{keyword.title()}\n\t ")
    return piece.replace("(", "(  ")


@given(filters(TABLE), rows_of(TABLE))
def test_columns_are_decided_as_their_rows(condition: Filter, rows: list[Row]) -> None:
    assert_decided_alike(condition, EDGES + rows, TABLE)


@pytest.mark.parametrize("column", TABLE.columns, ids=lambda column: str(column.type))
def test_every_predicate_is_decided_alike_on_every_edge(column: Column) -> None:
    literals = edge_literals(column, extreme=True)
    conditions: list[Filter] = [IsNull(column.name), Not(IsNull(column.name))]
    conditions += [Comparison(column.name, *pair) for pair in itertools.product(Operator, literals)]
    conditions += [InList(column.name, (literal,)) for literal in literals]
    conditions += [InList(column.name, pair) for pair in itertools.pairwise(literals)]
    conditions += [Between(column.name, *pair) for pair in itertools.product(literals[::2], literals[1::2])]
    for condition in conditions:
        assert_decided_alike(condition, EDGES, TABLE)


def test_every_short_pattern_is_decided_alike() -> None:
    signs, letters = ("%", "_", r"\%", r"\_", r"\\", "a", "."), ("a", "\\", "%", "_", ".", "\n")
    texts = ["".join(each) for size in range(4) for each in itertools.product(letters, repeat=size)]
    rows: list[Row] = [{"s": text} for text in texts]
    values = {"s": pa.array(texts)}
    for pattern in ("".join(each) for size in range(4) for each in itertools.product(signs, repeat=size)):
        condition = Like("s", pattern)
        assert evaluate(condition, values).to_pylist() == [decide(condition, row) for row in rows], pattern


@given(filters(WIDE), rows_of(WIDE))
@example(
    Comparison("h", Operator.LESS, number_from_text("9" * 38)),
    [{"id": 1, "z": None, "h": number_from_text("0." + "9" * 38)}],
)
@example(InList("z", (number_from_text("1e20"),)), [{"id": 1, "z": number_from_text("1e20"), "h": None}])
def test_decimals_of_full_width_are_decided_exactly(condition: Filter, rows: list[Row]) -> None:
    assert_decided_alike(condition, rows, WIDE)


def assert_decided_alike(condition: Filter, rows: list[Row], table: TableSchema) -> None:
    """Compare lanes and `verify` with the reference."""
    arrays = arrays_of(rows, table)
    read = {name: arrays[name] for name in columns_of(condition)}
    decided = [decide(condition, row) for row in rows]
    assert evaluate(condition, read).to_pylist() == decided, str(condition)
    judge = condition_of(condition, table)
    found = [judge.test(tuple(row[name] for name in judge.columns)) for row in rows]
    assert all(map(operator.is_, found, decided)), str(condition)


@given(filters(TABLE), rows_of(TABLE), st.integers(0, 12))
def test_a_slice_is_decided_as_the_part_that_it_is(condition: Filter, rows: list[Row], start: int) -> None:
    arrays = arrays_of(rows, TABLE)
    part = evaluate(condition, {name: array.slice(start) for name, array in arrays.items()})
    assert part.equals(evaluate(condition, arrays).slice(start))


_PIECES = (
    "id i s AND OR NOT IN ( ) , = <> < 'a' 1 -2.5 NULL LIKE IS BETWEEN DATE '2026-01-01' select rand "
    "; -- ` é \x00"
)


@given(st.lists(st.sampled_from(_PIECES.split(" ")), max_size=20).map(" ".join) | st.text(max_size=60))
def test_any_text_is_a_filter_or_is_refused_with_its_place(text: str) -> None:
    refused = refusal_of(text)
    if refused:
        assert refused.code in (Code.EXPRESSION_INVALID, Code.EXPRESSION_NOT_ALLOWED)
        place, _, position = str(refused.where).partition(":")
        assert place == "filter"
        assert 1 <= int(position) <= len(text) + 1
        assert str(refused).isprintable()


def refusal_of(text: str) -> ConfigError | None:
    try:
        parse_filter(text, TABLE)
    except ConfigError as refused:
        return refused
    return None


def test_a_missing_column_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        evaluate(Comparison("id", Operator.EQUAL, number_from_text("1")), {})
