"""The slow, obvious reference of `schemas.filter.columnar`: one row at a time, in plain Python.

Numbers are compared as fractions, so no rounding can hide; text as UTF-8 bytes; LIKE by trying every split.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

from schemas.filter.ast import And, Between, Comparison, Filter, InList, IsNull, Like, Not, Operator, Or

Truth = bool | None
"""None is SQL's NULL."""


def decide(condition: Filter, row: Mapping[str, Any]) -> Truth:
    match condition:
        case And(terms):
            return _all(decide(term, row) for term in terms)
        case Or(terms):
            return _not(_all(_not(decide(term, row)) for term in terms))
        case Not(term):
            return _not(decide(term, row))
        case IsNull(column):
            return row[column] is None
    value = row[condition.column]
    if value is None:
        return None
    match condition:
        case Comparison(_, operator, literal):
            return _holds(_order(value, literal), operator)
        case Between(_, low, high):
            return _order(value, low) >= 0 and _order(value, high) <= 0
        case InList(_, literals):
            return any(_order(value, literal) == 0 for literal in literals)
        case Like(_, pattern):
            return _matches(value, pattern)


def _all(truths: Iterable[Truth]) -> Truth:
    seen = set(truths)
    if False in seen:
        return False
    return None if None in seen else True


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _holds(order: int, operator: Operator) -> bool:
    return {
        Operator.EQUAL: order == 0,
        Operator.NOT_EQUAL: order != 0,
        Operator.LESS: order < 0,
        Operator.LESS_OR_EQUAL: order <= 0,
        Operator.GREATER: order > 0,
        Operator.GREATER_OR_EQUAL: order >= 0,
    }[operator]


def _order(value: Any, literal: Any) -> int:
    """-1, 0 or 1 as the value is below, equal to or above the literal."""
    if isinstance(value, float):
        if value != value:
            return 1
        if value in (float("inf"), float("-inf")):
            return 1 if value > 0 else -1
        literal = float(literal)
    if isinstance(value, str):
        value, literal = value.encode(), literal.encode()
    elif isinstance(literal, Decimal | float):
        value, literal = Fraction(value), Fraction(literal)
    return int(value > literal) - int(value < literal)


def _matches(text: str, pattern: str) -> bool:
    @cache
    def match(at: int, reading: int) -> bool:
        if reading == len(pattern):
            return at == len(text)
        sign, rest = pattern[reading], reading + 1
        if sign == "%":
            return any(match(end, rest) for end in range(at, len(text) + 1))
        if sign == "\\":
            sign, rest = pattern[rest], rest + 1
        elif sign == "_":
            return at < len(text) and match(at + 1, rest)
        return text[at : at + 1] == sign and match(at + 1, rest)

    return match(0, 0)
