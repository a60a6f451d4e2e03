"""Fills: the literal that a column has in rows whose records lack it."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import struct
from decimal import Decimal, InvalidOperation

from schemas.filter.ast import date_from_text, timestamp_from_text
from schemas.types import ColumnType, TypeName, Value

_BEYOND = {TypeName.INT: 2**31, TypeName.BIGINT: 2**63}
_MOST_DIGITS = 1_000


def fill_of(given: object, kind: ColumnType) -> Value:
    """The value of a literal as YAML or JSON has it; `None` stays. Raises: ValueError that names the right form."""
    if given is None:
        return None
    match kind.name:
        case TypeName.BOOLEAN if isinstance(given, bool):
            return given
        case TypeName.INT | TypeName.BIGINT if type(given) is int:
            if -_BEYOND[kind.name] <= given < _BEYOND[kind.name]:
                return given
        case TypeName.FLOAT | TypeName.DOUBLE if type(given) in (int, float):
            return _real(given, is_single=kind.name is TypeName.FLOAT)
        case TypeName.DECIMAL if type(given) in (int, float, str):
            return _decimal(str(given), kind)
        case TypeName.STRING if isinstance(given, str):
            if not has_utf8(given):
                raise ValueError("text without half a surrogate pair")
            return given
        case TypeName.BINARY if isinstance(given, str):
            return _bytes(given)
        case TypeName.DATE if isinstance(given, str) or type(given) is dt.date:
            return date_from_text(str(given))
        case TypeName.TIMESTAMP if isinstance(given, str):
            return timestamp_from_text(given)
        case TypeName.TIMESTAMP if isinstance(given, dt.datetime):
            return given.replace(tzinfo=given.tzinfo or dt.UTC).astimezone(dt.UTC)
    raise ValueError(f"a value of {kind}")


def _real(given: object, *, is_single: bool) -> float:
    try:
        number = float(given)  # type: ignore[arg-type]
        if is_single:
            number = float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("a finite number that the type holds")
    return number


def _decimal(text: str, kind: ColumnType) -> Decimal:
    try:
        number = Decimal(text) if len(text) <= _MOST_DIGITS else None
    except InvalidOperation:
        number = None
    exact = kind.exact(number) if number is not None and number.is_finite() else None
    if exact is None:
        raise ValueError(f"a number that {kind} holds, as 12.50")
    return exact


def has_utf8(text: str) -> bool:
    """False for a string with half a surrogate pair, which has no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("bytes in base64") from None
