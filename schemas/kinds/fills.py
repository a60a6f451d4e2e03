"""Fills: the literal that a column has in rows whose records lack it."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import struct
import sys
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
            return _decimal(given, kind)
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
            return _instant(given)
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


def _decimal(given: object, kind: ColumnType) -> Decimal:
    text = str(given)
    try:
        number = Decimal(text) if len(text) <= _MOST_DIGITS else None
    except InvalidOperation:
        number = None
    if number is None or not number.is_finite() or (exact := kind.exact(number)) is None:
        raise ValueError(f"a number that {kind} holds, as 12.50")
    digits = max(len(number.as_tuple().digits), number.adjusted() + 1)
    if isinstance(given, float) and digits > sys.float_info.dig:
        # What was written may have been another number.
        raise ValueError(f"in quotes, which more than {sys.float_info.dig} digits need")
    return exact


def _instant(given: dt.datetime) -> dt.datetime:
    try:
        return given.replace(tzinfo=given.tzinfo or dt.UTC).astimezone(dt.UTC)
    except OverflowError:
        raise ValueError("in the years 1 to 9999 in UTC") from None


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
