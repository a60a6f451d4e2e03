"""Columns read from JSON by Spark, with a flag where the strict twin might read something else.

`from_json` is lenient, and gives a field that is declared as a string whatever it finds there. So:

    bytes behind the object               ignored: the text is read between two marks, so that they would show
    half a surrogate pair, escaped        becomes `?`: such a text is in doubt
    NaN, INF and the like as numbers      read where float and double are: likewise
    a number in a string column           1.10 becomes `1.1`, by way of a double: a string that looks so is in doubt,
                                          unless the text shows that it stands in quotes
    a number in a decimal column          likewise: with a fraction it is taken from the text, or in doubt
    a number or boolean in place of text  what has no such form is refused; `1234` could be base64, and is in doubt

A name that comes twice counts as it comes last; Spark refuses the record if one before it is not of its column's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.json.parsing.tokens import MAX_DEPTH, MAX_NUMBER
from schemas.table import Column as TableColumn
from schemas.types import TypeName

_CORRUPT = "_bf_corrupt"
_READ, _QUOTED = "read", "decimals_quoted"
_MARK = "_bf_e1a75c0d"
_AROUND, _FRAME, _ITSELF, _BEHIND = f"{_MARK}a", f"{_MARK}f", "", f"{_MARK}b"
"""The text, or a frame's text, is read inside this object: as a field, with another one behind it.

A text that goes on behind its own object ends this one too early, or brings it further fields. One that has the mark
itself is in doubt.
"""
_TYPED = {TypeName.BOOLEAN, TypeName.INT, TypeName.BIGINT, TypeName.FLOAT, TypeName.DOUBLE}
_FLOATS = {TypeName.FLOAT, TypeName.DOUBLE}
_LONGEST = str(2**31 - 1)

_SPARE_HALF = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""Of a surrogate pair. An escaped backslash in front of what looks like one matches, too."""
_LONG_NUMBER = rf"[0-9.eE+-]{{{MAX_NUMBER + 1}}}"
_NOT_FINITE = r"[:\[,\s][+-]?(NaN|INF|Infinity)\s*[,\]}]"
_ESCAPED_NAME = r'\\u[0-9a-fA-F]{4}[^"\\]*"\s*:'
_LIKE_FRACTION = r'^(-?[0-9]+\.[0-9]+(E-?[0-9]+)?|"-?(NaN|Infinity)")\z'
_WITH_FRACTION = r'(?s)^(?=[\[{]).*([:\[,]\s*-?[0-9]+[.eE]|"-?(NaN|Infinity)")'
_DATE_RANGE = "DATE'0001-01-01'", "DATE'9999-12-31'"
_TIME_RANGE = "TIMESTAMP'0001-01-01 00:00:00Z'", "TIMESTAMP'9999-12-31 23:59:59.999999Z'"
_TIMESTAMP = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})\z"
)


@dataclass(frozen=True, slots=True)
class Cells:
    """The columns of one text. A cell is null where it is null in JSON, missing, or not `sound`."""

    values: dict[str, Column]
    sound: Column
    """Whether the text is an object and each cell of its column's form. Never null."""
    doubt: Column
    """Whether the strict reader might see something else, or refuse it. Never null."""

    def agree(self, keys: Cells) -> Column:
        """Whether what a row has of its key is that of these cells. Never null."""
        pairs = ((self.values[name], key) for name, key in keys.values.items())
        return reduce(and_, (F.coalesce(found == key, F.lit(True)) for found, key in pairs))


@dataclass(frozen=True, slots=True)
class Cell:
    """One column. `found` is null where there is nothing; `value` also where that is no value of the column."""

    found: Column
    value: Column
    doubt: Column | None = None


@dataclass(frozen=True, slots=True)
class JsonText:
    """The whole text that cells are read from; `decimals_quoted` if each decimal in it is surely a text."""

    text: Column
    decimals_quoted: Column


class CellForms:
    """How the values of each type are written, here as docs/formats.md#json-values; subclasses change that."""

    def read_as(self, column: TableColumn) -> str:
        """The type that `from_json` looks for, in Spark's words."""
        if column.type.name in _TYPED:
            return column.type.spark_ddl
        return "string"

    def is_text_or_number(self, column: TableColumn) -> bool:
        """Whether the column is read as a string in which a fraction may have been rounded."""
        return column.type.name is TypeName.DECIMAL

    def cell(self, found: Column, source: JsonText, column: TableColumn) -> Cell:
        """The value `found` in the column's type. `source` is the whole text that was read."""
        match column.type.name:
            case TypeName.FLOAT | TypeName.DOUBLE:
                return Cell(found, found, F.abs(found) == float("inf"))  # also of 1e400 and "+INF"
            case TypeName.BOOLEAN | TypeName.INT | TypeName.BIGINT:
                return Cell(found, found)
            case TypeName.DECIMAL:
                return _decimal(found, source, column)
            case TypeName.STRING:
                return Cell(found, found, _looks_fractional(found) & ~_is_in_quotes(source.text, column.name))
            case TypeName.BINARY:
                return Cell(found, read_text(found, column), may_be_unquoted(found))
            case _:
                return Cell(found, read_text(found, column))


