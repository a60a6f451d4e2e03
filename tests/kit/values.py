"""Random columns and values of every type, for Hypothesis, and how many of them tests try."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from schemas.records import Row
from schemas.table import Column
from schemas.types import MAX_DECIMAL_PRECISION, ColumnType, TypeName, Value

SIMPLE_TYPES = tuple(ColumnType(name) for name in TypeName if name is not TypeName.DECIMAL)
DECIMAL_SAMPLES = tuple(ColumnType.parse(f"decimal({p})") for p in ("1,0", "9,9", "18,2", "19,0", "38,10"))
TYPES = SIMPLE_TYPES + DECIMAL_SAMPLES
KEY_TYPES = tuple(kind for kind in TYPES if kind.allowed_in_key)

_decimal_types = st.integers(1, MAX_DECIMAL_PRECISION).flatmap(
    lambda p: st.integers(0, p).map(lambda scale: ColumnType(TypeName.DECIMAL, p, scale))
)
column_types: st.SearchStrategy[ColumnType] = st.one_of(st.sampled_from(SIMPLE_TYPES), _decimal_types)
key_types = column_types.filter(lambda kind: kind.allowed_in_key)


def integers_around_powers_of_two(low: int, high: int) -> st.SearchStrategy[int]:
    """Numbers at which one more byte is needed, which uniform draws hardly ever meet."""
    edges = {sign * (1 << bit) + step for bit in range(128) for sign in (1, -1) for step in (-1, 0, 1)}
    inside = sorted(edge for edge in edges | {low, high, 0} if low <= edge <= high)
    return st.sampled_from(inside) | st.integers(low, high)


def decimal(unscaled: int, scale: int) -> Decimal:
    """Exact whatever the thread's decimal context is."""
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def values_of(kind: ColumnType) -> st.SearchStrategy[Value]:
    """Values of a type that are not null."""
    match kind.name:
        case TypeName.BOOLEAN:
            return st.booleans()
        case TypeName.INT:
            return integers_around_powers_of_two(-(2**31), 2**31 - 1)
        case TypeName.BIGINT:
            return integers_around_powers_of_two(-(2**63), 2**63 - 1)
        case TypeName.FLOAT:
            return st.floats(width=32)
        case TypeName.DOUBLE:
            return st.floats()
        case TypeName.DECIMAL:
            most, scale = 10 ** (kind.precision or 0) - 1, kind.scale or 0
            return integers_around_powers_of_two(-most, most).map(lambda unscaled: decimal(unscaled, scale))
        case TypeName.STRING:
            return st.text(max_size=70)
        case TypeName.BINARY:
            return st.binary(max_size=70)
        case TypeName.DATE:
            return st.dates()
        case TypeName.TIMESTAMP:
            return st.datetimes(timezones=st.just(dt.UTC)).map(lambda at: at.replace(fold=0))


@st.composite
def column_lists(draw: st.DrawFn, max_size: int = 5) -> tuple[Column, ...]:
    """Columns c0, c1, ...; each nullable or not, whatever its type."""
    kinds = draw(st.lists(column_types, min_size=1, max_size=max_size))
    return tuple(Column(f"c{i}", kind, draw(st.booleans())) for i, kind in enumerate(kinds))


@st.composite
def key_column_lists(draw: st.DrawFn, max_size: int = 4) -> tuple[Column, ...]:
    """Columns that may be a primary key."""
    kinds = draw(st.lists(key_types, min_size=1, max_size=max_size))
    return tuple(Column(f"k{i}", kind, nullable=False) for i, kind in enumerate(kinds))


def rows_of(columns: Sequence[Column]) -> st.SearchStrategy[Row]:
    """Rows of these columns, with nulls where they are allowed."""
    return st.tuples(*(st.none() | values_of(c.type) if c.nullable else values_of(c.type) for c in columns))


T = TypeVar("T")


def drawn(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """At most `count` examples, of which none is made smaller. Not for use inside of another draw."""
    found: list[T] = []

    @settings(
        max_examples=count, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found


QUICK_SHARE = 4


def is_quick() -> bool:
    """True in `make quick`."""
    return settings.get_current_profile_name() == "quick"


def examples(count: int) -> int:
    """The number of cases, of `count`, that this run tries: a quick run tries a fourth of them, two at least."""
    return max(count // QUICK_SHARE, 2) if is_quick() else count
