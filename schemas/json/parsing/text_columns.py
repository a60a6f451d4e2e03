"""Days, instants and decimals that are texts in ISO 8601 and in digits, columnar.

Only the usual forms are read; what else a text may mean is read by `schemas.json.values`. Each function has, beside the
array, flags for the texts of other forms, whose values are arbitrary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, ColumnType, TypeName

Flags = npt.NDArray[np.bool_]

_FOURTH = "0[48]|[2468][048]|[13579][26]"
_LEAP_YEAR = f"[0-9]{{2}}(?:{_FOURTH})|(?:{_FOURTH}|00)00"
_DAY = (
    r"(?:[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)"
    rf"|(?:0[13578]|1[02])-31)|(?:{_LEAP_YEAR})-02-29)"
)
"""A day that there is, so that no cast meets another one."""
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
DATE, ISO_DATE, INSTANT = rf"^{_DAY}$", rf"^{_DAY}Z?$", rf"^{_DAY}T{_TIME}Z$"
"""Forms of dates, the second as Debezium has it, and of instants."""


def times(texts: pa.StringArray, kind: ColumnType, form: str) -> tuple[pa.Array, Flags]:
    """Reads days like `2026-01-31`, or instants like `2026-01-31T12:00:00.5Z`, by the type's name."""
    texts, unusual = _of_form(texts, form)
    if kind.name is TypeName.DATE:
        found = pc.utf8_slice_codeunits(texts, 0, 10).cast(kind.arrow)
        return found, unusual | outside(found.view(pa.int32()), FIRST_DAY, LAST_DAY)
    found = texts.cast(kind.arrow)
    return found, unusual | outside(found.view(pa.int64()), FIRST_US, LAST_US)


def decimals(texts: pa.StringArray, kind: ColumnType) -> tuple[pa.Decimal128Array, Flags]:
    """Reads decimals like `-12.50`."""
    # Arrow's cast lets some numbers of too many digits wrap around.
    scale = kind.scale or 0
    whole = (kind.precision or 0) - scale
    before_point = f"0|[1-9][0-9]{{0,{whole - 1}}}" if whole else "0"
    behind = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    texts, unusual = _of_form(texts, rf"^-?(?:{before_point}){behind}$")
    return texts.cast(kind.arrow), unusual


def unsigned(numbers: pa.Int64Array, kind: ColumnType) -> pa.Decimal128Array:
    """Converts unsigned numbers of 64 bits that were read as signed ones."""
    return numbers.view(pa.uint64()).cast(pa.decimal128(20, 0)).cast(kind.arrow)


def outside(numbers: pa.Array, least: int, most: int) -> Flags:
    """Flags for numbers below or above."""
    found: npt.NDArray[Any] = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return (found < least) | (found > most)


def _of_form(texts: pa.StringArray, pattern: str) -> tuple[pa.StringArray, Flags]:
    """The texts of this form, null for others; and which are those."""
    is_usual = pc.match_substring_regex(texts, pattern)
    unusual = np.asarray(pc.invert(is_usual).fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    return (pc.if_else(is_usual, texts, None) if unusual.any() else texts), unusual
