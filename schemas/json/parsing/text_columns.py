"""Days, instants and decimals that are texts in ISO 8601 and in digits, columnar.

Only the forms that are usual are read; what else may be meant is for who reads the texts one by one. Raised here is
`OddRecordError`, or pa.ArrowInvalid.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from schemas.records import refuse
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, ColumnType

_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z$"


def days(texts: pa.StringArray) -> pa.Date32Array:
    """Reads days like `2026-01-31`, with or without a `Z` at the end."""
    texts = pc.replace_substring_regex(texts, "Z$", "")
    _check_form(texts, _DATE)
    found = texts.cast(pa.date32())
    check_within(found.view(pa.int32()), FIRST_DAY, LAST_DAY)
    return found


def instants(texts: pa.StringArray, kind: ColumnType) -> pa.TimestampArray:
    """Reads instants like `2026-01-31T12:00:00.5Z`, with up to six digits after the point."""
    _check_form(texts, _TIMESTAMP)
    found = texts.cast(kind.arrow)
    check_within(found.view(pa.int64()), FIRST_US, LAST_US)
    return found


def decimals(texts: pa.StringArray, kind: ColumnType) -> pa.Decimal128Array:
    """Reads decimals like `-12.50`."""
    # Arrow's cast lets some numbers of too many digits wrap around.
    whole = (kind.precision or 0) - (kind.scale or 0)
    before_point = f"0|[1-9][0-9]{{0,{whole - 1}}}" if whole else "0"
    _check_form(texts, rf"^-?(?:{before_point})(?:\.[0-9]+)?$")
    return texts.cast(kind.arrow)


def unsigned(numbers: pa.Int64Array, kind: ColumnType) -> pa.Decimal128Array:
    """Converts unsigned numbers of 64 bits that were read as signed ones."""
    return numbers.view(pa.uint64()).cast(pa.decimal128(20, 0)).cast(kind.arrow)


def check_within(numbers: pa.Array, least: int, most: int) -> None:
    """Raises: OddRecordError for a number below or above."""
    bounds = pc.min_max(numbers)
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    refuse(first is not None and not least <= first <= last <= most)


def _check_form(texts: pa.StringArray, pattern: str) -> None:
    refuse(not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())
