"""Keys in JSON or as plain text, as Spark reads them (docs/formats.md#keys)."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.formats.upsert import KeyForm
from schemas.table import TableSchema
from streaming.source.formats.json_columns import (
    Cells,
    JsonColumns,
    doubtful,
    is_plain,
    is_whole,
    is_whole_object,
    read_text,
)


class JsonKeys:
    """Keys of one table in the forms `record`, `json` and `text`."""

    def __init__(self, form: KeyForm, table: TableSchema) -> None:
        self._table, self._form = table, form
        self._key = JsonColumns(table.key_columns)

    def parsed(self, key: Column) -> Column | None:
        """The costly part; None for none."""
        return None if self._form == "text" else self._key.parsed(self._object(key))

    def cells(self, parsed: Column, key: Column) -> Cells:
        """What becomes of it; `sound` if every column is set."""
        text = key.cast("string")
        cells = self._plain(text) if self._form == "text" else self._key.cells(parsed, self._object(key))
        is_set = [each.isNotNull() for each in cells.values.values()]
        sound = reduce(and_, [cells.sound, self._is_key(text), *is_set])
        return Cells(cells.values, F.coalesce(sound, F.lit(False)), cells.doubt)

    def _object(self, key: Column) -> Column:
        text = key.cast("string")
        if self._form == "record":
            return text
        return F.concat(F.lit(f'{{"{self._table.primary_key[0]}":'), text, F.lit("}"))

    def _is_key(self, text: Column) -> Column:
        """Whether a text is a key of this form and nothing beside it. May be null, for no."""
        match self._form:
            case "record":
                fields = F.size(F.json_object_keys(text)) == len(self._table.primary_key)
                return fields & is_whole_object(text)
            case "json":
                scalar = ~text.rlike(r"^[ \t\r\n]*[\[{]")
                return scalar & (~(text.contains(",") | text.contains("}")) | is_whole(text))
            case _:
                return F.length(text) > 0

    def _plain(self, text: Column) -> Cells:
        [column] = self._table.key_columns
        value = read_text(text, column)
        sound = F.is_valid_utf8(text) & value.isNotNull()
        doubt = ~is_plain(text, column) | doubtful(text)
        return Cells({column.name: value}, F.coalesce(sound, F.lit(False)), F.coalesce(doubt, F.lit(False)))
