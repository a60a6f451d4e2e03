"""Column types: the short list that a table can use, and each type's form in Avro, Arrow and Spark.

One value of a column is, in Python: bool, int, float, Decimal (exactly the declared scale), str, bytes,
`datetime.date`, or an aware UTC `datetime.datetime` with microseconds.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import StrEnum
from typing import Any, TypeAlias

import pyarrow as pa

from schemas.faults import nearest

Value: TypeAlias = Any
"""One value of a column as said above, or None where the column is nullable."""


class TypeName(StrEnum):
    """The types by the name that a declaration uses (a decimal's without its digits)."""

    BOOLEAN = "boolean"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"


TYPE_NAMES = tuple(name if name != TypeName.DECIMAL else "decimal(p,s)" for name in TypeName)
"""The types as a declaration writes them."""

NOT_IN_KEY = frozenset({TypeName.FLOAT, TypeName.DOUBLE, TypeName.BINARY})
"""Types without one agreed order and one byte form per value (NaN, -0.0), or too wide for a position."""

MAX_DECIMAL_PRECISION = 38
MAX_VALUE_BYTES = 64 << 20
"""The limit of one text or binary value."""

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
_DAY_US = 86_400_000_000
FIRST_US, LAST_US = FIRST_DAY * _DAY_US, (LAST_DAY + 1) * _DAY_US - 1
"""The first microsecond of the first of these days, and the last one of the last, since 1970."""

_EXACT = Context(prec=2 * MAX_DECIMAL_PRECISION, traps=[])
"""Wide enough for every decimal of the contract; the default context rounds at 28 digits."""
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")

_AVRO: dict[TypeName, str | dict[str, Any]] = {
    TypeName.BOOLEAN: "boolean",
    TypeName.INT: "int",
    TypeName.BIGINT: "long",
    TypeName.FLOAT: "float",
    TypeName.DOUBLE: "double",
    TypeName.STRING: "string",
    TypeName.BINARY: "bytes",
    TypeName.DATE: {"type": "int", "logicalType": "date"},
    TypeName.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
}

_WIDER = ((TypeName.INT, TypeName.BIGINT), (TypeName.FLOAT, TypeName.DOUBLE))

_ARROW: dict[TypeName, pa.DataType] = {
    TypeName.BOOLEAN: pa.bool_(),
    TypeName.INT: pa.int32(),
    TypeName.BIGINT: pa.int64(),
    TypeName.FLOAT: pa.float32(),
    TypeName.DOUBLE: pa.float64(),
    TypeName.STRING: pa.string(),
    TypeName.BINARY: pa.binary(),
    TypeName.DATE: pa.date32(),
    TypeName.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}


_OTHER_NAMES = {
    **dict.fromkeys(("integer", "int4", "int32"), "int or bigint"),
    **dict.fromkeys(("smallint", "tinyint", "mediumint", "int2", "int8", "int16", "short"), "int"),
    **dict.fromkeys(("long", "int64", "bigserial", "serial"), "bigint"),
    **dict.fromkeys(("text", "varchar", "char", "str", "uuid", "json", "jsonb"), "string"),
    **dict.fromkeys(("bytes", "bytea", "blob"), "binary"),
    **dict.fromkeys(("datetime", "timestamptz"), "timestamp"),
    **dict.fromkeys(("numeric", "number"), "decimal(18,2)"),
    **dict.fromkeys(("real", "float32"), "float"),
    **dict.fromkeys(("float64", "double precision"), "double"),
    "bool": "boolean",
}
"""Names that these types have elsewhere, with what they are here."""


def _meant(text: str) -> str:
    """A question for the type that may be meant, else an empty text."""
    base = text.partition("(")[0].strip()
    if base in _OTHER_NAMES:
        return f" (did you mean {_OTHER_NAMES[base]}?)"
    return nearest(base, list(TypeName))


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type as declared. `precision` and `scale` are set for decimals only (1..38, 0..precision)."""

    name: TypeName
    precision: int | None = None
    scale: int | None = None

    @classmethod
    def parse(cls, text: str) -> ColumnType:
        """Read `bigint`, `decimal(18,2)`, ...; any case. ValueError says what is wrong with it."""
        lowered = text.strip().lower()
        decimal = _DECIMAL.fullmatch(lowered)
        if decimal:
            precision, scale = int(decimal[1]), int(decimal[2])
            if not 1 <= precision <= MAX_DECIMAL_PRECISION or scale > precision:
                raise ValueError(f"{text!r}: precision is 1..{MAX_DECIMAL_PRECISION}, scale 0..precision")
            return cls(TypeName.DECIMAL, precision, scale)
        if lowered == TypeName.DECIMAL:
            raise ValueError("a decimal needs its precision and scale, as in decimal(18,2)")
        try:
            return cls(TypeName(lowered))
        except ValueError:
            raise ValueError(f"{text!r} is not one of {', '.join(TYPE_NAMES)}{_meant(lowered)}") from None

    def __str__(self) -> str:
        if self.name is TypeName.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        return self.name.value

    def exact(self, number: Decimal) -> Decimal | None:
        """A number at the scale of this decimal type, without a negative zero; None where it does not fit exactly."""
        precision, scale = self.precision or 0, self.scale or 0
        fixed = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
        if fixed != number or fixed.adjusted() >= precision - scale:
            return None
        return abs(fixed) if fixed.is_zero() else fixed

    def widens_to(self, wider: ColumnType) -> bool:
        """True if `wider` is another type of numbers that has each value of this one."""
        if self.name is TypeName.DECIMAL and wider.name is TypeName.DECIMAL:
            more = (wider.precision or 0) - (self.precision or 0), (wider.scale or 0) - (self.scale or 0)
            return more[0] >= more[1] >= 0 and more != (0, 0)
        return (self.name, wider.name) in _WIDER

    @property
    def allowed_in_key(self) -> bool:
        return self.name not in NOT_IN_KEY

    @property
    def avro(self) -> str | dict[str, Any]:
        """Avro schema of a value that is never null."""
        if self.name is TypeName.DECIMAL:
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": self.precision,
                "scale": self.scale,
            }
        return _AVRO[self.name]

    @property
    def arrow(self) -> pa.DataType:
        """The one Arrow type in which batches hold this column."""
        if self.name is TypeName.DECIMAL:
            return pa.decimal128(self.precision or 0, self.scale or 0)
        return _ARROW[self.name]


def json_literal(value: Value) -> bool | int | float | str | None:
    """A value as JSON has it in positions and declarations: one text for a value, in UTC, with all six digits."""
    match value:
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime():
            return f"{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case dt.date():
            return value.isoformat()
    literal: bool | int | float | str | None = value
    return literal
