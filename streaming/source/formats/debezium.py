"""The format `debezium` in JSON as Spark reads it, with the key of each record compared.

The steps are those of `upsert`. A value is read once, whether it comes in a frame or not; the envelope is what has been
found in the frame, or without one. A key is taken out of its frame first.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.formats.debezium import DebeziumFormat
from schemas.formats.events.frames import FRAMED
from schemas.formats.events.rows import halves
from schemas.table import TableSchema
from streaming.source.formats.debezium_columns import FRAME, DebeziumForms, unchanged
from streaming.source.formats.events import (
    decoded_event,
    decoded_whole,
    is_no_data,
    position_of,
    transaction_of,
)
from streaming.source.formats.json_columns import (
    Cells,
    JsonColumns,
    doubtful,
    frame_of,
    has_escaped_name,
    is_whole,
    row_of,
)
from streaming.source.formats.json_keys import KeyObjects
from streaming.source.formats.protocol import Decoded, Decoder

_SOURCE = "connector:string,snapshot:string,sequence:string,lsn:bigint"
_TRANSACTION = "txId:bigint"
_INEXACT = r"\.[0-9]{15}|[0-9][eE]"
"""A number that may lose digits when it is taken out of a key's frame."""


class DebeziumDecoder(Decoder):
    """Decodes events of one table."""

    def __init__(self, format_: DebeziumFormat, table: TableSchema) -> None:
        keys = frozenset(table.primary_key)
        self._whole, self._transactions = format_.is_whole, format_.reads_transactions
        self._halves = halves(whole=self._whole)
        self._table, self._forms = table, DebeziumForms(format_.time, format_.decimal, keys)
        self._row, self._key = JsonColumns(table.columns, self._forms), KeyObjects(table, self._forms)

    def read(self, key: Column, value: Column) -> Column:
        key_text = _unframed(key.cast("string"))
        source = f"{_SOURCE},{_TRANSACTION}" if self._transactions else _SOURCE
        said = f"op:string,ts_ms:string,source:struct<{source}>"
        envelope = ",".join([said, *(f"{half}:struct<{self._row.fields}>" for half in self._halves)])
        frame = f"payload:struct<{envelope}>"
        if self._forms.asks_frames:
            frame += f",schema:{FRAME}"
        text = value.cast("string")
        row = self._row.parsed(text, envelope, frame=(_is_framed(text), frame))
        parsed = [row.alias("value"), self._key.parsed(key_text).alias("key"), key_text.alias("key_text")]
        if self._forms.asks_frames:
            parsed.append(_key_frame(key.cast("string")).alias("key_schema"))
        return F.struct(*parsed)

    def checked(self, read: Column, key: Column, value: Column) -> Column:
        # Each of these columns is evaluated once; what they amount to is left to the next step.
        text = value.cast("string")
        parsed = read.getField("value")
        envelope = F.when(_is_framed(text), frame_of(parsed).getField("payload")).otherwise(row_of(parsed))
        keys, row = self._keys(read, key), self._cells(read, envelope, text, "after")
        source, after, op = (envelope.getField(name) for name in ("source", "after", "op"))
        others = source.isNotNull() | after.isNotNull()
        place = [source.getField(name) for name in ("connector", "snapshot", "sequence", "lsn")]
        sound, doubt, more = row.sound, row.doubt | _may_have_two_payloads(text), list[Column]()
        if self._transactions:
            connector, snapshot, *_ = place
            more = [transaction_of(connector, snapshot, source.getField("txId")).alias("transaction")]
        if self._whole:
            before = self._cells(read, envelope, text, "before")
            sound, doubt = sound & before.sound, doubt | before.doubt
            more = [
                envelope.getField("before").isNotNull().alias("has_before"),
                before.agree(keys).alias("before_agrees"),
                source.getField("snapshot").alias("snapshot"),
                _whole_row(before, keys).alias("before"),
                self._left_out(envelope.getField("before")).alias("before_unchanged"),
            ]
        return F.struct(
            op.alias("op"),
            after.isNotNull().alias("has_row"),
            is_no_data(op, envelope.getField("ts_ms"), others).alias("is_no_data"),
            _whole_row(row, keys).alias("row"),
            sound.alias("is_sound"),
            row.agree(keys).alias("agree"),
            keys.sound.alias("has_key"),
            doubt.alias("doubt"),
            keys.doubt.alias("key_doubt"),
            self._left_out(after).alias("unchanged"),
            position_of(*place).alias("position"),
            *more,
        )

    def decoded(self, read: Column, key: Column, value: Column) -> Decoded:
        if self._whole:
            return decoded_whole(read, value)
        return decoded_event(read, value, transactions=self._transactions)

    def _cells(self, read: Column, envelope: Column, text: Column, half: str) -> Cells:
        """The columns of a row. A frame's schema of the row after holds for the row before, too."""
        parsed, described = read.getField("value"), None
        if self._forms.asks_frames:
            fields = frame_of(parsed).getField("schema").getField("fields")
            rows = F.filter(fields, lambda each: each["field"] == "after")
            described = F.when(_is_framed(text), F.get(rows, F.lit(0))["fields"])
        forms = self._forms.with_frame(described)
        return self._row.cells(parsed, text, of=envelope.getField(half), forms=forms)

    def _left_out(self, half: Column) -> Column:
        """The indices of the values that are left out of a row, null for none."""
        return unchanged(
            {
                index: (half.getField(column.name), column)
                for index, column in enumerate(self._table.columns)
                if column.name not in self._table.primary_key
            }
        )

    def _keys(self, read: Column, key: Column) -> Cells:
        text, described = key.cast("string"), None
        if self._forms.asks_frames:
            described = read.getField("key_schema").getField("fields")
        cells = self._key.cells(
            read.getField("key"), read.getField("key_text"), self._forms.with_frame(described)
        )
        is_framed = _is_framed(text)
        sound = cells.sound & (~is_framed | F.coalesce(is_whole(text), F.lit(False)))
        may_be_inexact = is_framed & (doubtful(text) | text.rlike(_INEXACT))
        doubt = cells.doubt | may_be_inexact | _may_have_two_payloads(text)
        return Cells(cells.values, sound, F.coalesce(doubt, F.lit(False)))


def _is_framed(text: Column) -> Column:
    """Never null."""
    return F.coalesce(text.startswith(FRAMED), F.lit(False))


def _whole_row(row: Cells, keys: Cells) -> Column:
    """A row with the key's columns taken from the key."""
    return F.struct(*(keys.values.get(name, cell).alias(name) for name, cell in row.values.items()))


def _unframed(text: Column) -> Column:
    return F.when(_is_framed(text), F.get_json_object(text, "$.payload")).otherwise(text)


def _key_frame(text: Column) -> Column:
    schema = F.from_json(text, f"schema {FRAME}", {"mode": "PERMISSIVE"}).getField("schema")
    return F.when(_is_framed(text), schema)


def _may_have_two_payloads(text: Column) -> Column:
    """Whether a frame may have two, which the strict reader refuses."""
    again = (F.regexp_count(text, F.lit(r'"payload"\s*:')) > 1) | has_escaped_name(text)
    return F.coalesce(_is_framed(text) & again, F.lit(False))
