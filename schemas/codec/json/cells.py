"""Values of columns in JSON as typed decoders read them, and their columnar conversion to Arrow arrays.

`msgspec` refuses what is not of a cell's `kind`. What it takes and the column can't hold, or holds in another way than
the usual one, is *unusual*: such a record is read by `schemas.json.values`, value by value, which has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columns.cursor import decimals
from schemas.codec.results import Flags
from schemas.json import text_columns
from schemas.json.debezium_values import MICROS, Meaning, ValueForm
from schemas.json.text_columns import base64_values
from schemas.table import Column
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, ColumnType, TypeName

_INT = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
LONG = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Finish = Callable[[Sequence[Any]], tuple[pa.Array, Flags | None]]
"""An array of a column's type from values of a cell's `kind`, and which of them are unusual; None: none are.

What stands in the array for an unusual value is arbitrary. May raise ValueError or pa.ArrowInvalid: any may be unusual.
"""


@dataclass(frozen=True)
class JsonCell:
    """A column in one form. `kind` is the type by which `msgspec` decodes it; None and an absent field are null."""

    kind: Any
    finish: Finish


def json_cell(column: Column, form: ValueForm, *, cuts: bool) -> JsonCell:
    """The cell of a column whose values have this form. `cuts`: digits beyond microseconds are cut off."""
    kind = column.type
    match form.meaning:
        case Meaning.WRAPPED:
            return JsonCell(LONG | None, partial(_wrapped, kind))
        case Meaning.NUMBER:
            return JsonCell(msgspec.Raw, partial(_raw_decimals, kind))
        case Meaning.DIGITS:
            return JsonCell(str | None, partial(_decimals, kind))
        case Meaning.UNSCALED:
            places = kind.scale if form.scale is None else form.scale
            return JsonCell(str | None, partial(_unscaled, kind, places or 0))
        case Meaning.DATE:
            return JsonCell(str | None, partial(_texts, kind, text_columns.DATE))
        case Meaning.ISO_DATE:
            return JsonCell(str | None, partial(_texts, kind, text_columns.ISO_DATE))
        case Meaning.DAYS:
            return JsonCell(_INT | None, partial(_days, kind))
        case Meaning.INSTANT:
            return JsonCell(str | None, partial(_texts, kind, text_columns.INSTANT))
        case Meaning.TICKS:
            number = LONG | str | None if form.unit else str | None
            return JsonCell(number, partial(_ticks, kind, form.unit, cuts))
    return _as_is(kind)


def _as_is(kind: ColumnType) -> JsonCell:
    match kind.name:
        case TypeName.BOOLEAN:
            return JsonCell(bool | None, partial(_array, kind))
        case TypeName.INT:
            return JsonCell(_INT | None, partial(_array, kind))
        case TypeName.BIGINT:
            return JsonCell(LONG | None, partial(_array, kind))
        case TypeName.FLOAT:
            return JsonCell(float | None, partial(_singles, kind))
        case TypeName.DOUBLE:
            return JsonCell(float | None, partial(_array, kind))
        case TypeName.BINARY:
            return JsonCell(str | None, partial(_bytes, kind))
    return JsonCell(str | None, partial(_array, kind))


def _array(kind: ColumnType, values: Sequence[Any]) -> tuple[pa.Array, None]:
    return pa.array(values, kind.arrow), None


def _singles(kind: ColumnType, values: Sequence[float | None]) -> tuple[pa.Array, Flags]:
    """Unusual is a double in the middle of two singles: which is the nearer one to what is written, it can't say."""
    doubles = pa.array(values, pa.float64())
    found = doubles.fill_null(0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        near = found.astype(np.float32)
        beside = np.nextafter(near, np.where(found > near, np.inf, -np.inf).astype(np.float32))
    exact = near.astype(np.float64)
    is_middle = (found != exact) & (np.abs(found - exact) == np.abs(beside.astype(np.float64) - found))
    unusual = is_middle | ~np.isfinite(near)
    return pa.array(near, mask=doubles.is_null().to_numpy(zero_copy_only=False)), unusual


def _wrapped(kind: ColumnType, values: Sequence[int | None]) -> tuple[pa.Array, None]:
    return text_columns.unsigned(pa.array(values, pa.int64()), kind), None


def _bytes(_: ColumnType, values: Sequence[str | None]) -> tuple[pa.Array, Flags]:
    return base64_values(pa.array(values, pa.string()))


def _days(kind: ColumnType, values: Sequence[int | None]) -> tuple[pa.Array, Flags]:
    numbers = pa.array(values, pa.int32())
    return numbers.view(kind.arrow), text_columns.outside(numbers, FIRST_DAY, LAST_DAY)


def _texts(kind: ColumnType, form: str, values: Sequence[str | None]) -> tuple[pa.Array, Flags]:
    """Dates and instants."""
    return text_columns.times(pa.array(values, pa.string()), kind, form)


def _ticks(
    kind: ColumnType, unit: int | None, cuts: bool, values: Sequence[int | str | None]
) -> tuple[pa.Array, Flags]:
    texts = [each if type(each) is str else None for each in values]
    instants, unusual = _texts(kind, text_columns.INSTANT, texts)
    if unit is None:
        return instants, unusual
    numbers = pa.array([each if type(each) is int else None for each in values], pa.int64())
    ticks = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    step = max(unit // MICROS, 1)
    micros = ticks // step
    if not cuts:
        unusual = unusual | (micros * step != ticks)
    ratio = max(MICROS // unit, 1)
    unusual = unusual | (micros < -(-FIRST_US // ratio)) | (micros > LAST_US // ratio)
    scaled = pa.array(micros * ratio).view(kind.arrow)
    return pc.coalesce(instants, pc.if_else(numbers.is_valid(), scaled, None)), unusual


def _raw_decimals(kind: ColumnType, values: Sequence[msgspec.Raw]) -> tuple[pa.Array, Flags]:
    """Numbers, or texts that hold one; an absent field has no bytes."""
    raw = pa.array([bytes(each) for each in values], pa.binary())
    is_text = pc.starts_with(raw, '"')
    if is_text.true_count:
        inner = pc.binary_slice(raw, 1, -1)
        raw = inner if is_text.true_count == len(raw) else pc.if_else(is_text, inner, raw)
    if is_text.true_count < len(raw):
        is_null = pc.and_(pc.invert(is_text), pc.is_in(raw, pa.array([b"null", b""])))
        raw = pc.if_else(is_null, None, raw)
    return _decimals(kind, raw.cast(pa.string()))


def _decimals(kind: ColumnType, values: Sequence[str | None] | pa.StringArray) -> tuple[pa.Array, Flags]:
    texts = values if isinstance(values, pa.Array) else pa.array(values, pa.string())
    return text_columns.decimals(texts, kind)


def _unscaled(kind: ColumnType, places: int, values: Sequence[str | None]) -> tuple[pa.Array, Flags]:
    data, is_other = base64_values(pa.array(values, pa.string()))
    own = kind.scale or 0
    digits = (kind.precision or 0) - own + places
    if not 0 <= places <= own or digits < 1:
        return pa.nulls(len(data), kind.arrow), data.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.frombuffer(data.buffers()[1], np.int32, len(data) + 1).astype(np.int64)
    raw = np.frombuffer(data.buffers()[2] or b"", np.uint8)
    found, unusual = decimals(
        raw, offsets[:-1], np.diff(offsets), ColumnType(TypeName.DECIMAL, digits, places)
    )
    is_there = data.is_valid()
    found = pc.if_else(is_there, found, pa.scalar(None, found.type)).cast(kind.arrow)
    return found, is_other | (unusual & is_there.to_numpy(zero_copy_only=False))
