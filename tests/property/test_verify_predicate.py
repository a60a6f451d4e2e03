"""The judge's own evaluation of filters against the slow and obvious oracle."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given

from schemas.filter.ast import Between, Comparison, Filter, InList, IsNull, Operator
from schemas.table import Column, TableSchema
from streaming.verify.records.rows import condition_of
from tests.kit.filter_oracle import decide
from tests.kit.filters import TABLE, WIDE, Row, edge_literals, edge_rows, filters, rows_of

EDGES = edge_rows(40)


def assert_decided_alike(tree: Filter, rows: list[Row], table: TableSchema) -> None:
    condition = condition_of(tree, table)
    for row in rows:
        values = tuple(row[name] for name in condition.columns)
        assert condition.test(values) is decide(tree, row), str(tree)


@given(filters(TABLE), rows_of(TABLE))
def test_a_filter_is_decided_as_the_oracle_does(tree: Filter, rows: list[Row]) -> None:
    assert_decided_alike(tree, EDGES + rows, TABLE)


@given(filters(WIDE), rows_of(WIDE))
def test_decimals_of_full_width_are_decided_exactly(tree: Filter, rows: list[Row]) -> None:
    assert_decided_alike(tree, rows, WIDE)


@pytest.mark.parametrize("column", TABLE.columns, ids=lambda column: str(column.type))
def test_every_predicate_is_decided_alike_on_every_edge(column: Column) -> None:
    literals = edge_literals(column, extreme=True)
    trees: list[Filter] = [IsNull(column.name)]
    trees += [Comparison(column.name, *pair) for pair in itertools.product(Operator, literals)]
    trees += [InList(column.name, pair) for pair in itertools.pairwise(literals)]
    trees += [Between(column.name, *pair) for pair in itertools.product(literals[::2], literals[1::2])]
    for tree in trees:
        assert_decided_alike(tree, EDGES, TABLE)
