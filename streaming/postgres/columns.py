"""Reading of a table's columns, so that each value is the one that Debezium's event of the row has.

A chunk comes as CSV (`COPY … TO STDOUT`), which Arrow reads column by column, without Python touching a row. So a
column is two things: an expression that PostgreSQL writes, and the type that Arrow reads its text as. Where an event
has less than the database (times in milliseconds, NaN in a numeric, which becomes null), the expression has no more.

In PostgreSQL's CSV a null is nothing at all and an empty text is `""`; a text may hold line ends.

Source: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types, and events
of a real connector, which tests compare with.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from schemas.codec.json.text import read_value
from schemas.errors import Code, InputError
from schemas.json.debezium_values import TimeMode
from schemas.table import Column
from schemas.types import ColumnType, TypeName

Form = Literal["plain", "hex", "array"]
"""The form of a value's text: the type's own; bytes in hexadecimal; a list in JSON."""

_NANOS, _MICROS, _MILLIS = 1_000_000_000, 1_000_000, 1_000
_MILLI_DIGITS = 3
_NUMERIC_DIGITS_SHIFT, _NUMERIC_SCALE_MASK, _TYPMOD_HEADER = 16, 0x7FF, 4
_SCALE_SIGN = 0x400


@dataclass(frozen=True, slots=True)
class DatabaseType:
    """A type in the catalog, with domains resolved. `modifier` is that of the column (`atttypmod`), -1 for none.

    `name` is that of `pg_type`: `int8`, `bpchar`, `_int4`. `kind` is its `typtype`: `b` for a base type, `e` an enum.
    """

    name: str
    kind: str = "b"
    modifier: int = -1

    @property
    def digits(self) -> int | None:
        """Digits of a second, for a time; None without a modifier, which means all six."""
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
    """The connector's forms of values. `time` is its `time.precision.mode`, None where that is not known.

    `scale_is_in_events`: decimals come with their scale: in Avro, in records with their schema, or as text. Else the
    declared scale counts, which has to be the database's.
    """

    time: TimeMode | None = None
    scale_is_in_events: bool = False


Rule = Callable[[DatabaseType, ColumnType, EventForms], ColumnReading | None]


def reading_of(found: DatabaseType, declared: ColumnType, forms: EventForms) -> ColumnReading | None:
    """The reading of a column of a type as it is declared; None if an event of it would give another value, or none."""
    rule = _TEXT if found.kind == "e" else _RULES.get(found.name)
    return None if rule is None else rule(found, declared, forms)


def _as(
    *names: TypeName, expression: str = "{}", arrow: pa.DataType | None = None, form: Form = "plain"
) -> Rule:
    """The rule of a type that has one reading, and may be declared as any of these."""

    def rule(_: DatabaseType, declared: ColumnType, __: EventForms) -> ColumnReading | None:
        return ColumnReading(expression, arrow or declared.arrow, form) if declared.name in names else None

    return rule


def _numeric(found: DatabaseType, declared: ColumnType, forms: EventForms) -> ColumnReading | None:
    """Arrow counts trailing zeros as digits of a number, so they are trimmed where a value may have too many."""
    if declared.name is not TypeName.DECIMAL:
        return None
    scale = None if found.precision is None else found.precision[1]
    if scale is not None and scale != declared.scale and (scale < 0 or not forms.scale_is_in_events):
        return None  # a scale below zero can't be declared, and is not read from events
    expression = "nullif({}, 'NaN')"
    if scale is None or scale > (declared.scale or 0):
        expression = f"trim_scale({expression})"
    return ColumnReading(expression, declared.arrow)


def _timestamp(found: DatabaseType, declared: ColumnType, forms: EventForms) -> ColumnReading | None:
    """The mode `connect` is milliseconds; its events have no finer digits."""
    if declared.name is not TypeName.TIMESTAMP or forms.time is None:
        return None
    cut = forms.time == "connect" and not _in_millis(found)
    return ColumnReading("date_trunc('milliseconds', {})" if cut else "{}", pa.timestamp("us"))


def _time_of_day(found: DatabaseType, declared: ColumnType, forms: EventForms) -> ColumnReading | None:
    """A number of units, or text; the unit follows from the connector's mode, in `adaptive` from the type's digits."""
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


_TEXT = _as(TypeName.STRING)
_LIST = _as(TypeName.STRING, expression="array_to_json({})", form="array")
_RULES: dict[str, Rule] = {
    "bool": _as(TypeName.BOOLEAN),
    **dict.fromkeys(("int2", "int4"), _as(TypeName.INT, TypeName.BIGINT)),
    "int8": _as(TypeName.BIGINT),
    "float4": _as(TypeName.FLOAT),
    "float8": _as(TypeName.DOUBLE),
    "numeric": _numeric,
    "bytea": _as(TypeName.BINARY, expression="encode({}, 'hex')", arrow=pa.string(), form="hex"),
    "date": _as(TypeName.DATE),
    "timestamp": _timestamp,
    "timestamptz": _as(TypeName.TIMESTAMP),  # ISO text with all its digits, in every mode
    "time": _time_of_day,
    **dict.fromkeys(("text", "varchar", "bpchar", "citext", "uuid", "json", "jsonb", "xml"), _TEXT),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8"), _TEXT),
    **dict.fromkeys(("_int2", "_int4", "_int8", "_bool", "_text", "_varchar", "_uuid"), _LIST),
}
"""By the name of the type in the database. Other types have no value in events that could be declared."""


Readings = Mapping[str, ColumnReading]
"""By column, all that are read, in the order in which they are selected."""

_ESCAPED_OTHERWISE = r"\\u00[01][0-9a-f]|[\x{10000}-\x{10FFFF}]"


class Unreadable(Exception):
    """A value in this column that its type can't hold. The caller adds the table."""

    def __init__(self, column: str, code: Code = Code.VALUE_OUT_OF_RANGE) -> None:
        super().__init__(column)
        self.column, self.code = column, code

    def error(self, where: str) -> InputError:
        """The error for people; `where` names the table."""
        found = "a null" if self.code is Code.PK_NULL else "a value that does not fit"
        return InputError(self.code, where=f"{where}.{self.column}", found=found, column=self.column)