class JsonColumns:
    """Reads columns of a table that are fields of a JSON object."""

    def __init__(self, columns: Sequence[TableColumn], forms: CellForms | None = None) -> None:
        self._columns, self._forms = tuple(columns), forms or CellForms()
        self._has_floats = any(column.type.name in _FLOATS for column in columns)

    @property
    def fields(self) -> str:
        """The columns as `parsed` looks for them, in Spark's words."""
        return ",".join(f"`{column.name}`:{self._forms.read_as(column)}" for column in self._columns)

    def parsed(
        self, text: Column, fields: str | None = None, frame: tuple[Column, str] | None = None
    ) -> Column:
        """The expensive part, to be evaluated once a record. `text` may be anything, or null.

        `fields` is for columns that lie deeper in it. `frame` says whether it is one, never null, and what its fields
        are then.
        """
        options = {
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": _CORRUPT,
            "allowSingleQuotes": "false",
            # Without it the texts "NaN" and "Infinity" would not be read either.
            "allowNonNumericNumbers": str(self._has_floats).lower(),
            "maxNestingDepth": str(MAX_DEPTH + 2),
            "maxNumLen": str(2 * MAX_NUMBER),
            "maxStringLen": _LONGEST,
        }
        schema = f"{_AROUND} map<string,struct<{fields or self.fields}>>, {_CORRUPT} string"
        around: Column = F.lit(_AROUND)
        if frame is not None:
            schema += f", {_FRAME} map<string,struct<{frame[1]}>>"
            around = F.when(frame[0], F.lit(_FRAME)).otherwise(around)
        front = F.concat(F.lit('{"'), around, F.lit(f'":{{"{_ITSELF}":'))
        read = F.from_json(F.concat(front, text, F.lit(f',"{_BEHIND}":{{}}}}}}')), schema, options)
        return F.struct(read.alias(_READ), self._decimals_quoted(text).alias(_QUOTED))

    def cells(
        self, parsed: Column, text: Column, *, of: Column | None = None, forms: CellForms | None = None
    ) -> Cells:
        """The columns of what `parsed` gave; `of` is the struct that has them, if the text may be a frame."""
        row, forms = row_of(parsed) if of is None else of, forms or self._forms
        source = JsonText(text, parsed.getField(_QUOTED))
        cells = {
            column.name: forms.cell(row.getField(column.name), source, column) for column in self._columns
        }
        read = parsed.getField(_READ)
        whole = [_is_whole(read.getField(each)) for each in (_AROUND, *([] if of is None else [_FRAME]))]
        sound = [read.getField(_CORRUPT).isNull(), reduce(or_, whole), F.is_valid_utf8(text)]
        sound += [cell.found.isNull() | cell.value.isNotNull() for cell in cells.values()]
        doubts = [self._doubt(text), *(cell.doubt for cell in cells.values() if cell.doubt is not None)]
        return Cells(
            {name: cell.value for name, cell in cells.items()},
            F.coalesce(reduce(and_, sound), F.lit(False)),
            F.coalesce(reduce(or_, doubts), F.lit(False)),
        )

    def _decimals_quoted(self, text: Column) -> Column:
        # One look for all of them: a look through a wide row's text costs as much as ten of its columns.
        names = [column.name for column in self._columns if self._forms.is_text_or_number(column)]
        return _is_in_quotes(text, f"(?:{'|'.join(names)})") if names else F.lit(True)

    def _doubt(self, text: Column) -> Column:
        doubt = doubtful(text) | text.contains(_MARK)
        if self._has_floats:
            named = [text.contains(name) for name in ("NaN", "INF", "Infinity")]
            doubt |= reduce(or_, named) & text.rlike(_NOT_FINITE)
        return doubt


def row_of(parsed: Column) -> Column:
    """The object that `JsonColumns.parsed` has read; null where there is none."""
    return parsed.getField(_READ).getField(_AROUND).getItem(_ITSELF)


def frame_of(parsed: Column) -> Column:
    """As `row_of`, for a text that is a frame."""
    return parsed.getField(_READ).getField(_FRAME).getItem(_ITSELF)


def _is_whole(read: Column) -> Column:
    """Whether an object was read, and nothing behind it. Never null."""
    found = (F.size(read) == 2) & read.getItem(_BEHIND).isNotNull() & read.getItem(_ITSELF).isNotNull()
    return F.coalesce(found, F.lit(False))


