"""Values of Debezium's JSON as Spark reads them, those of `schemas.json.debezium_values`.

The schema that comes with a record (its frame) is read only where values depend on it: decimals whose scale it has,
and times of the mode `adaptive`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.json.debezium_values import (
    MAX_UNSCALED_BYTES,
    MICROS,
    MILLIS,
    NANOS,
    SEMANTIC_UNITS,
    UNAVAILABLE_BYTES,
    UNAVAILABLE_TEXTS,
    UNITS,
    VARIABLE_SCALE,
    DecimalMode,
    TimeMode,
)
from schemas.table import Column as TableColumn
from schemas.types import FIRST_DAY, LAST_DAY, TypeName
from streaming.source.formats.json_columns import (
    Cell,
    CellForms,
    JsonText,
    in_calendar,
    is_plain,
    may_be_unquoted,
    read_text,
)

_FIELD = "field string, name string, parameters struct<scale string>"
FRAME = f"struct<fields array<struct<{_FIELD}, fields array<struct<{_FIELD}>>>>>"
"""The type with which `from_json` reads what is needed of a record's `schema`."""

_WHOLE = r"^-?(0|[1-9][0-9]{0,18})\z"
_LONG_BYTES = 8
_SHORT_TEXT, _MAX_SHORT_SCALE = 12, 18
"""Characters of base64 for eight bytes, and the scale up to which such a number is exact as a product of decimals."""
_BASE64 = r"^(?=.)([A-Za-z0-9+/]{4})*+([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?\z"
"""With padding, and without bits that stand for nothing."""
_QUOTED_OBJECT = r'\{\\"|\\u00(22|7[bB])'
_DAYS = FIRST_DAY, LAST_DAY
_UNAVAILABLE = {TypeName.STRING: UNAVAILABLE_TEXTS, TypeName.BINARY: (UNAVAILABLE_BYTES,)}


class DebeziumForms(CellForms):
    """Forms under a connector's settings. `described` are the fields in a record's frame, None without frames."""

    def __init__(
        self,
        time: TimeMode | None,
        decimal: DecimalMode | None,
        keys: frozenset[str],
        described: Column | None = None,
    ) -> None:
        self._time, self._decimal, self._keys, self._described = time, decimal, keys, described

    @property
    def asks_frames(self) -> bool:
        """Whether a frame may change what values mean."""
        return self._time == "adaptive" or self._decimal == "precise"

    def with_frame(self, described: Column | None) -> DebeziumForms:
        """The same for records whose frame describes these fields."""
        return DebeziumForms(self._time, self._decimal, self._keys, described)

    def read_as(self, column: TableColumn) -> str:
        """As `CellForms.read_as`."""
        match column.type.name:
            case TypeName.DATE if self._time != "isostring":
                return "int"
            case TypeName.DECIMAL if self._decimal == "precise":
                return "string"
            case _:
                return super().read_as(column)

    def is_text_or_number(self, column: TableColumn) -> bool:
        """As `CellForms.is_text_or_number`."""
        return super().is_text_or_number(column) and self._decimal != "precise"

    def cell(self, found: Column, source: JsonText, column: TableColumn) -> Cell:
        """As `CellForms.cell`."""
        if column.type.name in _UNAVAILABLE and column.name not in self._keys:
            found = F.when(~found.isin(*_UNAVAILABLE[column.type.name]), found)
        match column.type.name:
            case TypeName.DATE if self._time != "isostring":
                return Cell(found, F.when(found.between(*_DAYS), F.date_from_unix_date(found)))
            case TypeName.DATE:
                return Cell(found, read_text(F.regexp_replace(found, r"^(.{10})Z\z", "$1"), column))
            case TypeName.TIMESTAMP:
                return Cell(found, self._instant(found, column))
            case TypeName.DECIMAL if self._decimal == "precise":
                return self._precise(found, source.text, column)
            case _:
                return super().cell(found, source, column)

    def _instant(self, found: Column, column: TableColumn) -> Column:
        if self._time == "adaptive":
            meaning = self._described_as(column, "name")
            unit = None if meaning is None else _let(meaning, lambda it: _by_value(it, SEMANTIC_UNITS))
        else:
            known = UNITS.get(self._time or "")
            unit = None if known is None else F.lit(known)
        at = read_text(found, column)
        if unit is None:
            return at
        number = F.when(found.rlike(_WHOLE), found.try_cast("bigint"))
        micros = (
            F.when(unit == MILLIS, F.try_multiply(number, F.lit(1_000)))
            .when(unit == MICROS, number)
            .when(
                (unit == NANOS) & (number % 1_000 == 0), (number.cast("decimal(19,0)") / 1_000).cast("bigint")
            )
        )
        return F.coalesce(in_calendar(F.timestamp_micros(micros)), at)

    def _precise(self, found: Column, text: Column, column: TableColumn) -> Cell:
        """Bytes in base64 at their own scale, at that of the frame, or at the declared one."""
        declared = column.type.scale or 0
        has_own = found.startswith("{")
        in_frame = self._described_as(column, "parameters", "scale")
        is_usual = ~has_own & (F.octet_length(found) <= _SHORT_TEXT)
        scale: Column = F.lit(declared)
        if in_frame is not None:
            is_usual &= in_frame.isNull() | (in_frame == str(declared))
            scale = F.when(in_frame.rlike(r"^[0-9]{1,3}\z"), in_frame.cast("int")).otherwise(scale)
        value = self._any_decimal(found, has_own, scale, column)
        if declared <= _MAX_SHORT_SCALE:
            value = F.when(is_usual, _short_decimal(found, column)).otherwise(value)
        # What looks like an object may be a text of it.
        doubt = may_be_unquoted(found) | (has_own & text.rlike(_QUOTED_OBJECT))
        return Cell(found, value, doubt)

    def _any_decimal(self, found: Column, has_own: Column, scale: Column, column: TableColumn) -> Column:
        own = F.regexp_extract(found, f"^{VARIABLE_SCALE}\\z", 1)
        scale = F.when(has_own, own.try_cast("int")).otherwise(scale)
        text = F.when(has_own, F.regexp_extract(found, f"^{VARIABLE_SCALE}\\z", 2)).otherwise(found)

        def value(number: Column) -> Column:
            return F.when(is_plain(number, column), number.try_cast(column.type.spark_ddl))

        number = _let(_let(text, _from_base64), _whole_number)
        return _let(
            F.struct(number.alias("number"), scale.alias("scale")), lambda it: _let(_shifted(it), value)
        )

    def _described_as(self, column: TableColumn, *path: str) -> Column | None:
        if self._described is None:
            return None
        field = F.get(F.filter(self._described, lambda each: each["field"] == column.name), F.lit(0))
        # What looks through a list is not compiled: it must not run for records without a frame.
        return F.when(self._described.isNotNull(), reduce(lambda part, name: part[name], path, field))


