"""Conversion of a field of a writer's Avro schema to a column: the compatible types, and single values.

A field is read as a *plain* type that has the same bytes: every whole number as a `long`, a boolean as its byte, a
symbol as its number. What it means is the cell's `form`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from typing import Any

from schemas.avro.record_bytes import MalformedError, RecordBytes
from schemas.avro.writer_schemas import (
    UNITS_NS,
    Schema,
    WriterSchemaError,
    decimal_scale,
    digits_in,
    has_own_scale,
    meaning,
    unwrapped,
)
from schemas.errors import Code
from schemas.json.tokens import JsonError
from schemas.json.values import SubMicros, plain_token, read_by, upstream_reader
from schemas.table import Column
from schemas.types import FIRST_DAY, LAST_DAY, MAX_DECIMAL_PRECISION, TypeName, Value

MOST_SCALE = 999
"""The maximum scale of a decimal that comes with its scale."""
_MOST_UNSCALED = 10 ** (MAX_DECIMAL_PRECISION + MOST_SCALE)
"""No number that is larger fits a column, whatever its scale; to take it apart could take long."""
DAY_MICROS = 86_400_000_000
_WHOLE = ("int", "long")
_BEYOND = {
    TypeName.TIMESTAMP: ("infinity", "-infinity"),
    TypeName.DECIMAL: ("NaN", "Infinity", "-Infinity"),
}
"""Texts of values that a database has and no column."""


class Form(Enum):
    """The meaning of a plain value."""

    AS_IS = "as is"
    BOOLEAN = "a byte, 0 or 1"
    NUMBER = "a whole number that has to fit the column"
    WRAPPED = "an unsigned number of 64 bits that was written as a signed one"
    REAL = "a number whose nearest of the column's type is meant"
    SYMBOL = "a number of `Cell.symbols`"
    DECIMAL = "two's complement, in units of 10**-`Cell.scale`"
    OWN_SCALE = "a record of a scale and a number as in DECIMAL, in units of 10**-scale"
    DAYS = "days since 1970"
    TIME = "time since 1970 in units of `Cell.unit` nanoseconds"
    TEXT = "text in the form that JSON has for the column"


class CellError(MalformedError):
    """A value that its column can't hold. `code` is None for bytes that no writer of the schema writes."""

    def __init__(self, reason: str, column: str, code: Code | None = None) -> None:
        self.column = column
        super().__init__(f"{reason} in column {column}", code)