def _decimal(found: Column, source: JsonText, column: TableColumn) -> Cell:
    """A text, or what became of a number: with a fraction it is taken from where it is written."""
    text = source.text
    named = rf'"{column.name}"\s*:\s*'
    as_it_is = is_plain(found, column) & (
        ~found.contains(".") | source.decimals_quoted | _is_in_quotes(text, column.name)
    )
    number = F.regexp_extract(text, rf"{named}(-?[0-9.]+)\s*[,}}]", 1)
    is_it = ~has_escaped_name(text) & (F.regexp_count(text, F.lit(named)) == 1) & is_plain(number, column)
    # Of several numbers the last that comes to the same: the strict reader has the last word on it.
    numbers = F.regexp_extract_all(text, F.lit(rf'{named}"?(-?[0-9][0-9.eE+-]*)'), 1)
    equal = F.filter(numbers, lambda each: each.try_cast("double") == found.try_cast("double"))
    other = F.coalesce(F.try_element_at(equal, F.lit(-1)), found)
    value = (
        F.when(found.isNull(), F.lit(None))
        .when(as_it_is, found.try_cast(column.type.spark_ddl))
        .when(is_it, number.try_cast(column.type.spark_ddl))
        .otherwise(other.try_cast(column.type.spark_ddl))
    )
    return Cell(found, value, found.isNotNull() & ~as_it_is & ~is_it)


def doubtful(text: Column) -> Column:
    """Whether a text, whatever its columns, holds what readers take for different things."""
    is_long = F.octet_length(text) > MAX_NUMBER
    return (text.contains(r"\u") & text.rlike(_SPARE_HALF)) | (is_long & text.rlike(_LONG_NUMBER))


def has_fields(text: Column, names: Sequence[str]) -> Column:
    """Whether an object that has these fields has no further ones, and none twice. May be null, for no."""
    return F.size(F.json_object_keys(text)) == len(names)


def is_whole(text: Column) -> Column:
    """Whether nothing follows the JSON value that a text begins with. May be null, for no.

    Of what could follow it, a bracket ends the list too early for the second count, a comma adds to the first one, and
    all else makes no list.
    """
    alone, with_another = F.concat(F.lit("["), text, F.lit("]")), F.concat(F.lit("["), text, F.lit(",0]"))
    return (F.json_array_length(alone) == 1) & (F.json_array_length(with_another) == 2)


def read_text(text: Column, column: TableColumn) -> Column:
    """The column's value of a text without quotes; null where it has not the form of the column's type."""
    kind = column.type
    match kind.name:
        case TypeName.BOOLEAN:
            return F.when(text.isin("true", "false"), text == "true")
        case TypeName.INT | TypeName.BIGINT:
            is_number = text.rlike(r"^-?(0|[1-9][0-9]*)\z") & (F.length(text) <= MAX_NUMBER)
            return F.when(is_number, text.try_cast(kind.spark_ddl))
        case TypeName.BINARY:
            data = F.try_to_binary(text, F.lit("base64"))
            # Spark begins a new line after each 76 characters.
            return F.when(F.translate(F.base64(data), "\r\n", "") == text, data)
        case TypeName.DATE:
            day = text.try_cast("date")
            return F.when((day.cast("string") == text) & day.between(*map(F.expr, _DATE_RANGE)), day)
        case TypeName.TIMESTAMP:
            return F.when(text.rlike(_TIMESTAMP), in_calendar(text.try_cast("timestamp")))
        case TypeName.DECIMAL:
            return text.try_cast(kind.spark_ddl)
        case _:
            return text


def in_calendar(at: Column) -> Column:
    """Null for an instant outside the years 1 to 9999."""
    return F.when(at.between(*map(F.expr, _TIME_RANGE)), at)


def is_plain(text: Column, column: TableColumn) -> Column:
    """Whether `read_text` is right about a text without asking further."""
    return text.rlike(_plain(column)) if column.type.name is TypeName.DECIMAL else F.lit(True)


def _plain(column: TableColumn) -> str:
    """A decimal without an exponent that fits the scale exactly, of few enough digits."""
    fraction = rf"\.[0-9]{{1,{column.type.scale}}}0{{0,99}}" if column.type.scale else r"\.0{1,99}"
    return rf"^-?(0|[1-9][0-9]{{0,37}})({fraction})?\z"


def may_be_unquoted(base64: Column) -> Column:
    """Whether a text in base64 may have been a number or a boolean."""
    return (base64 == "true") | ((base64 < ":") & base64.rlike(r"^[0-9]+\z"))


def _looks_fractional(found: Column) -> Column:
    """Whether a string may come from a number with a fraction, or from a list or object that holds one."""
    first = F.substring(found, 1, 1)
    return first.isin(*'{["-0123456789') & (found.rlike(_LIKE_FRACTION) | found.rlike(_WITH_FRACTION))


def _is_in_quotes(text: Column, name: str) -> Column:
    """Whether a field is surely a text: nothing of its name, at whatever depth, is a number, a list or an object."""
    return ~text.rlike(rf'"{name}"\s*:\s*[^\s"tfn]') & ~has_escaped_name(text)


def has_escaped_name(text: Column) -> Column:
    """Whether a name may be written in escapes, and so not be found by its letters."""
    return text.contains(r"\u") & text.rlike(_ESCAPED_NAME)
