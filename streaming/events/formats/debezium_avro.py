"""Test events of the format `debezium` in Avro by registered schemas, as Connect's converter writes them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columnar import NULL, PRESENT, encode_records
from schemas.avro.output_schemas import Schema, namespace_of, row_record
from schemas.avro.registered import SchemaIds, frame
from schemas.formats.outputs.avro_records import FramedKeys
from schemas.formats.outputs.envelope import LETTERS, OPS, own_version
from schemas.formats.protocol import Framed, Half
from schemas.records import Op
from schemas.table import Column, TableSchema
from schemas.types import ColumnType, TypeName
from streaming.events.formats.connector import CONNECTOR, TRANSACTION, ConnectorEvents, places
from streaming.events.formats.protocol import Columns, Ops, Said

_TEXT, _NUMBER = ColumnType(TypeName.STRING), ColumnType(TypeName.BIGINT)
_ORIGIN = tuple(Column(name, _TEXT, nullable=False) for name in ("version", "connector", "name"))
_MOMENT = (
    Column("ts_ms", _NUMBER, nullable=False),
    *(Column(name, _TEXT, nullable=False) for name in ("snapshot", "db")),
)
_SEQUENCE = (Column("sequence", _TEXT, nullable=True),)
_RELATION = tuple(Column(name, _TEXT, nullable=False) for name in ("schema", "table"))
_PLACE = tuple(Column(name, _NUMBER, nullable=True) for name in ("txId", "lsn"))
_SOURCE = (*_ORIGIN, *_MOMENT, *_SEQUENCE, *_RELATION, *_PLACE)
_END = Column("op", _TEXT, nullable=False), Column("ts_ms", _NUMBER, nullable=True)
_TAIL = re.compile(rb"\x02([cud])\x02[\x80-\xff]*[\x00-\x7f]\Z", re.DOTALL)
"""The op and the time, with which an event ends."""


class ConnectorSchemas:
    """The schemas of keys and events, as the connector's converter registers them."""

    framed = Framed(key=True, value=True)

    def schemas(
        self, columns: Sequence[Column], key_columns: Sequence[Column], topic: str
    ) -> dict[Half, dict[str, object]]:
        """Of a topic."""
        return {"key": row_record("Key", key_columns, topic), "value": _envelope(columns, topic)}


class AvroDebeziumEvents(ConnectorEvents):
    """Events `c`, `u` and `d`, each `d` with its tombstone."""

    def __init__(self, table: TableSchema, ids: SchemaIds, clock: Callable[[], float] = time.time) -> None:
        self._table, self._clock = table, clock
        self._frame, self._keys = frame(ids.value), FramedKeys(table.key_columns, ids.key)
        self._begin = _constant(_ORIGIN, own_version(), *CONNECTOR)
        self._relation = _constant(_RELATION, "public", table.name)

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        return self._keys(arrays)

    def said(self, value: bytes | None) -> Said | None:
        if value is None:
            return None
        head, begin, rest = value.rpartition(self._begin)
        letter = _TAIL.search(rest)
        if not begin or not head.startswith(self._frame) or letter is None:
            raise ValueError("no event")
        return Said(OPS[letter[1].decode()], head)

    def _upserts(self, rows: Columns) -> pa.BinaryArray:
        return encode_records(len(rows[0]), self._frame + NULL + PRESENT, (self._table.columns, rows))

    def _deletes(self, rows: Columns) -> pa.BinaryArray:
        count, known = len(rows[0]), set(self._table.primary_key)
        before = [
            array if column.name in known else pa.nulls(count, column.type.arrow)
            for column, array in zip(self._table.columns, rows, strict=True)
        ]
        return encode_records(count, self._frame + PRESENT, (self._table.columns, before), NULL)

    def _events(self, values: pa.BinaryArray, ops: Ops, first: int) -> pa.BinaryArray:
        now, count = int(self._clock() * 1000), len(ops)
        numbers, lsns = places(first, count)
        texts = pa.array(lsns).cast(pa.string())
        sequence = pc.binary_join_element_wise('["', texts, '","', texts, '"]', "")
        ends = pa.array([NULL + _constant(_END, LETTERS[op], now) for op in Op], pa.binary())
        return encode_records(
            count,
            values,
            self._begin + _constant(_MOMENT, now, "false", "test"),
            (_SEQUENCE, [sequence]),
            self._relation,
            (_PLACE, [pa.array(TRANSACTION + numbers), pa.array(lsns)]),
            ends.take(pa.array(ops)),
        )


def _constant(columns: Sequence[Column], *values: str | int) -> bytes:
    """What all records have of these columns."""
    arrays = [pa.array([value], column.type.arrow) for column, value in zip(columns, values, strict=True)]
    found: bytes = encode_records(1, (columns, arrays))[0].as_py()
    return found


def _envelope(columns: Sequence[Column], topic: str) -> Schema:
    block = [Column("id", _TEXT, nullable=False)]
    block += [Column(name, _NUMBER, nullable=False) for name in ("total_order", "data_collection_order")]
    fields: list[dict[str, Any]] = [
        {"name": "before", "type": ["null", row_record("Value", columns, None)], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": row_record("Source", _SOURCE, None)},
        {"name": "transaction", "type": ["null", row_record("block", block, None)], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    return {"type": "record", "name": "Envelope", "namespace": namespace_of(topic), "fields": fields}
