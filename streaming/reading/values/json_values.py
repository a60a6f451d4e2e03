"""Values of columns from JSON, in the forms of docs/formats.md#json-values and docs/debezium.md#values.

A reader takes a value that is not null. It raises ValueError for another form than its type's, OverflowError for what
its column can't hold, and UnicodeEncodeError for half a surrogate pair.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from schemas.errors import Code
from schemas.table import Column
from schemas.types import ColumnType, TypeName
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.json_text import MAX_NUMBER, NUMBER, JsonNumber, JsonObject, compact

Reader = Callable[[Any], Any]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_ZERO = dt.date(1970, 1, 1).toordinal()
_LIMITS = {TypeName.INT: 2**31, TypeName.BIGINT: 2**63}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BEYOND_SINGLE = 2**128 - 2**103
"""From here on the nearest number of 32 bits is infinite."""
_TINY_SINGLE = 1e-60
_EXPONENT = re.compile(r"[eE][+-]?[0-9]{4,}")
"""No number of a few characters may stand for one of gigabytes."""
_MOST_DIGITS = 38
_DATE = re.compile(r"([+-]?)([0-9]{4,9})-([0-9]{2})-([0-9]{2})")
_TIMESTAMP = re.compile(
    r"([^T]+)T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_MAX_OFFSET = dt.timedelta(hours=18)
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_SCALE = re.compile(r"-?[0-9]{1,3}")
_MAX_UNSCALED_BYTES = 16
_MOST_BITS = 3_500
"""More than a decimal of 38 digits has with a scale of 999; to take a longer number apart could take long."""


def read_value(reader: Reader, value: Any, column: Column) -> Any:
    """The column's value for a JSON value, None for null. Raises: InvalidRecordError with the column."""
    if value is None:
        return None
    try:
        return reader(value)
    except OverflowError:
        raise InvalidRecordError("a value that does not fit", Code.VALUE_OUT_OF_RANGE, column.name) from None
    except UnicodeEncodeError:
        raise InvalidRecordError("half a surrogate pair", Code.BAD_ENCODING, column.name) from None
    except ValueError:
        raise InvalidRecordError(f"another form than {column.type} has", column=column.name) from None


def plain_reader(column: Column, *, truncates: bool = False) -> Reader:
    """Reads values whose form says what they are. `truncates`: digits beyond microseconds are cut off."""
    kind = column.type
    match kind.name:
        case TypeName.DECIMAL if column.unsigned is not None:
            return lambda value: _wrapped(value, kind)
        case TypeName.INT | TypeName.BIGINT:
            return lambda value: whole(value, _LIMITS[kind.name])
        case TypeName.FLOAT | TypeName.DOUBLE:
            return lambda value: _real(value, is_single=kind.name is TypeName.FLOAT)
        case TypeName.DECIMAL:
            return lambda value: decimal(value, kind)
        case TypeName.TIMESTAMP:
            return lambda value: timestamp(_only_text(value), truncates=truncates)
    return _PLAIN[kind.name]


def text_reader(column: Column, *, truncates: bool = False) -> Reader:
    """Reads texts that hold a value without JSON's quotes."""
    read, is_whole = plain_reader(column, truncates=truncates), _is_whole(column)

    def from_text(text: str) -> Any:
        if column.type.name is TypeName.BOOLEAN and text in ("true", "false"):
            return text == "true"
        if is_whole and len(text) <= MAX_NUMBER and _INTEGER.fullmatch(text):
            return read(JsonNumber(text))
        return read(text)

    return from_text


def _is_whole(column: Column) -> bool:
    return column.type.name in _LIMITS or column.unsigned is not None


def _only_text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError
    return value


def whole(value: Any, beyond: int) -> int:
    """A number without fraction and exponent, from `-beyond` on and below `beyond`."""
    if not (isinstance(value, JsonNumber) and value.is_whole):
        raise ValueError
    number = int(value)
    if not -beyond <= number < beyond:
        raise OverflowError
    return number


def _wrapped(value: Any, kind: ColumnType) -> Decimal:
    """An unsigned number of 64 bits that was written as a signed one: from 2^63 on it is negative."""
    return exact(Decimal(whole(value, 2**63) % 2**64), kind)


def _real(value: Any, *, is_single: bool) -> float:
    if type(value) is str:
        if value not in _NOT_FINITE:
            raise ValueError
        return _NOT_FINITE[value]
    if not isinstance(value, JsonNumber):
        raise ValueError
    number = float(value)
    if math.isinf(number):
        raise OverflowError
    if not number and value.is_whole:
        return 0.0  # a whole number has no negative zero
    return nearest_single(value, number) if is_single else number


def nearest_single(text: str, number: float) -> float:
    """The number of 32 bits that is nearest to what is written; of two the one with an even last bit."""
    if abs(number) < _TINY_SINGLE:
        return math.copysign(0.0, number)
    written = Fraction(text)
    if abs(written) >= _BEYOND_SINGLE:
        raise OverflowError
    bits = struct.unpack(
        "<I", struct.pack("<f", math.copysign(min(abs(number), 2.0**128 - 2.0**104), number))
    )[0]
    near = [candidate for candidate in (bits - 1, bits, bits + 1) if candidate & 0x7F800000 != 0x7F800000]

    def distance(candidate: int) -> tuple[Fraction, int]:
        return abs(Fraction(_as_single(candidate)) - written), candidate & 1

    return _as_single(min(near, key=distance))


def _as_single(bits: int) -> float:
    number: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return number


def decimal(value: Any, kind: ColumnType) -> Decimal:
    """A number, or a text that holds one, which has to fit exactly."""
    if not isinstance(value, str) or not NUMBER.fullmatch(value):
        raise ValueError
    if len(value) > MAX_NUMBER or _EXPONENT.search(value):
        raise OverflowError
    number = Decimal(str(value))
    if number.adjusted() >= _MOST_DIGITS:
        raise OverflowError  # a zero with such an exponent, too
    return exact(number, kind)


