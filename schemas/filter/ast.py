"""A filter as a tree of values, and its canonical text.

    Filter ::= Comparison | InList | Between | Like | IsNull     over one column
             | And | Or | Not                                    over filters

A literal has the Python type that its column's values have, except that every number is a `Decimal`:
what the user wrote, without a detour through binary fractions. `NOT IN`, `NOT BETWEEN`, `NOT LIKE` and
`IS NOT NULL` are `Not` around the plain form, which is what they mean in three-valued logic too.

`str(filter)` is canonical: equal filters have equal texts, and parsing the text gives an equal filter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from schemas.filter.literals import Literal, literal_text


class Operator(StrEnum):
    """How a comparison compares; `!=` is read as `<>`."""

    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


class _Node:
    __slots__ = ()

    def __str__(self) -> str:
        return _text(self)  # type: ignore[arg-type]  # every subclass is a member of Filter


@dataclass(frozen=True, slots=True)
class Comparison(_Node):
    """NULL where the column is NULL, as every predicate but `IsNull`."""

    column: str
    operator: Operator
    literal: Literal


@dataclass(frozen=True, slots=True)
class InList(_Node):
    """`literals` has at least one member."""

    column: str
    literals: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Between(_Node):
    """Both ends belong to it; nothing lies between a `low` above its `high`."""

    column: str
    low: Literal
    high: Literal


@dataclass(frozen=True, slots=True)
class Like(_Node):
    r"""The whole string matches: `%` is any text, `_` one character, `\` quotes a `%`, `_` or `\`."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull(_Node):
    """Never NULL itself."""

    column: str


@dataclass(frozen=True, slots=True)
class And(_Node):
    """At least two terms. An `And` in an `And` stays as the user's parentheses put it."""

    terms: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or(_Node):
    """At least two terms."""

    terms: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not(_Node):
    """NULL stays NULL."""

    term: Filter


Filter = Comparison | InList | Between | Like | IsNull | And | Or | Not


def columns_of(condition: Filter) -> tuple[str, ...]:
    """The columns that the filter reads, each once, in the order of their first mention."""
    return tuple(dict.fromkeys(_columns(condition)))


def _columns(condition: Filter) -> Iterator[str]:
    match condition:
        case And(terms) | Or(terms):
            for term in terms:
                yield from _columns(term)
        case Not(term):
            yield from _columns(term)
        case _:
            yield condition.column


def _text(condition: Filter) -> str:
    match condition:
        case And(terms):
            return " AND ".join(_operand(term, (And, Or)) for term in terms)
        case Or(terms):
            return " OR ".join(_operand(term, (Or,)) for term in terms)
        case Not(InList() | Between() | Like() | IsNull() as term):
            return _predicate_text(term, "NOT ")
        case Not(term):
            return f"NOT {_operand(term, (And, Or))}"
        case _:
            return _predicate_text(condition, "")


def _operand(term: Filter, needs_parentheses: tuple[type[_Node], ...]) -> str:
    return f"({term})" if isinstance(term, needs_parentheses) else str(term)


def _predicate_text(condition: Comparison | InList | Between | Like | IsNull, negation: str) -> str:
    match condition:
        case Comparison(column, operator, literal):
            return f"{column} {operator} {literal_text(literal)}"
        case InList(column, literals):
            return f"{column} {negation}IN ({', '.join(map(literal_text, literals))})"
        case Between(column, low, high):
            return f"{column} {negation}BETWEEN {literal_text(low)} AND {literal_text(high)}"
        case Like(column, pattern):
            return f"{column} {negation}LIKE {literal_text(pattern)}"
        case IsNull(column):
            return f"{column} IS {negation}NULL"
        case _:
            assert_never(condition)
