"""The format `change` in Avro as Spark reads it.

Spark's reader is built for bytes of a known writer. Where it gives up (a row without an op), and where it reads
something that it would not have written so itself, the strict twin looks at the value. It gives up on most broken
records, but it lets these pass, and reads something else than what is there:

    bytes behind the end                     ignored
    int or date of more than 32 bits         the upper bits are dropped
    decimal(p <= 18) of more than 64 bits    likewise
    a boolean that is neither 0 nor 1        FALSE

(Other bytes than Spark's for the same row, such as a decimal with a needless sign byte, are legal.) Spark writes texts
and times as it reads them, whatever they are: `streaming.lane.faults` looks for them by column, in every format.
"""

from __future__ import annotations

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from schemas.avro.binary import OPS, change_schema
from schemas.formats.change import ChangeFormat
from schemas.table import TableSchema
from streaming.source.formats.protocol import Decoded, Decoder


class ChangeDecoder(Decoder):
    """Decodes changes of one table."""

    def __init__(self, _: ChangeFormat, table: TableSchema) -> None:
        self._avro = json.dumps(change_schema(table.columns))

    def read(self, key: Column, value: Column) -> Column:
        return from_avro(value, self._avro, {"mode": "PERMISSIVE"})

    def decoded(self, read: Column, key: Column, value: Column) -> Decoded:
        op = read.getField("op")
        rewritten = to_avro(read, self._avro)
        return Decoded(
            op=F.array_position(F.array(*map(F.lit, OPS)), op) - 1,
            before=read.getField("before"),
            after=read.getField("after"),
            # A row without an op can't be written at all.
            value=F.when(op.isNull(), value).when(rewritten != value, value),
        )
