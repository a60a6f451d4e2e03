"""The format `upsert` as Spark reads it, with the key of each record compared.

Three steps: bytes to cells, cells to values with the verdict on them, and the verdict to the columns of the source.
What is in doubt is handed on with its value, an empty one for a record without (both delete the key's row).
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.avro.registered import FRAME_BYTES
from schemas.formats.upsert import UpsertFormat
from schemas.formats.upsert_avro import projects
from schemas.records import Op
from schemas.table import TableSchema
from streaming.source.decoded import AWAITS
from streaming.source.formats.avro_columns import AvroColumns, AvroKeys
from streaming.source.formats.json_columns import Cells, JsonColumns, is_whole_object
from streaming.source.formats.json_keys import JsonKeys
from streaming.source.formats.protocol import Decoded, Decoder


class JsonRows:
    """Values that are JSON objects."""

    def __init__(self, table: TableSchema) -> None:
        self._row = JsonColumns(table.columns)

    def parsed(self, value: Column) -> Column:
        """The costly part. `value` is binary, may be anything, or null."""
        return self._row.parsed(value.cast("string"))

    def cells(self, parsed: Column, value: Column) -> Cells:
        """What becomes of it."""
        text = value.cast("string")
        cells = self._row.cells(parsed, text)
        return replace(cells, sound=F.coalesce(cells.sound & is_whole_object(text), F.lit(False)))


class UpsertDecoder(Decoder):
    """Of rows of one table."""

    def __init__(self, format_: UpsertFormat, table: TableSchema) -> None:
        self._table, self._framed, self._is_text = table, format_.framed, format_.key == "text"
        self._row: JsonRows | AvroColumns = JsonRows(table)
        self._key: JsonKeys | AvroKeys = JsonKeys(format_.key, table)
        if self._framed:
            read = projects(format_.key, table.columns, table.key_columns)
            self._row = AvroColumns(table.columns, format_.known, read["value"])
            if "key" in read:
                self._key = AvroKeys(table.key_columns, format_.known, read["key"])

    def read(self, key: Column, value: Column) -> Column:
        halves = {"value": self._row.parsed(value), "key": self._key.parsed(key)}
        return F.struct(*(column.alias(name) for name, column in halves.items() if column is not None))

    def checked(self, read: Column, key: Column, value: Column) -> Column:
        deleted = F.coalesce(F.length(value) == 0, F.lit(True))
        cells, keys = self._row.cells(read.getField("value"), value), self._keys(read, key)
        sound = cells.sound & cells.agree(keys)
        op = F.when(keys.sound, F.when(deleted, F.lit(Op.DELETE.value)).when(sound, F.lit(Op.INSERT.value)))
        if self._framed:
            op = F.when(self._waits(key, value), F.lit(AWAITS)).otherwise(op)
        row = [
            keys.values.get(name, F.when(~deleted, cells.values[name])).alias(name)
            for name in self._table.column_names
        ]
        doubt = keys.doubt | (~deleted & cells.doubt)
        return F.struct(op.alias("op"), F.struct(*row).alias("row"), doubt.alias("doubt"))

    def decoded(self, read: Column, key: Column, value: Column) -> Decoded:
        op, row = read.getField("op"), read.getField("row")
        doubt = op.isNull() | (op == AWAITS) | read.getField("doubt")
        again = F.coalesce(value, F.lit(b""))
        if self._framed:  # every lane gets it, and has no use for more than the id
            again = F.when(op == AWAITS, F.substring(again, 1, FRAME_BYTES)).otherwise(again)
        return Decoded(
            op=op,
            before=F.when(op == Op.DELETE.value, row),
            after=F.when(op == Op.INSERT.value, row),
            value=F.when(doubt, again),
        )

    def _keys(self, read: Column, key: Column) -> Cells:
        # The form `text` has no costly part, and its reader asks for none.
        return self._key.cells(key if self._is_text else read.getField("key"), key)

    def _waits(self, key: Column, value: Column) -> Column:
        halves = [
            half.waits(data)
            for half, data in ((self._key, key), (self._row, value))
            if isinstance(half, AvroColumns)
        ]
        return reduce(or_, halves)
