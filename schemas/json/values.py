"""Values of columns from JSON, in exactly the forms of docs/formats.md#json-values.

Each type has one reading, which is exact: a value that its column can't hold as it is written is refused, not rounded
(but for float and double, where rounding to the nearest number is what the type means).
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from decimal import Decimal
from typing import Literal, TypeVar

from schemas.errors import Code
from schemas.json.tokens import MAX_NUMBER, NUMBER, JsonError, Kind, Token
from schemas.table import Column
from schemas.types import MAX_DECIMAL_PRECISION, ColumnType, TypeName, Value

SubMicros = Literal["refuse", "truncate"]
"""The treatment of nonzero digits beyond microseconds."""
Reader = Callable[[Token, ColumnType], Value]
"""Reads all values but null. ValueError: another form than the type's; OverflowError: a value that does not fit it."""

_Day = TypeVar("_Day", bound=dt.date)
_RANGES = {TypeName.INT: 2**31, TypeName.BIGINT: 2**63}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DAY = r"(?:[0-9]{4,9}|[+-][0-9]{4,9})-[0-9]{2}-[0-9]{2}"
"""ISO 8601 has a sign in front of years that have not four digits, and of those before 1."""
_DATE = re.compile(_DAY)
_TIMESTAMP = re.compile(
    rf"({_DAY}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?)([0-9]{{0,3}})"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_LARGEST_SINGLE, _BEYOND_SINGLE = 2.0**128 - 2.0**104, 2.0**128 - 2.0**103
_MAX_OFFSET = dt.timedelta(hours=18)
_EXPONENT = re.compile(r"[eE][+-]?([0-9]+)")
_MAX_EXPONENT = 3
"""Digits of it, so that no number of a few characters stands for one of gigabytes."""


def upstream_reader(column: Column, sub_micros: SubMicros) -> Reader:
    """Reads a column's values in records of the upstream: numbers may be wrapped, and instants have too many digits."""
    if column.unsigned is not None:
        return wrapped_of
    if column.type.name is TypeName.TIMESTAMP:
        return lambda token, _: timestamp_of(only(token, Kind.TEXT), sub_micros)
    return _READERS[column.type.name]


def plain_token(text: str, column: Column) -> Token:
    """A text without JSON's quotes, as the kind of value that the column has."""
    kind = Kind.TEXT
    is_whole = column.type.name in _RANGES or column.unsigned is not None
    if column.type.name is TypeName.BOOLEAN and text in ("true", "false"):
        kind = Kind.BOOLEAN
    elif is_whole and len(text) <= MAX_NUMBER and _INTEGER.fullmatch(text):
        kind = Kind.INTEGER
    return Token(kind, text)


_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")


def read_by(reader: Reader, token: Token, column: Column) -> Value:
    """None for null, even if the column may not be null, and what the reader makes of every other value.

    Raises: JsonError with the column: JSON_MALFORMED for another form than its type's, VALUE_OUT_OF_RANGE, and
        BAD_ENCODING for half a surrogate pair.
    """
    if token.kind is Kind.NULL:
        return None
    try:
        return reader(token, column.type)
    except OverflowError:
        article = "an" if column.type.name is TypeName.INT else "a"
        raise JsonError(
            f"{article} {column.type} out of range", Code.VALUE_OUT_OF_RANGE, column.name
        ) from None
    except UnicodeEncodeError:
        raise JsonError("half a surrogate pair", Code.BAD_ENCODING, column.name) from None
    except ValueError:
        raise JsonError(f"another form than {column.type} has in JSON", column=column.name) from None


def _boolean(token: Token, _: ColumnType) -> bool:
    return only(token, Kind.BOOLEAN) == "true"


def _integer(token: Token, kind: ColumnType) -> int:
    return _within(token, _RANGES[kind.name])


def _within(token: Token, beyond: int) -> int:
    number = int(only(token, Kind.INTEGER))
    if not -beyond <= number < beyond:
        raise OverflowError
    return number


def wrapped_of(token: Token, kind: ColumnType) -> Decimal:
    """An unsigned number of 64 bits that was read as a signed one: from 2^63 on it is negative."""
    number = Decimal(_within(token, _RANGES[TypeName.BIGINT]) % 2**64)
    fixed = kind.exact(number)
    if fixed is None:
        raise OverflowError
    return fixed


def _double(token: Token, kind: ColumnType) -> float:
    if token.kind is Kind.TEXT:
        return _not_finite(token.text)
    text = only(token, Kind.INTEGER, Kind.FRACTION)
    number = float(text)
    if math.isinf(number):
        raise OverflowError
    if not number and token.kind is Kind.INTEGER:
        return 0.0  # a whole number has no negative zero
    return _single(text, number) if kind.name is TypeName.FLOAT else number


def _not_finite(text: str) -> float:
    if text not in _NOT_FINITE:
        raise ValueError
    return _NOT_FINITE[text]


def _single(text: str, number: float) -> float:
    """The nearest of 32 bits to what is written, which is not always the nearest to the nearest double."""
    written, middle = Decimal(text), Decimal(number)
    if abs(number) == _BEYOND_SINGLE and abs(written) < abs(middle):
        return math.copysign(_LARGEST_SINGLE, number)
    near: float = struct.unpack("<f", struct.pack("<f", number))[0]  # OverflowError beyond them
    if near == number:
        return near
    [bits] = struct.unpack("<i", struct.pack("<f", near))
    towards = 1 if abs(near) < abs(number) else -1
    [other] = struct.unpack("<f", struct.pack("<i", bits + towards))
    if (
        abs(number - near) == abs(other - number)
        and (written > middle) == (other > number)
        and written != middle
    ):
        return float(other)
    return near


def decimal_of(token: Token, kind: ColumnType) -> Decimal:
    """A number, or a text that holds one, as a reader does it."""
    text = only(token, Kind.INTEGER, Kind.FRACTION, Kind.TEXT)
    if not NUMBER.fullmatch(text):
        raise ValueError
    exponent = _EXPONENT.search(text)
    if len(text) > MAX_NUMBER or (exponent and len(exponent[1]) > _MAX_EXPONENT):
        raise OverflowError
    written = Decimal(text)
    if written.adjusted() >= MAX_DECIMAL_PRECISION:
        raise OverflowError  # a zero with such an exponent, too
    fixed = kind.exact(written)
    if fixed is None:
        raise OverflowError
    return fixed


def _string(token: Token, _: ColumnType) -> str:
    text = only(token, Kind.TEXT, Kind.INTEGER, Kind.FRACTION, Kind.BOOLEAN, Kind.NESTED)
    text.encode()
    return text


def _binary(token: Token, _: ColumnType) -> bytes:
    return from_base64(only(token, Kind.TEXT))


def from_base64(text: str) -> bytes:
    """ValueError for a text without its padding, or with bits that stand for nothing."""
    data = a2b_base64(text, strict_mode=True)
    if b2a_base64(data, newline=False) != text.encode():
        raise ValueError
    return data


def _date(token: Token, _: ColumnType) -> dt.date:
    return date_of(only(token, Kind.TEXT))


def date_of(text: str) -> dt.date:
    """Year, month and day, as a reader does it."""
    if not _DATE.fullmatch(text):
        raise ValueError
    return _in_calendar(dt.date.fromisoformat, text)


def _timestamp(token: Token, _: ColumnType) -> dt.datetime:
    return timestamp_of(only(token, Kind.TEXT))


def timestamp_of(text: str, sub_micros: SubMicros = "refuse") -> dt.datetime:
    """ISO 8601 with an offset, as a reader does it; of nine digits behind the second three are beyond micros."""
    parts = _TIMESTAMP.fullmatch(text)
    if parts is None:
        raise ValueError
    local = _in_calendar(dt.datetime.fromisoformat, parts[1]).replace(tzinfo=dt.UTC)
    if sub_micros == "refuse" and parts[2].strip("0"):
        raise OverflowError
    offset = dt.timedelta()
    if parts[3]:
        offset = dt.timedelta(hours=int(parts[4]), minutes=int(parts[5]))
        if offset > _MAX_OFFSET or int(parts[5]) >= 60:
            raise OverflowError
    return local + offset if parts[3] == "-" else local - offset


def _in_calendar(read: Callable[[str], _Day], text: str) -> _Day:
    """Raises: ValueError for a sign that is not needed, OverflowError for a year that has no four digits."""
    if text[0] == "+" and not text[5].isdigit():
        raise ValueError
    if text[0] in "+-" or text[4] != "-":
        raise OverflowError
    try:
        return read(text)
    except ValueError:
        raise OverflowError from None


def only(token: Token, *kinds: Kind) -> str:
    """The text of a value of these kinds; ValueError for another one."""
    if token.kind not in kinds:
        raise ValueError
    return token.text


_READERS: dict[TypeName, Reader] = {
    TypeName.BOOLEAN: _boolean,
    TypeName.INT: _integer,
    TypeName.BIGINT: _integer,
    TypeName.FLOAT: _double,
    TypeName.DOUBLE: _double,
    TypeName.DECIMAL: decimal_of,
    TypeName.STRING: _string,
    TypeName.BINARY: _binary,
    TypeName.DATE: _date,
    TypeName.TIMESTAMP: _timestamp,
}
