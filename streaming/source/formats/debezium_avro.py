"""The format `debezium` in Avro by a schema registry as Spark reads it, in the steps of that in JSON.

An event whose value names a schema that is not known waits for it; so does one whose key does, if it is data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.avro.registered import FRAME_BYTES
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.events.debezium_avro import (
    ENVELOPE,
    LEFT_OUT,
    SOURCE,
    TRANSACTION,
    projects,
    source_columns,
)
from schemas.formats.events.rows import halves
from schemas.table import TableSchema
from streaming.source.decoded import AWAITS
from streaming.source.formats.avro_columns import AvroColumns, AvroKeys
from streaming.source.formats.events import (
    decoded_event,
    decoded_whole,
    is_deleted,
    is_no_data,
    position_of,
    transaction_of,
)
from streaming.source.formats.json_columns import Cells
from streaming.source.formats.protocol import Decoded, Decoder


class AvroEventDecoder(Decoder):
    """Decodes events of one table."""

    def __init__(self, format_: DebeziumFormat, table: TableSchema) -> None:
        self._table, self._whole = table, format_.is_whole
        self._transactions = transactions = format_.reads_transactions
        read = projects(table.columns, table.key_columns, whole=self._whole, transactions=transactions)
        parts = {
            "source": source_columns(transactions=transactions),
            **dict.fromkeys(halves(whole=self._whole), table.columns),
        }
        self._event = AvroColumns(ENVELOPE, format_.known, read["value"], parts)
        self._key = AvroKeys(table.key_columns, format_.known, read["key"])

    def read(self, key: Column, value: Column) -> Column:
        return F.struct(self._event.parsed(value).alias("value"), self._key.parsed(key).alias("key"))

    def checked(self, read: Column, key: Column, value: Column) -> Column:
        event = read.getField("value")
        said, source, row = (self._event.cells(event, value, part) for part in (None, "source", "after"))
        keys = self._key.cells(read.getField("key"), key)
        op, ts_ms = said.values["op"].cast("string"), said.values["ts_ms"]
        has_source, has_row = (self._event.has(event, part) for part in ("source", "after"))
        no_data = is_no_data(op, ts_ms, has_source | has_row)
        sound, doubt = said.sound & source.sound & row.sound, said.doubt | row.doubt
        more: list[Column] = []
        if self._transactions:
            more = [_transaction(source).alias("transaction")]
        if self._whole:
            before = self._event.cells(event, value, "before")
            sound, doubt = sound & before.sound, doubt | before.doubt
            more = [
                self._event.has(event, "before").alias("has_before"),
                before.agree(keys).alias("before_agrees"),
                source.values["snapshot"].cast("string").alias("snapshot"),
                *self._half(before, keys, "before", "before_unchanged"),
            ]
        return F.struct(
            op.alias("op"),
            has_row.alias("has_row"),
            no_data.alias("is_no_data"),
            sound.alias("is_sound"),
            row.agree(keys).alias("agree"),
            keys.sound.alias("has_key"),
            doubt.alias("doubt"),
            keys.doubt.alias("key_doubt"),
            *self._half(row, keys, "row", "unchanged"),
            _position(source).alias("position"),
            self._waits(key, value, sound & no_data).alias("waits"),
            *more,
        )

    def decoded(self, read: Column, key: Column, value: Column) -> Decoded:
        waits = read.getField("waits")
        if self._whole:
            found = decoded_whole(read, value)
        else:
            found = decoded_event(read, value, transactions=self._transactions)
        # Every lane gets it, and has no use for more than the id of a value; where the key's is the one that is not
        # known, what is wrong with the value comes first.
        named = F.when(self._event.waits(value), F.substring(value, 1, FRAME_BYTES)).otherwise(value)
        return replace(
            found,
            op=F.when(waits, F.lit(AWAITS)).otherwise(found.op),
            value=F.when(waits, F.coalesce(named, F.lit(b""))).otherwise(found.value),
        )

    def _half(self, half: Cells, keys: Cells, name: str, unchanged: str) -> tuple[Column, Column]:
        """A row, the key's columns from the key, and the indices of those that are left out, null for none."""
        left_out = self._left_out(half)
        cells = {
            name: F.when(~left_out[name], cell) if name in left_out else cell
            for name, cell in half.values.items()
        }
        row = F.struct(*(keys.values.get(name, cell).alias(name) for name, cell in cells.items()))
        return row.alias(name), self._indices(left_out).alias(unchanged)

    def _waits(self, key: Column, value: Column, is_no_data: Column) -> Column:
        is_known = (is_deleted(value) & F.lit(self._whole)) | (~is_deleted(value) & is_no_data)
        return self._event.waits(value) | (~is_known & self._key.waits(key))

    def _left_out(self, row: Cells) -> dict[str, Column]:
        """For each column that may be left out, whether it is."""
        may_be = [each for each in self._table.columns if each.type.name in LEFT_OUT and each.nullable]
        marks = {each.name: row.values[each.name] == F.lit(LEFT_OUT[each.type.name]) for each in may_be}
        return {name: F.coalesce(mark, F.lit(False)) for name, mark in marks.items()}

    def _indices(self, left_out: Mapping[str, Column]) -> Column:
        """The indices of the columns that are left out; null for none."""
        if not left_out:
            return F.lit(None).cast("array<int>")
        names = self._table.column_names
        found = F.array(*(F.when(mark, F.lit(names.index(name))) for name, mark in left_out.items()))
        return F.when(reduce(or_, left_out.values()), F.filter(found, lambda index: index.isNotNull()))


def _position(source: Cells) -> Column:
    *texts, lsn = (source.values[column.name] for column in SOURCE)
    connector, snapshot, sequence = (text.cast("string") for text in texts)
    return position_of(connector, snapshot, sequence, lsn)


def _transaction(source: Cells) -> Column:
    connector, snapshot = (source.values[name].cast("string") for name in ("connector", "snapshot"))
    return transaction_of(connector, snapshot, source.values[TRANSACTION.name])
