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
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from fractions import Fraction
from functools import cache, partial
from typing import Any

from schemas.errors import Code
from schemas.table import Column
from schemas.types import MAX_DECIMAL_PRECISION, ColumnType, TypeName
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.json_text import MAX_NUMBER, NUMBER, JsonNumber, compact, names_of

Reader = Callable[[Any], Any]
NamedReader = tuple[str, Reader, Column]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_ZERO = dt.date(1970, 1, 1).toordinal()
_LIMITS = {TypeName.INT: 2**31, TypeName.BIGINT: 2**63}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BEYOND_SINGLE = 2**128 - 2**103
"""From here on the nearest number of 32 bits is infinite."""
_TINY_SINGLE = 1e-60
_EXPONENT = re.compile(r"[eE][+-]?[0-9]{4,}")
"""No number of a few characters may stand for one of gigabytes."""
_EXACT = Context(prec=MAX_DECIMAL_PRECISION, traps=[Inexact, InvalidOperation])
_DATE = re.compile(r"([+-]?)([0-9]{4,9})-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    _DATE.pattern + r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.([0-9]{1,9}))?(?:Z|[+-][0-9]{2}:([0-9]{2}))"
)
_MAX_OFFSET = dt.timedelta(hours=18)
_INTEGER, _LONG = re.compile(r"-?(?:0|[1-9][0-9]*)"), re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_MAX_UNSCALED_BYTES = 16
_MOST_BITS = 3_500
"""More than a decimal of 38 digits has with a scale of 999; to take a longer number apart could take long."""


def invalid_value(error: ValueError | OverflowError, column: Column) -> InvalidRecordError:
    """The error of a reader, with its column."""
    if isinstance(error, InvalidRecordError):
        return error
    if isinstance(error, OverflowError):
        return InvalidRecordError("a value that does not fit", Code.VALUE_OUT_OF_RANGE, column.name)
    if isinstance(error, UnicodeEncodeError):
        return InvalidRecordError("half a surrogate pair", Code.BAD_ENCODING, column.name)
    return InvalidRecordError(f"another form than {column.type} has", column=column.name)


def read_value(reader: Reader, value: Any, column: Column) -> Any:
    """The column's value for a JSON value, None for null. Raises: InvalidRecordError with the column."""
    return read_row([(column.name, reader, column)], {column.name: value})[0]


def read_row(readers: Sequence[NamedReader], fields: Mapping[str, Any]) -> list[Any]:
    """The values of columns by their names, None for null and for one that is not there.

    Raises: InvalidRecordError with the first column whose value is invalid.
    """
    row: list[Any] = []
    get = fields.get
    try:
        for name, read, _ in readers:
            value = get(name)
            row.append(None if value is None else read(value))
    except (ValueError, OverflowError) as error:
        raise invalid_value(error, readers[len(row)][2]) from None
    return row


def plain_reader(column: Column, *, truncates: bool = False) -> Reader:
    """Reads values whose form says what they are. `truncates`: digits beyond microseconds are cut off."""
    kind = column.type
    match kind.name:
        case TypeName.DECIMAL if column.unsigned is not None:
            return lambda value: _wrapped(value, kind)
        case TypeName.INT | TypeName.BIGINT:
            return partial(whole, beyond=_LIMITS[kind.name])
        case TypeName.FLOAT | TypeName.DOUBLE:
            return partial(_real, is_single=kind.name is TypeName.FLOAT)
        case TypeName.DECIMAL:
            return partial(decimal, kind=kind)
        case TypeName.TIMESTAMP:
            return partial(timestamp, truncates=truncates)
    return _PLAIN[kind.name]


def text_reader(column: Column, *, truncates: bool = False) -> Reader:
    """Reads texts that hold a value without JSON's quotes."""
    read, is_whole = plain_reader(column, truncates=truncates), _is_whole(column)

    def from_text(text: str) -> Any:
        if column.type.name is TypeName.BOOLEAN and text in ("true", "false"):
            return text == "true"
        if is_whole and len(text) <= MAX_NUMBER and _INTEGER.fullmatch(text):
            return read(int(text))
        return read(text)

    return from_text


def _is_whole(column: Column) -> bool:
    return column.type.name in _LIMITS or column.unsigned is not None


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError
    return value


def whole(value: Any, beyond: int) -> int:
    """A number without fraction and exponent, from `-beyond` on and below `beyond`."""
    if type(value) is not int:
        if type(value) is not JsonNumber or value != "-0":
            raise ValueError
        return 0
    if not -beyond <= value < beyond:
        raise OverflowError
    return value


def _wrapped(value: Any, kind: ColumnType) -> Decimal:
    """An unsigned number of 64 bits that was written as a signed one: from 2^63 on it is negative."""
    return exact(Decimal(whole(value, 2**63) % 2**64), kind)


def _real(value: Any, *, is_single: bool) -> float:
    if type(value) is str:
        if value not in _NOT_FINITE:
            raise ValueError
        return _NOT_FINITE[value]
    if type(value) is not int and type(value) is not JsonNumber:
        raise ValueError
    number = float(value)
    if math.isinf(number):
        raise OverflowError
    if value == "-0":
        return 0.0  # a whole number has no negative zero
    return nearest_single(value, number) if is_single else number


