"""The format `append` as Spark reads it: the value alone, and its bytes where the strict twin has to look at them."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.avro.registered import FRAME_BYTES
from schemas.formats.append import AppendFormat
from schemas.records import NO_DATA, Op
from schemas.table import TableSchema
from streaming.source.decoded import AWAITS
from streaming.source.formats.avro_columns import AvroColumns
from streaming.source.formats.protocol import Decoded, Decoder
from streaming.source.formats.upsert import JsonRows


class AppendDecoder(Decoder):
    """Decodes rows of one table."""

    def __init__(self, format_: AppendFormat, table: TableSchema) -> None:
        self._table = table
        self._row: JsonRows | AvroColumns = JsonRows(table)
        if format_.framed:
            self._row = AvroColumns(table.columns, format_.known, format_.project(table.columns))

    def read(self, key: Column, value: Column) -> Column:
        return self._row.parsed(value)

    def checked(self, read: Column, key: Column, value: Column) -> Column:
        cells = self._row.cells(read, value)
        row = [cells.values[name].alias(name) for name in self._table.column_names]
        return F.struct(
            F.struct(*row).alias("row"), cells.sound.alias("is_sound"), cells.doubt.alias("doubt")
        )

    def decoded(self, read: Column, key: Column, value: Column) -> Decoded:
        row, op = read.getField("row"), F.when(read.getField("is_sound"), F.lit(Op.INSERT.value))
        again = value
        if isinstance(self._row, AvroColumns):  # every lane gets it, and has no use for more than the id
            waits = self._row.waits(value)
            op = F.when(waits, F.lit(AWAITS)).otherwise(op)
            again = F.when(waits, F.substring(value, 1, FRAME_BYTES)).otherwise(value)
        op = F.when(value.isNull(), F.lit(NO_DATA)).otherwise(op)
        is_row = F.coalesce(op == Op.INSERT.value, F.lit(False))
        return Decoded(
            op=op,
            before=F.when(F.lit(False), row),
            after=F.when(is_row, row),
            value=F.when(~is_row | read.getField("doubt"), again),
        )
