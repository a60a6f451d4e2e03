"""How the columns of a table are read, so that each value is the one that Debezium's event of the row has.

A chunk comes as CSV (`COPY … TO STDOUT`), which Arrow reads column by column. So a column is two things: an expression
that PostgreSQL writes, and the type that Arrow reads its text as. Where an event says less than the database has (times
in milliseconds, NaN in a numeric, which becomes null), the expression says no more.

Source: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types, and events
of a real connector, which tests compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from schemas.json.debezium_values import TimeMode
from schemas.types import ColumnType, TypeName

Form = Literal["plain", "hex", "array"]
"""How the text of a value is to be read on: as the type says; as bytes in hexadecimal; as a list in JSON."""

_NANOS, _MICROS, _MILLIS = 1_000_000_000, 1_000_000, 1_000
_MILLI_DIGITS = 3
_NUMERIC_DIGITS_SHIFT, _NUMERIC_SCALE_MASK, _TYPMOD_HEADER = 16, 0x7FF, 4
_SCALE_SIGN = 0x400


@dataclass(frozen=True, slots=True)
class DatabaseType:
    """A type as the catalog has it, below any domain. `modifier` is that of the column (`atttypmod`), -1 for none.

    `name` is that of `pg_type`: `int8`, `bpchar`, `_int4`. `kind` is its `typtype`: `b` for a base type, `e` an enum.
    """

    name: str
    kind: str = "b"
    modifier: int = -1

    @property
    def digits(self) -> int | None:
        """Of a second, for a time; None where the type says nothing, which means all six."""
        return None if self.modifier < 0 else self.modifier

    @property
    def precision(self) -> tuple[int, int] | None:
        """Digits and scale of a numeric; None where it has none."""
        if self.modifier < _TYPMOD_HEADER:
            return None
        packed = self.modifier - _TYPMOD_HEADER
        scale = packed & _NUMERIC_SCALE_MASK
        return packed >> _NUMERIC_DIGITS_SHIFT & 0xFFFF, (scale ^ _SCALE_SIGN) - _SCALE_SIGN


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """`expression` is SQL with `{}` for the column. `arrow` is what Arrow's CSV reader makes of its text."""

    expression: str
    arrow: pa.DataType
    form: Form = "plain"


@dataclass(frozen=True, slots=True)
class EventForms:
    """How the connector writes values. `time` is its `time.precision.mode`, None where that is not known.

    `scale_is_in_events`: decimals come with their scale: in Avro, in records with their schema, or as text. Else they
    are read at the declared one, which has to be the database's.
    """

    time: TimeMode | None = None
    scale_is_in_events: bool = False


Rule = Callable[[DatabaseType, ColumnType, EventForms], ColumnReading | None]


def reading_of(found: DatabaseType, declared: ColumnType, forms: EventForms) -> ColumnReading | None:
    """How a column of a type is read as it is declared; None if an event of it would not be read alike, or at all."""
    if found.kind == "e":
        return _text(found, declared, forms)
    rule = _RULES.get(found.name)
    return None if rule is None else rule(found, declared, forms)


def _exactly(name: TypeName) -> Rule:
    def rule(_: DatabaseType, declared: ColumnType, __: EventForms) -> ColumnReading | None:
        return ColumnReading("{}", declared.arrow) if declared.name is name else None

    return rule


def _integer(_: DatabaseType, declared: ColumnType, __: EventForms) -> ColumnReading | None:
    fits = declared.name in (TypeName.INT, TypeName.BIGINT)
    return ColumnReading("{}", declared.arrow) if fits else None


def _numeric(found: DatabaseType, declared: ColumnType, forms: EventForms) -> ColumnReading | None:
    """Zeros at the end count as digits when Arrow reads a number, so they go where the column may have more of them."""
    if declared.name is not TypeName.DECIMAL:
        return None
    scale = None if found.precision is None else found.precision[1]
    if scale is not None and scale != declared.scale and (scale < 0 or not forms.scale_is_in_events):
        return None  # one below zero can't be declared, and is not read from events
    expression = "nullif({}, 'NaN')"
    if scale is None or scale > (declared.scale or 0):
        expression = f"trim_scale({expression})"
    return ColumnReading(expression, declared.arrow)


def _text(_: DatabaseType, declared: ColumnType, __: EventForms) -> ColumnReading | None:
    return ColumnReading("{}", pa.string()) if declared.name is TypeName.STRING else None


def _bytes(_: DatabaseType, declared: ColumnType, __: EventForms) -> ColumnReading | None:
    if declared.name is not TypeName.BINARY:
        return None
    return ColumnReading("encode({}, 'hex')", pa.string(), "hex")


def _array(_: DatabaseType, declared: ColumnType, __: EventForms) -> ColumnReading | None:
    if declared.name is not TypeName.STRING:
        return None
    return ColumnReading("array_to_json({})", pa.string(), "array")


def _timestamp(found: DatabaseType, declared: ColumnType, forms: EventForms) -> ColumnReading | None:
    """The mode `connect` is milliseconds; what is finer is not in its events."""
    if declared.name is not TypeName.TIMESTAMP or forms.time is None:
        return None
    cut = forms.time == "connect" and not _in_millis(found)
    return ColumnReading("date_trunc('milliseconds', {})" if cut else "{}", pa.timestamp("us"))


def _zoned(_: DatabaseType, declared: ColumnType, __: EventForms) -> ColumnReading | None:
    """ISO text with all its digits, in every mode."""
    return ColumnReading("{}", pa.timestamp("us", tz="UTC")) if declared.name is TypeName.TIMESTAMP else None


def _time_of_day(found: DatabaseType, declared: ColumnType, forms: EventForms) -> ColumnReading | None:
    """A number of units, or text; which unit is the connector's mode, and the type's digits in the mode `adaptive`."""
    if forms.time == "isostring":
        return ColumnReading("{} || 'Z'", pa.string()) if declared.name is TypeName.STRING else None
    if forms.time is None or declared.name is not TypeName.BIGINT:
        return None
    unit = {"connect": _MILLIS, "nanoseconds": _NANOS}.get(forms.time, _MICROS)
    if forms.time == "adaptive" and _in_millis(found):
        unit = _MILLIS
    return ColumnReading(f"floor(extract(epoch FROM {{}}) * {unit})::bigint", pa.int64())


def _in_millis(found: DatabaseType) -> bool:
    return found.digits is not None and found.digits <= _MILLI_DIGITS


_RULES: dict[str, Rule] = {
    "bool": _exactly(TypeName.BOOLEAN),
    "int2": _integer,
    "int4": _integer,
    "int8": _exactly(TypeName.BIGINT),
    "float4": _exactly(TypeName.FLOAT),
    "float8": _exactly(TypeName.DOUBLE),
    "numeric": _numeric,
    "bytea": _bytes,
    "date": _exactly(TypeName.DATE),
    "timestamp": _timestamp,
    "timestamptz": _zoned,
    "time": _time_of_day,
    **dict.fromkeys(("text", "varchar", "bpchar", "citext", "uuid", "json", "jsonb", "xml"), _text),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8"), _text),
    **dict.fromkeys(("_int2", "_int4", "_int8", "_bool", "_text", "_varchar", "_uuid"), _array),
}
"""By the name of the type in the database. What is not here has no value in an event that could be declared."""