def exact(number: Decimal, kind: ColumnType) -> Decimal:
    """A number at the scale of a decimal type, without a negative zero. Raises: OverflowError if it does not fit."""
    precision, scale = kind.precision or 0, kind.scale or 0
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        raise OverflowError  # no number
    unscaled = int("".join(map(str, digits)))
    shift = exponent + scale
    if unscaled and shift > _MOST_DIGITS:
        raise OverflowError
    if shift >= 0:
        unscaled *= 10**shift if unscaled else 1
    else:
        unscaled, rest = divmod(unscaled, 10**-shift) if unscaled else (0, 0)
        if rest:
            raise OverflowError
    if unscaled >= 10**precision:
        raise OverflowError
    return Decimal((sign if unscaled else 0, tuple(map(int, str(unscaled))), -scale))


def _string(value: Any) -> str:
    text = value if type(value) is str else compact(value)
    text.encode()
    return str(text)


def _binary(value: Any) -> bytes:
    return from_base64(_only_text(value))


def from_base64(text: str) -> bytes:
    """ValueError for a text without its padding, or with bits that stand for nothing."""
    data = base64.b64decode(text.encode("ascii", "replace"), validate=True)
    if base64.b64encode(data).decode() != text:
        raise ValueError
    return data


def _date(value: Any) -> dt.date:
    return date(_only_text(value))


def date(text: str) -> dt.date:
    """Year, month and day. Years that have not four digits have a sign in ISO 8601, and are out of range here."""
    parts = _DATE.fullmatch(text)
    if parts is None or (parts[1] == "+" and len(parts[2]) == 4):
        raise ValueError
    if parts[1] or len(parts[2]) > 4:
        raise OverflowError
    day: dt.date = _calendar(dt.date, *map(int, parts.groups()[1:]))
    return day


def timestamp(text: str, *, truncates: bool = False) -> dt.datetime:
    """ISO 8601 with seconds and an offset, as an instant in UTC."""
    parts = _TIMESTAMP.fullmatch(text)
    if parts is None:
        raise ValueError
    day, fraction = date(parts[1]), (parts[5] or "").ljust(9, "0")
    if fraction[6:].strip("0") and not truncates:
        raise OverflowError
    clock = map(int, (parts[2], parts[3], parts[4], fraction[:6]))
    local: dt.datetime = _calendar(dt.datetime, day.year, day.month, day.day, *clock).replace(tzinfo=dt.UTC)
    offset = dt.timedelta(hours=int(parts[7] or 0), minutes=int(parts[8] or 0))
    if offset > _MAX_OFFSET or int(parts[8] or 0) >= 60:
        raise OverflowError
    return local + offset if parts[6] == "-" else local - offset


def _calendar(make: Callable[..., Any], *parts: int) -> Any:
    try:
        return make(*parts)
    except ValueError:
        raise OverflowError from None


_PLAIN: dict[TypeName, Reader] = {
    TypeName.BOOLEAN: _boolean,
    TypeName.STRING: _string,
    TypeName.BINARY: _binary,
    TypeName.DATE: _date,
}


# Days, instants and decimals as connectors write them.


def days(value: Any) -> dt.date:
    """A number of days since 1970."""
    number = whole(value, 2**63)
    try:
        return dt.date.fromordinal(_DAY_ZERO + number)
    except ValueError:
        raise OverflowError from None


def iso_date(value: Any) -> dt.date:
    """A text, with a `Z` behind it or without."""
    return date(_only_text(value).removesuffix("Z"))


def instant(value: Any, *, per_second: int | None, truncates: bool) -> dt.datetime:
    """A number of units since 1970, also in quotes, or ISO 8601, which instants with a zone are in every mode."""
    if value in ("infinity", "-infinity"):
        raise OverflowError
    is_number = isinstance(value, JsonNumber) and value.is_whole
    if not is_number and type(value) is not str:
        raise ValueError
    if per_second is not None and _INTEGER.fullmatch(value) and len(value.lstrip("-")) <= 19:
        micros, rest = divmod(int(value) * 1_000_000, per_second)
        if rest and not truncates:
            raise OverflowError
        return EPOCH + dt.timedelta(microseconds=micros)
    if is_number and per_second is not None:
        raise OverflowError
    return timestamp(_only_text(value), truncates=truncates)


def unscaled(value: Any, kind: ColumnType, scale: int | None) -> Decimal:
    """Bytes in base64, two's complement, at this scale, or the column's if None; or an object with its own scale."""
    if isinstance(value, JsonObject):
        if value.names != ["scale", "value"]:
            raise ValueError
        own, value = value.fields["scale"], value.fields["value"]
        if not (isinstance(own, JsonNumber) and _SCALE.fullmatch(own)):
            raise ValueError
        scale = int(own)
    data = from_base64(_only_text(value))
    if not data:
        raise ValueError
    if len(data) > _MAX_UNSCALED_BYTES:
        raise OverflowError
    return at_scale(
        int.from_bytes(data, "big", signed=True), (kind.scale or 0) if scale is None else scale, kind
    )


def at_scale(number: int, scale: int, kind: ColumnType) -> Decimal:
    """A number of units of 10**-scale. Raises: OverflowError, as `exact`."""
    if number.bit_length() > _MOST_BITS:
        raise OverflowError
    return exact(Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)), kind)


def number_or_text(value: Any, kind: ColumnType) -> Decimal:
    """A decimal in the mode `string`."""
    if type(value) is str and value in _NOT_FINITE:
        raise OverflowError
    return decimal(value, kind)
