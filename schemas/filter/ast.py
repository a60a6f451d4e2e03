"""A filter as a tree of values, its literals, and its canonical text.

    Filter ::= Comparison | InList | Between | Like | IsNull     over one column
             | And | Or | Not                                    over filters

A literal has the Python type that its column's values have, except that every number is a `Decimal` (exact, at most 38
significant digits as in Spark, normalised): what the user wrote, without a detour through binary fractions. A timestamp
is UTC, with or without a Z at its end. Text follows standard SQL: a doubled quote is a quote, nothing else is special.

`NOT IN`, `NOT BETWEEN`, `NOT LIKE` and `IS NOT NULL` are `Not` around the plain form, which is what they mean in
three-valued logic too. `str(filter)` is canonical: equal filters have equal texts, and parsing the text gives an equal
filter.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import StrEnum
from typing import assert_never

from schemas.types import ColumnType, TypeName

Literal = Decimal | str | bool | dt.date | dt.datetime
"""A literal's Python type; a timestamp is an aware `datetime` in UTC."""

MAX_DIGITS = 38
MAX_EXPONENT = 400
"""Past every double, and small enough that no number takes memory worth naming."""
MAX_PATTERN_CHARS = 1_000
"""Matching takes time in proportion to pattern times text at worst; this bounds the factor."""

_EXACT = Context(prec=MAX_DIGITS)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z?")

_BELONGS: dict[TypeName, tuple[type[Literal], str]] = {
    TypeName.BOOLEAN: (bool, "TRUE or FALSE"),
    TypeName.INT: (Decimal, "a number"),
    TypeName.BIGINT: (Decimal, "a number"),
    TypeName.FLOAT: (Decimal, "a number"),
    TypeName.DOUBLE: (Decimal, "a number"),
    TypeName.DECIMAL: (Decimal, "a number"),
    TypeName.STRING: (str, "text in single quotes"),
    TypeName.DATE: (dt.date, "DATE '2026-01-31'"),
    TypeName.TIMESTAMP: (dt.datetime, "TIMESTAMP '2026-01-31 12:00:00'"),
}
"""The literal that each type is compared with. Binary is missing: its bytes have no literal."""


def number_from_text(text: str) -> Decimal:
    """Read `10`, `-0.50`, `1e6`. ValueError when it has too many digits or its exponent is out of bounds."""
    mantissa, _, exponent = text.lower().partition("e")
    digits = mantissa.lstrip("+-").replace(".", "").strip("0")
    # The exponent's length is checked first: Decimal("1e999999999999999999") raises an error of its own.
    if len(digits) <= MAX_DIGITS and len(exponent) <= len(f"-{MAX_EXPONENT}"):
        number = _EXACT.normalize(Decimal(text)) or Decimal(0)  # a minus zero is a zero
        if abs(number.adjusted()) <= MAX_EXPONENT:
            return number
    raise ValueError(f"at most {MAX_DIGITS} digits, and an exponent in ±{MAX_EXPONENT}")


def string_from_text(text: str) -> str:
    """Read a quoted text, quotes included."""
    return text[1:-1].replace("''", "'")


def date_from_text(text: str) -> dt.date:
    """Read `2026-01-31`. ValueError for another form or a day that doesn't exist."""
    if not _DATE.fullmatch(text):
        raise ValueError("YYYY-MM-DD")
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise ValueError("a day of the calendar") from None


def timestamp_from_text(text: str) -> dt.datetime:
    """Read `2026-01-31 12:00:00[.ffffff]`, with a T for the space and a Z at the end if wanted: always UTC.

    ValueError for another form or an instant that doesn't exist.
    """
    if not _TIMESTAMP.fullmatch(text):
        raise ValueError("YYYY-MM-DD HH:MM:SS[.ffffff], in UTC")
    day, _, fraction = text.rstrip("Z").partition(".")
    try:
        whole = dt.datetime.fromisoformat(day).replace(tzinfo=dt.UTC)
    except ValueError:
        raise ValueError("an instant of the calendar") from None
    return whole.replace(microsecond=int(fraction.ljust(6, "0")))


def literal_text(literal: Literal) -> str:
    """The one text of a literal in canonical form."""
    match literal:
        case bool():
            return str(literal).upper()
        case Decimal():
            plain = abs(literal.adjusted()) <= MAX_DIGITS
            return format(literal, "f") if plain else str(literal)
        case dt.datetime():
            return f"TIMESTAMP '{literal.replace(tzinfo=None).isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{literal.isoformat()}'"
        case str():
            return "'" + literal.replace("'", "''") + "'"


def check_belongs(literal: Literal, kind: ColumnType) -> None:
    """Check that a column of this type can be compared with a literal. Raises: ValueError that names the right form.

    Nothing is converted: a date is not compared with a text that looks like one, so no session setting decides the
    meaning of a filter. On float and double the number has to lie within the range of a double.
    """
    wanted, description = _BELONGS.get(kind.name, (None, "IS NULL or IS NOT NULL and no literal"))
    if type(literal) is not wanted:
        raise ValueError(f"{description}, for the column is {kind}")
    is_binary_number = kind.name in (TypeName.FLOAT, TypeName.DOUBLE)
    if is_binary_number and isinstance(literal, Decimal) and math.isinf(float(literal)):
        raise ValueError("a number within the range of a double")


def check_pattern(pattern: str) -> None:
    r"""ValueError when a backslash in a LIKE pattern escapes nothing, which Spark refuses while it runs."""
    if re.sub(r"\\[%_\\]", "", pattern).count("\\"):
        raise ValueError("a pattern whose backslashes stand before %, _ or another backslash")
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"a pattern of at most {MAX_PATTERN_CHARS} characters")


class Operator(StrEnum):
    """Operators of a comparison; `!=` is read as `<>`."""

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
    """A conjunction of at least two terms. An `And` in an `And` stays as the user's parentheses put it."""

    terms: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or(_Node):
    """A disjunction of at least two terms."""

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
