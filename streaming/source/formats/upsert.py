"""The format `upsert` in JSON as Spark reads it, with the key of each record compared.

Three steps: JSON to cells, cells to values with the verdict on them, and the verdict to the columns of the source. What
is in doubt is handed on with its value, an empty one for a record without (both delete the key's row).
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.formats.upsert import UpsertFormat
from schemas.records import Op
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
from streaming.source.formats.protocol import Decoded, Decoder


class UpsertDecoder(Decoder):
    """Of rows of one table."""

    def __init__(self, format_: UpsertFormat, table: TableSchema) -> None:
        self._table, self._form = table, format_.key
        self._row, self._key = JsonColumns(table.columns), JsonColumns(table.key_columns)

    def read(self, key: Column, value: Column) -> Column:
        parsed = [self._row.parsed(value.cast("string")).alias("value")]
        if self._form != "text":
            parsed.append(self._key.parsed(self._key_object(key)).alias("key"))
        return F.struct(*parsed)

    def checked(self, read: Column, key: Column, value: Column) -> Column:
        text, deleted = value.cast("string"), F.coalesce(F.length(value) == 0, F.lit(True))
        cells, keys = self._row.cells(read.getField("value"), text), self._keys(read, key)
        sound = F.coalesce(cells.sound & is_whole_object(text) & self._agree(cells, keys), F.lit(False))
        op = F.when(keys.sound, F.when(deleted, F.lit(Op.DELETE.value)).when(sound, F.lit(Op.INSERT.value)))
        row = [
            keys.values.get(name, F.when(~deleted, cells.values[name])).alias(name)
            for name in self._table.column_names
        ]
        doubt = keys.doubt | (~deleted & cells.doubt)
        return F.struct(op.alias("op"), F.struct(*row).alias("row"), doubt.alias("doubt"))

    def decoded(self, read: Column, key: Column, value: Column) -> Decoded:
        op, row = read.getField("op"), read.getField("row")
        doubt = op.isNull() | read.getField("doubt")
        return Decoded(
            op=op,
            before=F.when(op == Op.DELETE.value, row),
            after=F.when(op == Op.INSERT.value, row),
            value=F.when(doubt, F.coalesce(value, F.lit(b""))),
        )

    def _agree(self, cells: Cells, keys: Cells) -> Column:
        pairs = ((cells.values[name], keys.values[name]) for name in self._table.primary_key)
        return reduce(and_, (F.coalesce(found == key, F.lit(True)) for found, key in pairs))

    def _key_object(self, key: Column) -> Column:
        text = key.cast("string")
        if self._form == "record":
            return text
        return F.concat(F.lit(f'{{"{self._table.primary_key[0]}":'), text, F.lit("}"))

    def _keys(self, read: Column, key: Column) -> Cells:
        text = key.cast("string")
        if self._form == "text":
            cells = self._plain(text)
        else:
            cells = self._key.cells(read.getField("key"), self._key_object(key))
        is_set = [each.isNotNull() for each in cells.values.values()]
        sound = reduce(and_, [cells.sound, self._is_key(text), *is_set])
        return Cells(cells.values, F.coalesce(sound, F.lit(False)), cells.doubt)

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
