"""Values of columns as JSON texts, one by one: the model for `schemas.json.cells`, in both of its ways.

What a column can't hold is refused: ValueError or TypeError.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Literal

from schemas.records import Row
from schemas.table import Column
from schemas.types import ColumnType, TypeName, Value

Encoding = Literal["json", "json-schema"]
"""Plain values that say what they are; or Kafka Connect's, which the schema in their frame explains."""

_PYTHON: dict[TypeName, type] = {
    TypeName.BOOLEAN: bool,
    TypeName.INT: int,
    TypeName.BIGINT: int,
    TypeName.FLOAT: float,
    TypeName.DOUBLE: float,
    TypeName.DECIMAL: Decimal,
    TypeName.STRING: str,
    TypeName.BINARY: bytes,
    TypeName.DATE: dt.date,
    TypeName.TIMESTAMP: dt.datetime,
}
_LIMITS = {TypeName.INT: 2**31, TypeName.BIGINT: 2**63}
_DAY_ZERO, _INSTANT_ZERO = dt.date(1970, 1, 1), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_quoted = json.JSONEncoder(ensure_ascii=False).encode
_LEAST_PLAIN, _LEAST_BIG = -6, 10
"""Powers of ten from which on, and up to which, a number is written without an exponent."""


def written_row(row: Row, columns: Sequence[Column], encoding: Encoding) -> str:
    """An object of the columns in their order."""
    fields = zip(columns, row, strict=True)
    return (
        "{"
        + ",".join(f"{text(column.name)}:{written(value, column, encoding)}" for column, value in fields)
        + "}"
    )


def written(value: Value, column: Column, encoding: Encoding) -> str:
    """One value. Raises: ValueError, TypeError."""
    if value is None:
        if not column.nullable:
            raise ValueError(f"a null in column {column.name}")
        return "null"
    kind = column.type
    if type(value) is not _PYTHON[kind.name]:
        raise TypeError(f"column {column.name} is {kind}, not {type(value).__name__}")
    return _WRITERS[encoding][kind.name](value, kind)


def text(value: str) -> str:
    """Quotes a text; UnicodeEncodeError for half a surrogate pair, which UTF-8 does not have."""
    value.encode()
    return _quoted(value)


def _boolean(value: bool, _: ColumnType) -> str:
    return "true" if value else "false"


def _integer(value: int, kind: ColumnType) -> str:
    if not -_LIMITS[kind.name] <= value < _LIMITS[kind.name]:
        raise ValueError(f"a number that {kind} does not hold")
    return str(value)


def _double(value: float, _: ColumnType) -> str:
    return _number(value, repr(value))


def _float(value: float, _: ColumnType) -> str:
    """Writes the fewest digits that distinguish it from the other numbers of 32 bits."""
    import numpy as np

    if math.isfinite(value) and struct.unpack("<f", struct.pack("<f", value))[0] != value:
        raise ValueError("a number that float does not hold")
    return _number(value, str(np.float32(value)))


def _number(value: float, shortest: str) -> str:
    """The shortest digits that read back, without a fraction or an exponent where they need none."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int)
    power, figures = len(digits) + exponent - 1, "".join(map(str, digits))
    if _LEAST_PLAIN <= power < _LEAST_BIG:
        plain = format(Decimal((0, digits, exponent)), "f")
    else:
        plain = figures[0] + ("." + figures[1:] if figures[1:] else "") + f"e{power:+d}"
    return "-" * sign + plain


def _exact(value: Decimal, kind: ColumnType) -> Decimal:
    fixed = kind.exact(value) if value.is_finite() else None
    if fixed is None:
        raise ValueError(f"a number that {kind} does not hold")
    return fixed


def _decimal(value: Decimal, kind: ColumnType) -> str:
    return f'"{_exact(value, kind):f}"'


def _binary(value: bytes, _: ColumnType) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _date(value: dt.date, _: ColumnType) -> str:
    return f'"{value.isoformat()}"'


def _timestamp(value: dt.datetime, _: ColumnType) -> str:
    return f'"{_utc(value).replace(tzinfo=None).isoformat(timespec="microseconds")}Z"'


def _utc(value: dt.datetime) -> dt.datetime:
    if value.tzinfo is None:
        raise ValueError("a timestamp without a time zone")
    return value.astimezone(dt.UTC)


def _unscaled(value: Decimal, kind: ColumnType) -> str:
    """Same bytes as Java's `BigInteger.toByteArray`."""
    sign, digits, _ = _exact(value, kind).as_tuple()
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return _binary(number.to_bytes(size, signed=True), kind)


def _days(value: dt.date, _: ColumnType) -> str:
    return str((value - _DAY_ZERO).days)


def _micros(value: dt.datetime, _: ColumnType) -> str:
    return str((_utc(value) - _INSTANT_ZERO) // dt.timedelta(microseconds=1))


_JSON: dict[TypeName, Callable[..., str]] = {
    TypeName.BOOLEAN: _boolean,
    TypeName.INT: _integer,
    TypeName.BIGINT: _integer,
    TypeName.FLOAT: _float,
    TypeName.DOUBLE: _double,
    TypeName.DECIMAL: _decimal,
    TypeName.STRING: lambda value, _: text(value),
    TypeName.BINARY: _binary,
    TypeName.DATE: _date,
    TypeName.TIMESTAMP: _timestamp,
}
_WRITERS: dict[Encoding, dict[TypeName, Callable[..., str]]] = {
    "json": _JSON,
    "json-schema": _JSON | {TypeName.DECIMAL: _unscaled, TypeName.DATE: _days, TypeName.TIMESTAMP: _micros},
}