def unchanged(texts: dict[int, tuple[Column, TableColumn]]) -> Column:
    """The indices of columns whose value is left out, null if none is; `texts` are cells before they are read."""
    marks = [
        F.when(found.isin(*_UNAVAILABLE[column.type.name]), F.lit(index))
        for index, (found, column) in texts.items()
        if column.type.name in _UNAVAILABLE
    ]
    if not marks:
        return F.lit(None).cast("array<int>")
    some = reduce(or_, (F.coalesce(mark.isNotNull(), F.lit(False)) for mark in marks))
    return F.when(some, F.filter(F.array(*marks), lambda index: index.isNotNull()))


def _by_value(found: Column, values: Mapping[str, int]) -> Column:
    return reduce(
        lambda chosen, item: F.when(found == item[0], F.lit(item[1])).otherwise(chosen),
        values.items(),
        F.lit(None).cast("int"),
    )


def _let(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use` of a value that it may name any number of times, evaluated once. Not compiled, so for what is rare."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def _from_base64(text: Column) -> Column:
    data = F.try_to_binary(text, F.lit("base64"))
    return F.when((F.base64(data) == text) & F.length(data).between(1, MAX_UNSCALED_BYTES), data)


def _short_decimal(text: Column, column: TableColumn) -> Column:
    """A number of eight bytes at most at the column's scale; null where it is none, or does not fit."""
    digits = F.hex(F.unbase64(text))
    # The upper bit of six: characters before `A` stand for the last ones.
    sign = F.when((text >= "A") & (text < "g"), F.lit("0")).otherwise(F.lit("F"))
    number = F.conv(F.lpad(digits, 2 * _LONG_BYTES, sign), 16, -10).cast("bigint")
    scaled = number.cast("decimal(19,0)") * F.lit(Decimal(1).scaleb(-(column.type.scale or 0)))
    return F.when(text.rlike(_BASE64), scaled.try_cast(column.type.spark_ddl))


def _whole_number(data: Column) -> Column:
    """The text of a big-endian number in two's complement. Avro's reader costs too much to set up in each task."""
    digits, length = F.hex(data), F.length(data)
    is_negative = F.substring(digits, 1, 1) >= "8"
    beyond = F.call_function("shiftleft", F.lit(1).cast("bigint"), length * 8)
    short = F.conv(digits, 16, 10).cast("bigint") - F.when(is_negative, beyond).otherwise(0)
    padded = F.lpad(digits, 2 * MAX_UNSCALED_BYTES, F.when(is_negative, F.lit("F")).otherwise(F.lit("0")))
    parts = [F.conv(F.substring(padded, 8 * i + 1, 8), 16, 10).cast("decimal(38,0)") for i in range(4)]
    parts[0] -= F.when(is_negative, F.lit(2**32)).otherwise(0)
    # Below zero the last step goes from above: from below it would pass the largest decimal.
    parts[3] -= F.when(is_negative, F.lit(2**32)).otherwise(0)
    parts[2] += F.when(is_negative, F.lit(1)).otherwise(0)
    long = reduce(lambda high, low: F.try_add(F.try_multiply(high, F.lit(2**32)), low), parts)
    return F.when(length < _LONG_BYTES, short.cast("string")).otherwise(long.cast("string"))


def _shifted(it: Column) -> Column:
    """A whole number as text, divided by 10 to the power of a scale."""
    number, scale = it.getField("number"), it.getField("scale")
    sign = F.when(number.startswith("-"), F.lit("-")).otherwise(F.lit(""))
    digits = F.regexp_replace(number, "^-", "")
    padded = F.when(F.length(digits) > scale, digits).otherwise(F.lpad(digits, scale + 1, "0"))
    whole = F.substring(padded, F.lit(1), F.length(padded) - scale)
    fraction = F.substring(padded, F.length(padded) - scale + 1, scale)
    return F.when(scale == 0, number).otherwise(F.concat(sign, whole, F.lit("."), fraction))
