r"""A filter decided for one row at a time, in SQL's three-valued logic: TRUE, FALSE, or None for NULL.

Only the filter's syntax tree is shared with the service; this evaluator goes by Spark SQL's rules:

- NULL compared with anything is NULL; a literal is never NULL, so NOT IN is NULL only for a NULL column.
- Numbers compare exactly; a float or double column meets the double nearest to the literal, NaN equals
  itself and is above every number, and -0.0 equals 0.0.
- Text compares by code points, which is UTF-8 order. In LIKE `%` is any text, `_` one character, `\` quotes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from schemas.filter.ast import (
    And,
    Between,
    Comparison,
    Filter,
    InList,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    columns_of,
)
from schemas.records import Row
from schemas.table import TableSchema
from schemas.types import TypeName
from streaming.verify.records.rows import RowCondition

Test = Callable[[Row], bool | None]
Sortable = Callable[[Any], Any]
"""Maps the values of one column, and literals, to things that Python orders as Spark orders the column."""

_COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}
_FLOATING = frozenset({TypeName.FLOAT, TypeName.DOUBLE})
_ANY_TEXT, _ANY_CHARACTER = object(), object()


def condition_of(tree: Filter, table: TableSchema) -> RowCondition:
    """The filter, parsed against `table`, as a test of a row's values."""
    columns = columns_of(tree)
    return RowCondition(columns, _Compiler(table, columns).test(tree))


class _Compiler:
    def __init__(self, table: TableSchema, columns: tuple[str, ...]) -> None:
        self._table, self._columns = table, columns

    def test(self, tree: Filter) -> Test:
        match tree:
            case And(terms):
                return _all([self.test(term) for term in terms])
            case Or(terms):
                return _negation(_all([_negation(self.test(term)) for term in terms]))
            case Not(term):
                return _negation(self.test(term))
            case IsNull(column):
                index = self._columns.index(column)
                return lambda row: row[index] is None
            case Comparison(column, op, literal):
                compare, sortable = _COMPARE[op], self._sortable(column)
                bound = sortable(literal)
                return self._on(column, lambda value: compare(sortable(value), bound))
            case Between(column, low, high):
                sortable = self._sortable(column)
                least, most = sortable(low), sortable(high)
                return self._on(column, lambda value: least <= sortable(value) <= most)
            case InList(column, literals):
                sortable = self._sortable(column)
                members = frozenset(sortable(literal) for literal in literals)
                return self._on(column, lambda value: sortable(value) in members)
            case Like(column, pattern):
                tokens = _tokens(pattern)
                return self._on(column, lambda value: _is_like(value, tokens))

    def _on(self, column: str, decide: Callable[[Any], bool]) -> Test:
        index = self._columns.index(column)
        return lambda row: None if row[index] is None else decide(row[index])

    def _sortable(self, column: str) -> Sortable:
        return _floating if self._table.by_name[column].type.name in _FLOATING else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _floating(value: Any) -> tuple[bool, float]:
    number = float(value)
    return (True, 0.0) if math.isnan(number) else (False, number)


def _all(tests: list[Test]) -> Test:
    def decide(row: Row) -> bool | None:
        answers = [test(row) for test in tests]
        if False in answers:
            return False
        return None if None in answers else True

    return decide


def _negation(test: Test) -> Test:
    def decide(row: Row) -> bool | None:
        answer = test(row)
        return None if answer is None else not answer

    return decide


def _tokens(pattern: str) -> list[object]:
    tokens: list[object] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            tokens.append(next(characters))
        else:
            tokens.append({"%": _ANY_TEXT, "_": _ANY_CHARACTER}.get(character, character))
    return tokens


def _is_like(text: str, tokens: list[object]) -> bool:
    """Greedy with one point to go back to, the last `%`: no slower than text times pattern."""
    at = token = 0
    resume_at, resume_token = -1, -1
    while at < len(text):
        if token < len(tokens) and tokens[token] is _ANY_TEXT:
            token += 1
            resume_at, resume_token = at, token
        elif token < len(tokens) and (tokens[token] is _ANY_CHARACTER or tokens[token] == text[at]):
            at, token = at + 1, token + 1
        elif resume_token >= 0:
            resume_at += 1
            at, token = resume_at, resume_token
        else:
            return False
    return all(rest is _ANY_TEXT for rest in tokens[token:])
