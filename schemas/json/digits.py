"""Days, instants and decimals as digits, columnar.

Nothing is formatted one by one. Groups of digits come from tables of all texts of so many digits, a calendar date from
a few whole-number divisions of the number of its day
(https://howardhinnant.github.io/date_algorithms.html#civil_from_days).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.json.pieces import Fixed, Integers, Piece, Words, raw
from schemas.types import FIRST_DAY, LAST_DAY

MAX_NARROW = 18
"""Digits of a decimal that the lower of its two words holds."""

_MICROS_A_DAY, _MICROS_A_SECOND = 86_400_000_000, 1_000_000
_WIDTHS: dict[int, type[np.unsignedinteger]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def quoted_days(array: pa.Date32Array) -> Fixed:
    """`"2026-01-31"`. Raises: ValueError for a year that is not in 1 to 9999."""
    return Fixed.of('"', *_day(raw(array, np.int32)), '"')


def quoted_instants(array: pa.TimestampArray) -> Fixed:
    """`"2026-01-31T12:00:00.000000Z"`. Raises: ValueError for a year that is not in 1 to 9999."""
    micros = raw(array, np.int64)
    days = micros // _MICROS_A_DAY
    micros = micros - days * _MICROS_A_DAY
    seconds = micros // _MICROS_A_SECOND
    micros -= seconds * _MICROS_A_SECOND
    millis = micros // 1000
    time = _times()[seconds]
    return Fixed.of(
        '"',
        *_day(days),
        "T",
        time,
        _table(3, before=".")[millis],
        _table(3, behind="Z")[micros - millis * 1000],
        '"',
    )


def _day(days: Integers) -> tuple[Words, ...]:
    if len(days) and not FIRST_DAY <= days.min() <= days.max() <= LAST_DAY:
        raise ValueError("a day outside of the years 1 to 9999")
    since = days.astype(np.int32) + np.int32(
        719_468
    )  # 0000-03-01: so the day that may be missing is a year's last
    era = since // 146_097
    of_era = since - era * 146_097
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month += np.where(month < 10, np.int32(3), np.int32(-9))
    year += era * 400 + (month <= 2)
    return _table(4)[year], _table(2, before="-", behind="-")[month], _table(2)[day]


@cache
def _table(digits: int, before: str = "", behind: str = "") -> Words:
    """The texts of all numbers of so many digits, each as one number of the machine: 1, 2, 4 or 8 bytes."""
    text = "".join(f"{before}{number:0{digits}}{behind}" for number in range(10**digits))
    return np.frombuffer(text.encode(), _WIDTHS[len(before) + digits + len(behind)])


@cache
def _times() -> Words:
    """`12:00:00` of each second of a day."""
    text = "".join(f"{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}" for at in range(86_400))
    return np.frombuffer(text.encode(), np.uint64)


def decimals(array: pa.Decimal128Array) -> list[Piece]:
    """`-12.34`, each with all digits of its scale, in pieces."""
    if array.type.precision > MAX_NARROW:
        return [_wide_decimals(array).cast(pa.binary())]
    unscaled, scale = raw(array, np.int64), array.type.scale
    if not scale:
        return [_text(unscaled)]
    magnitude = np.abs(unscaled)
    whole = magnitude // 10**scale
    negative = unscaled < 0
    texts = _text(np.where(negative, -whole, whole))
    lost = negative & (whole == 0)
    if lost.any():
        texts = pc.if_else(pa.array(lost), pa.scalar(b"-0", pa.binary()), texts)
    return [texts, Fixed.of(".", *_fraction(magnitude - whole * 10**scale, scale))]


def _fraction(numbers: Integers, digits: int) -> list[Words]:
    """Decimals as texts of four, two or one digit, side by side."""
    groups: list[Words] = []
    while digits:
        size = 4 if digits >= 4 else min(digits, 2)
        rest = numbers // 10**size
        groups.insert(0, _table(size)[numbers - rest * 10**size])
        numbers, digits = rest, digits - size
    return groups


def _text(numbers: Integers) -> pa.BinaryArray:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def _wide_decimals(array: pa.Decimal128Array) -> pa.StringArray:
    scale = array.type.scale
    whole_type = pa.decimal128(38, 0)  # no exponent is written where the scale is 0
    unscaled = pa.Array.from_buffers(whole_type, len(array), array.buffers(), offset=array.offset)
    if not scale:
        return unscaled.cast(pa.string())
    digits = pc.ascii_lpad(pc.abs(unscaled).cast(pa.string()), scale + 1, "0")
    text = pc.utf8_replace_slice(digits, -scale, -scale, ".")
    negative = pc.less(unscaled, pa.scalar(0, whole_type))
    return pc.binary_join_element_wise(pc.if_else(negative, "-", ""), text, "")