@dataclass(frozen=True, slots=True)
class Cell:
    """A column and the field that it comes from. `plain` is the type that is read; a number: so many bytes."""

    column: Column
    plain: str | int
    form: Form = Form.AS_IS
    scale: int = 0
    symbols: tuple[str, ...] = ()
    unit: int = 1
    sub_micros: SubMicros = "refuse"
    """The treatment of digits of an instant beyond microseconds."""

    @property
    def ticks(self) -> tuple[int, int]:
        """First and last of the years 1 to 9999 that a long can say, in its unit."""
        first, last = FIRST_DAY * DAY_MICROS * 1_000, (LAST_DAY + 1) * DAY_MICROS * 1_000 - 1_000
        return max(-(-first // self.unit), -(2**63)), min(last // self.unit, 2**63 - 1)

    def read(self, record: RecordBytes) -> Any:
        """The plain value. Raises: MalformedError."""
        if self.form is Form.OWN_SCALE:
            return record.number(), record.sized()
        return record.take(self.plain) if isinstance(self.plain, int) else _PLAIN[self.plain](record)

    def value(self, raw: Any) -> Value:
        """The column's value for a plain value that is not null. Raises: CellError."""
        if self.form is Form.AS_IS:
            return raw
        try:
            return _READERS[self.form](self, raw)
        except JsonError as reason:
            code = None if reason.code is Code.JSON_MALFORMED else reason.code
            raise CellError(str(reason), self.column.name, code) from None
        except OverflowError:
            raise CellError("a value that does not fit", self.column.name, Code.VALUE_OUT_OF_RANGE) from None
        except ValueError:
            raise CellError("a value that its schema does not have", self.column.name) from None


_PLAIN: Mapping[str, Callable[[RecordBytes], Any]] = {
    "long": RecordBytes.number,
    "float": RecordBytes.real,
    "double": RecordBytes.double,
    "string": RecordBytes.text,
    "bytes": RecordBytes.sized,
}

# Readers raise OverflowError for what does not fit the column, and ValueError for what no writer writes.


def _boolean(_: Cell, raw: bytes) -> bool:
    return bool((b"\x00", b"\x01").index(raw))


def _number(cell: Cell, raw: int) -> int:
    if cell.column.type.name is TypeName.INT and not -(2**31) <= raw < 2**31:
        raise OverflowError
    return raw


def _wrapped(_: Cell, raw: int) -> Decimal:
    return Decimal(raw % 2**64)


def _real(cell: Cell, raw: int | float) -> float:
    import numpy as np  # commands that only look at a configuration do without it

    # By way of a double the nearest of 32 bits would be missed at times.
    return float(np.int64(raw).astype(np.float32)) if cell.column.type.name is TypeName.FLOAT else float(raw)


def _symbol(cell: Cell, raw: int) -> str:
    if not 0 <= raw < len(cell.symbols):
        raise ValueError
    return cell.symbols[raw]


def _decimal(cell: Cell, raw: bytes) -> Decimal:
    return _scaled(cell, raw, cell.scale)


def _own_scale(cell: Cell, raw: tuple[int, bytes]) -> Decimal:
    scale, data = raw
    if abs(scale) > MOST_SCALE:
        raise ValueError
    return _scaled(cell, data, scale)


def _scaled(cell: Cell, raw: bytes, scale: int) -> Decimal:
    if not raw:
        raise ValueError
    number = int.from_bytes(raw, "big", signed=True)
    if abs(number) >= _MOST_UNSCALED:
        raise OverflowError
    sign, digits, _ = Decimal(number).as_tuple()
    exact = cell.column.type.exact(Decimal((sign, digits, -scale)))
    if exact is None:
        raise OverflowError
    return exact


def _days(_: Cell, raw: int) -> dt.date:
    if not FIRST_DAY <= raw <= LAST_DAY:
        raise OverflowError
    return dt.date.min + dt.timedelta(days=raw - FIRST_DAY)


_UNIX_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _time(cell: Cell, raw: int) -> dt.datetime:
    first, last = cell.ticks
    micros, rest = divmod(raw * cell.unit, 1_000)
    if not first <= raw <= last or (rest and cell.sub_micros == "refuse"):
        raise OverflowError
    return _UNIX_ZERO + dt.timedelta(microseconds=micros)


def _text(cell: Cell, raw: str) -> Value:
    kind = cell.column.type.name
    if raw in _BEYOND.get(kind, ()):
        raise OverflowError
    # Debezium's IsoDate ends so.
    text = raw.removesuffix("Z") if kind is TypeName.DATE else raw
    return read_by(upstream_reader(cell.column, cell.sub_micros), plain_token(text, cell.column), cell.column)


_READERS: Mapping[Form, Callable[[Cell, Any], Value]] = {
    Form.BOOLEAN: _boolean,
    Form.NUMBER: _number,
    Form.WRAPPED: _wrapped,
    Form.REAL: _real,
    Form.SYMBOL: _symbol,
    Form.DECIMAL: _decimal,
    Form.OWN_SCALE: _own_scale,
    Form.DAYS: _days,
    Form.TIME: _time,
    Form.TEXT: _text,
}


def cell_of(column: Column, field: Schema, sub_micros: SubMicros = "refuse") -> Cell | None:
    """The reading of a field for a column; None for one that can only be null. `field` has no names of other types.

    Raises: WriterSchemaError.
    """
    branches = field if isinstance(field, list) else [field]
    kinds = [unwrapped(branch) for branch in branches]
    values = [kind for kind in kinds if kind["type"] != "null"]
    if not values:
        return None
    try:
        cell = _fitting(column, values[0]) if len(values) == 1 else None
        found = " or ".join(_named(kind) for kind in values)
    except WriterSchemaError as reason:
        raise WriterSchemaError(f"field {column.name} is {reason}") from None
    if cell is None:
        unsigned = f", unsigned: {column.unsigned}" if column.unsigned else ""
        raise WriterSchemaError(f"field {column.name} is {found}, its column {column.type}{unsigned}")
    return replace(cell, sub_micros=sub_micros)


def _named(kind: Mapping[str, Any]) -> str:
    logical = meaning(kind)
    return f"{kind['type']} ({logical})" if logical else str(kind["type"])


def _fitting(column: Column, kind: Mapping[str, Any]) -> Cell | None:
    avro, logical = kind["type"], meaning(kind)
    if column.unsigned is not None:
        return Cell(column, "long", Form.WRAPPED) if (avro, logical) == ("long", None) else None
    match column.type.name:
        case TypeName.BOOLEAN if avro == "boolean":
            return Cell(column, 1, Form.BOOLEAN)
        case TypeName.INT if avro == "int":
            return Cell(column, "long", Form.NUMBER)
        case TypeName.BIGINT if avro in _WHOLE:
            return Cell(column, "long", Form.NUMBER)
        case TypeName.FLOAT | TypeName.DOUBLE if avro in _WHOLE:
            return Cell(column, "long", Form.REAL)
        case TypeName.FLOAT if avro == "float":
            return Cell(column, "float")
        case TypeName.DOUBLE if avro in ("float", "double"):
            return Cell(column, avro)
        case TypeName.STRING if avro == "enum" and kind["symbols"]:
            return Cell(column, "long", Form.SYMBOL, symbols=tuple(kind["symbols"]))
        case TypeName.STRING if avro in ("string", "bytes") and logical != "decimal":
            return Cell(column, "string")
        case TypeName.BINARY if avro in ("string", "bytes") and logical != "decimal":
            return Cell(column, "bytes")
        case TypeName.BINARY if avro == "fixed" and logical != "decimal":
            return Cell(column, int(kind["size"]))
        case TypeName.DECIMAL if avro in ("bytes", "fixed") and logical == "decimal":
            return _decimal_cell(column, kind)
        case TypeName.DECIMAL if avro == "record" and has_own_scale(kind):
            return Cell(column, "bytes", Form.OWN_SCALE)
        case TypeName.DATE if avro == "int" and logical == "date":
            return Cell(column, "long", Form.DAYS)
        case TypeName.TIMESTAMP if avro == "long" and logical in UNITS_NS:
            return Cell(column, "long", Form.TIME, unit=UNITS_NS[logical])
        case TypeName.DECIMAL | TypeName.DATE | TypeName.TIMESTAMP if avro == "string":
            return Cell(column, "string", Form.TEXT)
    return None


def _decimal_cell(column: Column, kind: Mapping[str, Any]) -> Cell | None:
    scale = decimal_scale(kind)
    if kind["type"] == "bytes":
        return Cell(column, "bytes", Form.DECIMAL, scale)
    size = int(kind["size"])
    if scale > digits_in(size):
        return None
    return Cell(column, size, Form.DECIMAL, scale)
