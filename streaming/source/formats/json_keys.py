"""Keys in JSON or as plain text, as Spark reads them (docs/formats.md#keys).

Most keys are an object of numbers and plain texts, which a pattern recognises in a fifth of the time that
reading JSON takes. All others are read.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.formats.upsert import KeyForm
from schemas.table import Column as TableColumn
from schemas.table import TableSchema
from schemas.types import TypeName
from streaming.source.formats.json_columns import (
    CellForms,
    Cells,
    JsonColumns,
    doubtful,
    has_fields,
    is_plain,
    is_whole,
    read_text,
)

_USUAL = {
    TypeName.INT: "(-?(?:0|[1-9][0-9]{0,8}))",
    TypeName.BIGINT: "(-?(?:0|[1-9][0-9]{0,17}))",
    TypeName.STRING: r'"([^"\\\x00-\x1f]*)"',
}
"""Values that are what they look like, each a group. An empty one in front is read like any other key."""
_SPACE = "[ \\t\\r\\n]*"


class KeyObjects:
    """Reads objects that have exactly the key columns. `forms` are those of the values."""

    def __init__(self, table: TableSchema, forms: CellForms | None = None) -> None:
        self._columns = table.key_columns
        self._usual = _usual(self._columns)
        self._read = JsonColumns(self._columns, forms)

    def parsed(self, text: Column) -> Column:
        """The expensive part, to be evaluated once a record."""
        if self._usual is None:
            return F.struct(self._read.parsed(text).alias("read"))
        groups = [F.regexp_extract(text, self._usual, number + 1) for number in range(len(self._columns))]
        read = F.when(F.coalesce(groups[0] == "", F.lit(True)), self._read.parsed(text))
        return F.struct(
            read.alias("read"), *(group.alias(f"group{number}") for number, group in enumerate(groups))
        )

    def cells(self, parsed: Column, text: Column, forms: CellForms | None = None) -> Cells:
        """The columns of what `parsed` gave; `sound` only if every column is set."""
        cells = self._read.cells(parsed.getField("read"), text, forms=forms)
        is_set = [each.isNotNull() for each in cells.values.values()]
        names = [column.name for column in self._columns]
        sound = F.coalesce(reduce(and_, [cells.sound, has_fields(text, names), *is_set]), F.lit(False))
        if self._usual is None:
            return Cells(cells.values, sound, cells.doubt)
        is_usual = F.coalesce((parsed.getField("group0") != "") & F.is_valid_utf8(text), F.lit(False))
        values = {
            column.name: F.when(
                is_usual, parsed.getField(f"group{number}").try_cast(column.type.spark_ddl)
            ).otherwise(cells.values[column.name])
            for number, column in enumerate(self._columns)
        }
        return Cells(values, is_usual | sound, ~is_usual & cells.doubt)


def _usual(columns: tuple[TableColumn, ...]) -> str | None:
    """A pattern of keys whose values can be cut out; None where the key has columns of other types."""
    if any(column.type.name not in _USUAL for column in columns):
        return None
    fields = [f'"{column.name}"{_SPACE}:{_SPACE}{_USUAL[column.type.name]}' for column in columns]
    return rf"^{_SPACE}\{{{_SPACE}{f'{_SPACE},{_SPACE}'.join(fields)}{_SPACE}\}}{_SPACE}\z"


class JsonKeys:
    """Reads keys of one table in the forms `record`, `json` and `text`."""

    def __init__(self, form: KeyForm, table: TableSchema) -> None:
        self._table, self._form = table, form
        self._object, self._value = KeyObjects(table), JsonColumns(table.key_columns)

    def parsed(self, key: Column) -> Column | None:
        """The expensive part, to be evaluated once a record; None if there is none."""
        text = key.cast("string")
        match self._form:
            case "record":
                return self._object.parsed(text)
            case "json":
                return self._value.parsed(self._wrapped(text))
            case _:
                return None

    def cells(self, parsed: Column, key: Column) -> Cells:
        """The columns of a key; `sound` only if every column is set."""
        text = key.cast("string")
        match self._form:
            case "record":
                return self._object.cells(parsed, text)
            case "json":
                cells = self._value.cells(parsed, self._wrapped(text))
                is_key = ~text.rlike(r"^[ \t\r\n]*[\[{]")
                is_key &= ~(text.contains(",") | text.contains("}")) | is_whole(text)
            case _:
                cells, is_key = self._plain(text), F.length(text) > 0
        [value] = cells.values.values()
        sound = F.coalesce(cells.sound & is_key & value.isNotNull(), F.lit(False))
        return Cells(cells.values, sound, cells.doubt)

    def _wrapped(self, text: Column) -> Column:
        return F.concat(F.lit(f'{{"{self._table.primary_key[0]}":'), text, F.lit("}"))

    def _plain(self, text: Column) -> Cells:
        [column] = self._table.key_columns
        value = read_text(text, column)
        sound = F.is_valid_utf8(text) & value.isNotNull()
        doubt = ~is_plain(text, column) | doubtful(text)
        return Cells({column.name: value}, F.coalesce(sound, F.lit(False)), F.coalesce(doubt, F.lit(False)))
