"""A filter over Arrow columns: for every row TRUE, FALSE or NULL, as Spark SQL decides.

Three-valued logic is Kleene's: NULL AND FALSE is FALSE, NULL OR TRUE is TRUE. Values compare as follows.

- int, bigint and decimal meet a number exactly. The number is rounded down to the column's scale, and the
  operator absorbs what was cut off (`n > 10.5` is `n > 10`, `n = 10.5` is never true), so neither side passes
  through a double or a wider type, and a number beyond the type's range settles every row at once.
  Spark is exact too, with two exceptions that are not followed: it compares an integer with `1e18` as
  doubles, and calls `n < 9223372036854775808` TRUE even where n is NULL.
- float and double meet the nearest double, a float widened first. NaN equals itself and is greater than every
  number, -0.0 equals 0.0. (Spark SQL reference, "NaN semantics".)
- Strings compare by UTF-8 bytes; LIKE spans newlines and counts characters, not bytes, for `_`. It runs on
  RE2, which doesn't backtrack, and not as Arrow's `match_like`: that leaves escapes in a text before, behind or
  between `%` as they are (26.0).
- FALSE is below TRUE. Dates and timestamps compare as the numbers that they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_FLOOR, Context, Decimal
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

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
)

_KERNELS: Mapping[Operator, Callable[[pa.Array, pa.Scalar], pa.BooleanArray]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_OR_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_OR_EQUAL: pc.greater_equal,
}
_LESS = frozenset({Operator.LESS, Operator.LESS_OR_EQUAL})
_GREATER = frozenset({Operator.GREATER, Operator.GREATER_OR_EQUAL})

_SIGN = re.compile(r"\\?(.)", re.DOTALL)
"""A character of a LIKE pattern, escaped or not."""
_OPEN = {"%": ".*", "_": "."}
_WIDE = Context(prec=100)
"""The context for rounding down: Python's default of 28 digits would be too few."""


def evaluate(condition: Filter, columns: Mapping[str, pa.Array]) -> pa.BooleanArray:
    """Decide the filter for every row; a row is to be kept where the result is true, not where it is null.

    Shapes: all arrays of length n, of their column's Arrow type (`ColumnType.arrow`; the time zone's label
    doesn't matter); the result has length n. `condition` was parsed against the same table.
    Raises: KeyError for a column that the filter reads and `columns` lacks.
    """
    match condition:
        case And(terms):
            return reduce(pc.and_kleene, (evaluate(term, columns) for term in terms))
        case Or(terms):
            return reduce(pc.or_kleene, (evaluate(term, columns) for term in terms))
        case Not(term):
            return pc.invert(evaluate(term, columns))
        case Comparison(column, operator, literal):
            return _compare(columns[column], operator, literal)
        case Between(column, low, high):
            values = columns[column]
            above = _compare(values, Operator.GREATER_OR_EQUAL, low)
            return pc.and_kleene(above, _compare(values, Operator.LESS_OR_EQUAL, high))
        case InList(column, literals):
            return _in_list(columns[column], literals)
        case Like(column, pattern):
            return pc.match_substring_regex(columns[column], _regex(pattern))
        case IsNull(column):
            return pc.is_null(columns[column])


def _compare(values: pa.Array, operator: Operator, literal: Literal) -> pa.BooleanArray:
    if not isinstance(literal, Decimal):
        return _KERNELS[operator](values, pa.scalar(literal, values.type))
    if pa.types.is_floating(values.type):
        return _compare_doubles(values, operator, float(literal))
    return _compare_exactly(values, operator, literal)


def _compare_doubles(values: pa.Array, operator: Operator, number: float) -> pa.BooleanArray:
    decided = _KERNELS[operator](pc.cast(values, pa.float64()), pa.scalar(number))
    return pc.or_kleene(decided, pc.is_nan(values)) if operator in _GREATER else decided


def _compare_exactly(values: pa.Array, operator: Operator, number: Decimal) -> pa.BooleanArray:
    low, high = _range(values.type)
    if number < low:
        return _settled(values, operator in _GREATER or operator is Operator.NOT_EQUAL)
    if number > high:
        return _settled(values, operator in _LESS or operator is Operator.NOT_EQUAL)
    floor = _floor(number, values.type)
    if floor != number:
        match operator:
            case Operator.EQUAL | Operator.NOT_EQUAL:
                return _settled(values, operator is Operator.NOT_EQUAL)
            case Operator.LESS | Operator.LESS_OR_EQUAL:
                operator = Operator.LESS_OR_EQUAL
            case _:
                operator = Operator.GREATER
    return _KERNELS[operator](values, pa.scalar(_stored(floor, values.type), values.type))


def _regex(pattern: str) -> str:
    """The regular expression that matches what a LIKE pattern does."""
    signs = _SIGN.finditer(pattern)
    return rf"(?s)\A{''.join(_OPEN.get(sign[0]) or re.escape(sign[1]) for sign in signs)}\z"


def _in_list(values: pa.Array, literals: Iterable[Literal]) -> pa.BooleanArray:
    if pa.types.is_floating(values.type):
        values = pc.cast(values, pa.float64())
        members = _doubles(literals)
    else:
        kind = values.type
        members = [_stored(literal, kind) for literal in literals if _is_representable(literal, kind)]
    found = pc.is_in(values, value_set=pa.array(members, values.type))
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))


def _doubles(literals: Iterable[Literal]) -> list[Literal | float]:
    doubles = [float(number) for number in literals if isinstance(number, Decimal)]
    # They are looked up by bits, and a zero has two forms.
    return [*doubles, *(-number for number in doubles if number == 0)]


def _is_representable(literal: Literal, kind: pa.DataType) -> bool:
    if not isinstance(literal, Decimal):
        return True
    low, high = _range(kind)
    return low <= literal <= high and _floor(literal, kind) == literal


def _stored(literal: Literal, kind: pa.DataType) -> Literal | float:
    return int(literal) if pa.types.is_integer(kind) and isinstance(literal, Decimal) else literal


def _range(kind: pa.DataType) -> tuple[Decimal, Decimal]:
    """The least and the greatest value of an exact numeric type."""
    if pa.types.is_decimal(kind):
        high = Decimal(10**kind.precision - 1).scaleb(-kind.scale, _WIDE)
        return high.copy_negate(), high
    half = 1 << (kind.bit_width - 1)
    return Decimal(-half), Decimal(half - 1)


def _floor(number: Decimal, kind: pa.DataType) -> Decimal:
    """The greatest value of the type that is not above `number`, which lies in its range."""
    scale = kind.scale if pa.types.is_decimal(kind) else 0
    return number.quantize(Decimal(1).scaleb(-scale), ROUND_FLOOR, _WIDE)


def _settled(values: pa.Array, truth: bool) -> pa.BooleanArray:
    """`truth` for every row that has a value, null for the others."""
    return pc.if_else(pc.is_valid(values), pa.scalar(truth), pa.scalar(None, pa.bool_()))
