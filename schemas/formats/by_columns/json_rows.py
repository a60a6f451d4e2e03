"""Rows in JSON by whole columns, with their columns in any order: what `formats.upsert_json.JsonObjects` reads.

Arrow's reader takes from an object what it is asked for. Only the usual forms of values are read (docs/formats.md), and
what the reference decoder refuses and Arrow takes is looked for: limits and `NaN` in the bytes, numbers that are not
finite, decimals that are out of range, texts that are no dates, instants or base64 as they should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats.by_columns.limits import check_limits
from schemas.json.base64_columns import base64_texts, base64_values
from schemas.json.objects import parsed
from schemas.json.parsing import text_columns
from schemas.json.parsing.text_columns import unsigned
from schemas.json.written import text
from schemas.records import OddRecordError, refuse
from schemas.table import Column
from schemas.types import ColumnType, TypeName

_TEXTS = {TypeName.STRING, TypeName.BINARY, TypeName.DATE, TypeName.TIMESTAMP}
_QUOTED = rb'"%s"\s*:\s*"'


def read_rows(columns: Sequence[Column], texts: pa.BinaryArray, *, exact: bool = False) -> list[pa.Array]:
    """The columns of objects, null where one lacks it; with `exact` objects have no other fields.

    Raises: OddRecordError; also for an object that has none of them, as it may be a frame.
    """
    check_limits(texts)
    found = _parsed(columns, texts, exact=exact).flatten()
    if all(array.null_count for array in found):
        refuse(pc.any(reduce(pc.and_, map(pc.is_null, found)), min_count=0).as_py())
    try:
        return [_values(column, array) for column, array in zip(columns, found, strict=True)]
    except (pa.ArrowInvalid, ValueError):
        raise OddRecordError from None


def read_rows_and_deletes(
    columns: Sequence[Column], deleted_field: str | None, texts: pa.BinaryArray
) -> list[pa.Array]:
    """As `read_rows`; and behind the columns where a field, none of them, says in text that the row is deleted.

    Raises: OddRecordError.
    """
    if deleted_field is None:
        return read_rows(columns, texts)
    *found, deleted = read_rows(with_deletes(columns, deleted_field), texts)
    return [*found, are_true(deleted)]


def with_deletes(columns: Sequence[Column], deleted_field: str | None) -> list[Column]:
    """The columns, and behind them the field that says that a row is deleted, if there is one."""
    if deleted_field is None:
        return list(columns)
    return [*columns, Column(deleted_field, ColumnType(TypeName.STRING), nullable=True)]


def are_true(texts: pa.StringArray) -> pa.BooleanArray:
    """False where there is none. Raises: OddRecordError for a text that is neither `true` nor `false`."""
    number = pc.index_in(texts, pa.array(["false", "true"]))
    refuse(number.null_count > texts.null_count)
    return pc.equal(number, 1).fill_null(False)


def _parsed(columns: Sequence[Column], texts: pa.BinaryArray, *, exact: bool) -> pa.StructArray:
    """Decimals are texts in all objects, or numbers in all."""
    others: Literal["error", "ignore"] = "error" if exact else "ignore"
    decimals = [column for column in columns if column.type.name is TypeName.DECIMAL and not column.unsigned]
    if decimals and len(texts) and not _are_texts(decimals, texts):
        return parsed(texts, [_field(each, each.type.arrow) for each in columns], others=others)
    return parsed(texts, [_field(each, pa.string()) for each in columns], others=others)


def _field(column: Column, decimal: pa.DataType) -> pa.Field:
    match column.type.name:
        case TypeName.DECIMAL if column.unsigned:
            return pa.field(column.name, pa.int64())
        case TypeName.DECIMAL:
            return pa.field(column.name, decimal)
        case name if name in _TEXTS:
            return pa.field(column.name, pa.string())
    return pa.field(column.name, column.type.arrow)


def _are_texts(decimals: Sequence[Column], texts: pa.BinaryArray) -> bool:
    """By the first object that has one; most often that is the first of all."""
    return any(_is_quoted(column, each) for each in (texts.slice(0, 1), texts) for column in decimals)


def _is_quoted(column: Column, texts: pa.BinaryArray) -> bool:
    pattern = _QUOTED.replace(b"%s", _escaped(text(column.name)[1:-1].encode()))
    return bool(pc.any(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _escaped(name: bytes) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in name)


def _values(column: Column, found: pa.Array) -> pa.Array:
    kind = column.type
    match kind.name:
        case TypeName.DECIMAL if column.unsigned:
            return unsigned(found, kind)
        case TypeName.FLOAT | TypeName.DOUBLE:
            held = found.drop_null().to_numpy()
            # An integer -0 is 0.0, and -0.0 is not.
            refuse(not np.isfinite(held).all() or ((held == 0) & np.signbit(held)).any())
            return found
        case TypeName.DECIMAL:
            return (
                text_columns.decimals(found, kind) if pa.types.is_string(found.type) else _within(found, kind)
            )
        case TypeName.DATE:
            refuse(pc.any(pc.ends_with(found, "Z")).as_py())
            return text_columns.days(found)
        case TypeName.TIMESTAMP:
            return text_columns.instants(found, kind)
        case TypeName.BINARY:
            return _bytes(found)
    return found


def _within(found: pa.Array, kind: ColumnType) -> pa.Array:
    """Arrow checks a number's digits before it widens the scale."""
    most = Decimal((0, (9,) * (kind.precision or 0), -(kind.scale or 0)))
    least = most.copy_negate()
    bounds = pa.scalar(least, kind.arrow), pa.scalar(most, kind.arrow)
    within = pc.and_(pc.greater_equal(found, bounds[0]), pc.less_equal(found, bounds[1]))
    refuse(not pc.all(within, min_count=0).as_py())
    return found


def _bytes(texts: pa.StringArray) -> pa.BinaryArray:
    given = texts.cast(pa.binary()).fill_null(b"")
    found = base64_values(given)
    refuse(not base64_texts(found).equals(given))
    return pc.if_else(texts.is_valid(), found, None) if texts.null_count else found
