"""The format `upsert` as Spark reads it, with the key of each record compared.

Three steps: bytes to cells, cells to values with the verdict on them, and the verdict to the columns of the source.
What is in doubt is handed on with its value, an empty one for a record without (both delete the key's row).
"""

from __future__ import annotations

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
from streaming.source.formats.json_columns import Cells, JsonColumns
from streaming.source.formats.json_keys import JsonKeys
from streaming.source.formats.protocol import Decoded, Decoder


class JsonRows:
    """Reads values that are JSON objects."""

    def __init__(self, table: TableSchema) -> None:
        self._row = JsonColumns(table.columns)

    def parsed(self, value: Column) -> Column:
        """The expensive part, to be evaluated once a record. `value` may be any bytes, or null."""
        return self._row.parsed(value.cast("string"))

    def cells(self, parsed: Column, value: Column) -> Cells:
        """The columns of what `parsed` gave."""
        return self._row.cells(parsed, value.cast("string"))


class UpsertDecoder(Decoder):
    """Decodes rows of one table."""

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
        # Each of these columns is evaluated once; what they amount to is left to the next step.
        cells, keys = self._row.cells(read.getField("value"), value), self._keys(read, key)
        # A record without a value has no cells, so its row is the key alone.
        row = [keys.values.get(name, cells.values[name]).alias(name) for name in self._table.column_names]
        return F.struct(
            F.struct(*row).alias("row"),
            (cells.sound & cells.agree(keys)).alias("is_sound"),
            keys.sound.alias("has_key"),
            cells.doubt.alias("doubt"),
            keys.doubt.alias("key_doubt"),
        )

    def decoded(self, read: Column, key: Column, value: Column) -> Decoded:
        row, deleted = read.getField("row"), F.coalesce(F.length(value) == 0, F.lit(True))
        op = F.when(
            read.getField("has_key"),
            F.when(deleted, F.lit(Op.DELETE.value)).when(read.getField("is_sound"), F.lit(Op.INSERT.value)),
        )
        if self._framed:
            op = F.when(self._waits(key, value), F.lit(AWAITS)).otherwise(op)
        unsure = read.getField("key_doubt") | (~deleted & read.getField("doubt"))
        doubt = op.isNull() | (op == AWAITS) | unsure
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