def rows_of(content: bytes, readings: Readings, columns: Sequence[Column]) -> pa.Table:
    """These columns in their Arrow types, from whole lines of CSV with the columns of `readings`, in its order.

    Raises: Unreadable for a value that an event of the row could not have either: VALUE_OUT_OF_RANGE for infinity, for
    a day before year 1 or after 9999, for too many digits of a decimal; PK_NULL for a NaN in the key; BAD_ENCODING for
    a text that is no UTF-8.
    """
    try:
        found = _read(content, {name: reading.arrow for name, reading in readings.items()})
        arrays = [_finished(found[column.name], readings[column.name], column) for column in columns]
    except pa.ArrowInvalid:
        raise _culprit(content, readings) from None
    return pa.table(arrays, schema=pa.schema([(column.name, column.type.arrow) for column in columns]))


def _read(content: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
    return csv.read_csv(
        pa.BufferReader(content),
        # One block, so that no row lies in two; and on the calling thread, as several readers run in parallel.
        read_options=csv.ReadOptions(
            column_names=list(types), use_threads=False, block_size=max(len(content), 1)
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict(types),
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            timestamp_parsers=[csv.ISO8601],
        ),
    )


def _culprit(content: bytes, readings: Readings) -> Unreadable:
    """The failing column, found by parsing one column at a time (error path, speed irrelevant)."""
    binary = dict.fromkeys(readings, pa.binary())
    for name, reading in readings.items():
        try:
            _read(content, {**binary, name: reading.arrow})
        except pa.ArrowInvalid:
            is_text = reading.arrow == pa.string()
            return Unreadable(name, Code.BAD_ENCODING if is_text else Code.VALUE_OUT_OF_RANGE)
    raise AssertionError("columns that can be read alone, and not together")


def _finished(found: pa.ChunkedArray, reading: ColumnReading, column: Column) -> pa.Array:
    values = found.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # of no chunk at all
        values = pa.array([], found.type)
    if values.null_count and not column.nullable:
        raise Unreadable(column.name, Code.PK_NULL)
    if reading.form == "hex":
        return from_hex(values)
    if reading.form == "array":
        return _as_jackson(values)
    if column.type.name is TypeName.DECIMAL:
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            raise Unreadable(column.name) from None
    elif column.type.name in (TypeName.DATE, TypeName.TIMESTAMP):
        # Arrow reads years up to 9999 and the year 0, which does not exist.
        first = pc.min(pc.year(values)).as_py()
        if first is not None and first < 1:
            raise Unreadable(column.name)
    return values.cast(column.type.arrow)


def from_hex(texts: pa.Array) -> pa.Array:
    """Bytes from hexadecimal digits, all of them at once."""
    _, offsets, data = texts.buffers()
    ends = (
        np.frombuffer(offsets, np.int32, len(texts) + 1, 4 * texts.offset)
        if offsets
        else np.zeros(1, np.int32)
    )
    digits = memoryview(data)[ends[0] : ends[-1]] if data is not None else b""
    valid = pc.is_valid(texts).buffers()[1] if texts.null_count else None
    halved = ((ends - ends[0]) // 2).astype(np.int32)
    content = pa.py_buffer(binascii.unhexlify(digits))
    return pa.Array.from_buffers(pa.binary(), len(texts), [valid, pa.py_buffer(halved), content])


def _as_jackson(texts: pa.Array) -> pa.Array:
    """Lists with the escapes of an event: of control characters, and of code points beyond 16 bits. Few have any."""
    if not pc.any(pc.match_substring_regex(texts, _ESCAPED_OTHERWISE)).as_py():
        return texts
    return pa.array([text and read_value(text).text for text in texts.to_pylist()], pa.string())