def nearest_single(written: str | int, number: float) -> float:
    """The number of 32 bits that is nearest to what is written; of two the one with an even last bit."""
    if abs(number) < _TINY_SINGLE:
        return math.copysign(0.0, number)
    wanted = Fraction(written)
    if abs(wanted) >= _BEYOND_SINGLE:
        raise OverflowError
    bits = struct.unpack(
        "<I", struct.pack("<f", math.copysign(min(abs(number), 2.0**128 - 2.0**104), number))
    )[0]
    near = [candidate for candidate in (bits - 1, bits, bits + 1) if candidate & 0x7F800000 != 0x7F800000]

    def distance(candidate: int) -> tuple[Fraction, int]:
        return abs(Fraction(_as_single(candidate)) - wanted), candidate & 1

    return _as_single(min(near, key=distance))


def _as_single(bits: int) -> float:
    number: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return number


def decimal(value: Any, kind: ColumnType) -> Decimal:
    """A number, or a text that holds one, which has to fit exactly."""
    text = str(value) if type(value) is int else value
    if not isinstance(text, str) or not NUMBER.fullmatch(text):
        raise ValueError
    if len(text) > MAX_NUMBER or _EXPONENT.search(text):
        raise OverflowError
    number = Decimal(text)
    if number.adjusted() >= MAX_DECIMAL_PRECISION:
        raise OverflowError  # a zero with such an exponent, too
    return exact(number, kind)


@cache
def _unit(scale: int) -> Decimal:
    return Decimal((0, (1,), -scale))


def exact(number: Decimal, kind: ColumnType) -> Decimal:
    """A number at the scale of a decimal type, without a negative zero. Raises: OverflowError if it does not fit."""
    precision, scale = kind.precision or 0, kind.scale or 0
    try:
        found = _EXACT.quantize(number, _unit(scale))
    except (Inexact, InvalidOperation):
        raise OverflowError from None
    if found.adjusted() >= precision - scale:
        raise OverflowError
    return found if found else found.copy_abs()


def _string(value: Any) -> str:
    text = value if type(value) is str else compact(value)
    if not text.isascii():
        text.encode()
    return text


def from_base64(value: Any) -> bytes:
    """ValueError for a text without its padding, or with bits that stand for nothing."""
    text = _text(value)
    data = base64.b64decode(text.encode("ascii", "replace"), validate=True)
    if base64.b64encode(data).decode() != text:
        raise ValueError
    return data


def _checked(parts: re.Match[str] | None) -> re.Match[str]:
    """Years that have not four digits have a sign in ISO 8601, and are out of range here."""
    if parts is None or (parts[1] == "+" and len(parts[2]) == 4):
        raise ValueError
    if parts[1] or len(parts[2]) > 4:
        raise OverflowError
    return parts


def date(value: Any) -> dt.date:
    """Year, month and day."""
    text = _text(value)
    _checked(_DATE.fullmatch(text))
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise OverflowError from None


def timestamp(value: Any, *, truncates: bool = False) -> dt.datetime:
    """ISO 8601 with seconds and an offset, as an instant in UTC."""
    text = _text(value)
    parts = _checked(_TIMESTAMP.fullmatch(text))
    fraction = parts[3]
    if fraction and not truncates and fraction[6:].strip("0"):
        raise OverflowError
    try:
        local = dt.datetime.fromisoformat(text)
    except ValueError:
        raise OverflowError from None
    if parts[4] is None:
        return local
    if parts[4] >= "60" or abs(local.utcoffset() or dt.timedelta()) > _MAX_OFFSET:
        raise OverflowError
    return local.astimezone(dt.UTC)


_PLAIN: dict[TypeName, Reader] = {
    TypeName.BOOLEAN: _boolean,
    TypeName.STRING: _string,
    TypeName.BINARY: from_base64,
    TypeName.DATE: date,
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
    return date(_text(value).removesuffix("Z"))


def instant(value: Any, *, per_second: int | None, truncates: bool) -> dt.datetime:
    """A number of units since 1970, also in quotes, or ISO 8601, which instants with a zone are in every mode."""
    if value in ("infinity", "-infinity"):
        raise OverflowError
    is_number = type(value) is int or (isinstance(value, str) and _LONG.fullmatch(value))
    if not is_number or per_second is None:
        return timestamp(value, truncates=truncates)
    number = int(value)
    if abs(number) >= 10**19:
        raise OverflowError
    micros, rest = divmod(number * 1_000_000, per_second)
    if rest and not truncates:
        raise OverflowError
    return EPOCH + dt.timedelta(microseconds=micros)


def unscaled(value: Any, kind: ColumnType, scale: int | None) -> Decimal:
    """Bytes in base64, two's complement, at this scale, or the column's if None; or an object with its own scale."""
    if type(value) is tuple:
        if names_of(value) != ["scale", "value"]:
            raise ValueError
        scale, value = whole(value[0][1], 10**MAX_NUMBER), value[1][1]
        if abs(scale) > 999:
            raise ValueError
    data = from_base64(value)
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
    return exact(Decimal(f"{number}E{-scale}"), kind)


def number_or_text(value: Any, kind: ColumnType) -> Decimal:
    """A decimal in the mode `string`."""
    if type(value) is str and value in _NOT_FINITE:
        raise OverflowError
    return decimal(value, kind)
