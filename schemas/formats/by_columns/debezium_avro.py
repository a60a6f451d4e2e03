"""Debezium's events in Avro by a schema registry, taken apart by whole columns: see `events.debezium_avro`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columns.by_id import RegisteredColumns
from schemas.avro.registered import Schemas
from schemas.formats.by_columns.debezium import Events
from schemas.formats.by_columns.upserts import struct_of
from schemas.formats.events.debezium_avro import left_out, projects, source_columns
from schemas.formats.events.rows import halves
from schemas.json.parsing.placeholder import Placeholder
from schemas.json.values import SubMicros
from schemas.records import OddRecordError, refuse
from schemas.table import Column
from schemas.types import ColumnType


class RegisteredEvents:
    """See `schemas.formats.by_columns.debezium.EventReader`. What values mean is in the schemas."""

    def __init__(
        self,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        schemas: Schemas,
        unavailable: Placeholder,
        *,
        whole: bool,
        transactions: bool,
        sub_micros: SubMicros = "refuse",
    ) -> None:
        self._unavailable = {
            kind: pa.array(sorted(forms), ColumnType(kind).arrow)
            for kind, forms in left_out(unavailable).items()
        }
        read = projects(columns, key_columns, whole=whole, transactions=transactions, sub_micros=sub_micros)
        self._halves = halves(whole=whole)
        parts = {name: struct_of(columns) for name in self._halves}
        source = struct_of(source_columns(transactions=transactions))
        event = pa.struct({"op": pa.binary(), "source": source, **parts})
        self._keys = RegisteredColumns(schemas, read["key"], struct_of(key_columns))
        self._events = RegisteredColumns(schemas, read["value"], event)

    def read(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Events:
        """Raises: OddRecordError."""
        own = self._keys.read(keys).flatten()
        refuse(any(key.null_count for key in own))
        found = self._events.read(values)
        try:
            texts = {"op": found.field("op").cast(pa.string()), "source": _as_texts(found.field("source"))}
        except pa.ArrowInvalid:  # not UTF-8
            raise OddRecordError from None
        rows = {name: found.field(name) for name in self._halves}
        return Events(own, pa.StructArray.from_arrays(list((texts | rows).values()), list(texts | rows)))

    def placeholders(self, column: Column, found: pa.Array) -> pa.BooleanArray | None:
        """Where the connector left the value out."""
        forms = self._unavailable.get(column.type.name)
        return None if forms is None else pc.is_in(found, forms)

    def values(self, column: Column, found: pa.Array) -> pa.Array:
        """They are read already."""
        return found


def _as_texts(source: pa.StructArray) -> pa.StructArray:
    fields = [each.cast(pa.string()) if pa.types.is_binary(each.type) else each for each in source.flatten()]
    return pa.StructArray.from_arrays(fields, names=[field.name for field in source.type])
