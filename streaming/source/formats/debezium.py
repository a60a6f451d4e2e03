"""The format `debezium` in JSON as Spark reads it, with the key of each record compared.

The steps are those of `upsert`, behind one that takes the envelope out of a frame. A record without a frame, which is
the cheaper form, is read once.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.formats.debezium import DebeziumFormat
from schemas.formats.events.debezium_json import FRAMED
from schemas.json.debezium_values import UNAVAILABLE as UNAVAILABLE_TEXT
from schemas.json.debezium_values import UNAVAILABLE_BYTES, UNAVAILABLE_UUID
from schemas.table import TableSchema
from streaming.source.formats.debezium_columns import FRAME, DebeziumForms, unchanged
from streaming.source.formats.events import decoded_event, is_no_data, position_of
from streaming.source.formats.json_columns import Cells, JsonColumns, doubtful, is_whole_object
from streaming.source.formats.protocol import Decoded, Decoder

_SOURCE = "struct<connector string, snapshot string, sequence string, lsn bigint>"
_ENVELOPE = f"op string, ts_ms string, source {_SOURCE}, after struct<%s>"
_MARKS = (UNAVAILABLE_TEXT, UNAVAILABLE_BYTES, UNAVAILABLE_UUID)
_MARKED_NUMBERS = r"\[\s*95\s*,\s*95\s*,\s*100\s*,"
"""Of a record that may leave a value out."""
_INEXACT = r"\.[0-9]{15}|[0-9][eE]"
"""What a number may lose on its way out of a frame."""


class DebeziumDecoder(Decoder):
    """Of events of one table."""

    def __init__(self, format_: DebeziumFormat, table: TableSchema) -> None:
        keys = frozenset(table.primary_key)
        self._table, self._forms = table, DebeziumForms(format_.time, format_.decimal, keys)
        self._row, self._key = (JsonColumns(each, self._forms) for each in (table.columns, table.key_columns))

    def read(self, key: Column, value: Column) -> Column:
        texts = [_unframed(part.cast("string")) for part in (key, value)]
        row = self._row.parsed(texts[1], _ENVELOPE % self._row.fields)
        parsed = [row.alias("value"), self._key.parsed(texts[0]).alias("key")]
        parsed += [texts[0].alias("key_text"), texts[1].alias("text")]
        if self._forms.asks_frames:
            frames = [_frame(part.cast("string")) for part in (key, value)]
            parsed += [frames[0].alias("key_frame"), frames[1].alias("frame")]
        return F.struct(*parsed)

    def checked(self, read: Column, key: Column, value: Column) -> Column:
        # Each of these columns is evaluated once; what they amount to is left to the next step.
        envelope, text, whole = read.getField("value"), read.getField("text"), value.cast("string")
        keys = self._keys(read, key)
        cells, left_out = self._cells(read)
        source, after = envelope.getField("source"), envelope.getField("after")
        others = source.isNotNull() | after.isNotNull()
        place = (source.getField(name) for name in ("connector", "snapshot", "sequence", "lsn"))
        return F.struct(
            envelope.getField("op").alias("op"),
            after.isNotNull().alias("has_row"),
            is_no_data(envelope.getField("op"), envelope.getField("ts_ms"), others).alias("is_no_data"),
            F.struct(*(keys.values.get(name, cells.values[name]).alias(name) for name in cells.values)).alias(
                "row"
            ),
            (cells.sound & is_whole_object(text) & _is_whole_frame(whole)).alias("is_sound"),
            cells.agree(keys).alias("agree"),
            keys.sound.alias("has_key"),
            (cells.doubt | _may_be_inexact(whole)).alias("doubt"),
            keys.doubt.alias("key_doubt"),
            left_out.alias("unchanged"),
            position_of(*place).alias("position"),
        )

    def decoded(self, read: Column, key: Column, value: Column) -> Decoded:
        return decoded_event(read, value)

    def _cells(self, read: Column) -> tuple[Cells, Column]:
        """The values of the row, and the indices of those that are left out."""
        parsed, text = read.getField("value"), read.getField("text")
        after = parsed.getField("after")
        lacking = {
            index: (after.getField(column.name), column)
            for index, column in enumerate(self._table.columns)
            if column.name not in self._table.primary_key
        }
        forms = self._forms.with_frame(self._described(read, "frame", "after"))
        may_lack = reduce(or_, (text.contains(mark) for mark in _MARKS)) | text.rlike(_MARKED_NUMBERS)
        return self._row.cells(parsed, text, of=after, forms=forms), F.when(may_lack, unchanged(lacking))

    def _described(self, read: Column, frame: str, half: str | None) -> Column | None:
        if not self._forms.asks_frames:
            return None
        fields = read.getField(frame).getField("schema").getField("fields")
        if half is None:
            return fields
        return F.get(F.filter(fields, lambda each: each["field"] == half), F.lit(0))["fields"]

    def _keys(self, read: Column, key: Column) -> Cells:
        text, whole = read.getField("key_text"), key.cast("string")
        forms = self._forms.with_frame(self._described(read, "key_frame", None))
        cells = self._key.cells(read.getField("key"), text, forms=forms)
        is_set = [each.isNotNull() for each in cells.values.values()]
        fields = F.size(F.json_object_keys(text)) == len(self._table.primary_key)
        sound = reduce(and_, [cells.sound, fields, is_whole_object(text), _is_whole_frame(whole), *is_set])
        doubt = F.coalesce(cells.doubt | _may_be_inexact(whole), F.lit(False))
        return Cells(cells.values, F.coalesce(sound, F.lit(False)), doubt)


def _unframed(text: Column) -> Column:
    return F.when(text.startswith(FRAMED), F.get_json_object(text, "$.payload")).otherwise(text)


def _frame(text: Column) -> Column:
    return F.when(text.startswith(FRAMED), F.from_json(text, f"schema {FRAME}", {"mode": "PERMISSIVE"}))


def _is_whole_frame(text: Column) -> Column:
    return ~F.coalesce(text.startswith(FRAMED), F.lit(False)) | is_whole_object(text)


def _may_be_inexact(text: Column) -> Column:
    """Whether a frame may have held what is another thing outside of it."""
    inside = text.startswith(FRAMED) & (
        doubtful(text) | text.rlike(_INEXACT) | (F.regexp_count(text, F.lit('"payload"')) > 1)
    )
    return F.coalesce(inside, F.lit(False))
