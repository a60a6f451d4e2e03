"""Test events of the format `debezium`, as the connector for PostgreSQL writes them: in JSON, or in Avro by a registry.

The row before is as under its default replica identity: null, and the key columns in front of a delete. Each change is
a transaction of its own, and its position in the database's log follows from its number in the topic; so positions rise
in each partition, in a later run as well.
"""

from __future__ import annotations

import re
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrays import Indices, encoded_by_op, take
from schemas.avro.columnar import NULL, PRESENT, encode_records
from schemas.avro.output_schemas import namespace_of, row_record
from schemas.avro.registered import SchemaIds, frame
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.outputs.events import LETTERS, OPS, own_version
from schemas.formats.outputs.records import AvroRowEncoder
from schemas.formats.protocol import Half
from schemas.json.columnar import cells, text
from schemas.json.debezium_values import MICROS, UNITS
from schemas.json.frames import Schema, connect_field, connect_row, connect_struct, framed
from schemas.json.pieces import Piece, join
from schemas.records import Op
from schemas.table import Column, TableSchema
from schemas.types import ColumnType, TypeName
from streaming.events.encoders import Columns, EventEncoder, EventRecords, Ops, RecordContent

CONNECTOR = "postgresql", "test"
"""The connector in the source of an event, and its name."""
TRANSACTION = 700
"""The transaction of the topic's first change."""
_LSN_ZERO, _LSN_STEP = 24_000_000, 56

Numbers = npt.NDArray[np.int64]


class ConnectorEvents(EventEncoder):
    """Events `c`, `u` and `d`, each `d` with its tombstone."""

    def values(self, ops: Ops, before: Columns, after: Columns) -> pa.BinaryArray:
        """Encode events up to their source."""

        def of_op(op: Op, rows: Indices | None) -> pa.BinaryArray:
            return (self._deletes if op is Op.DELETE else self._upserts)(take(after, rows))

        return encoded_by_op(pa.array(ops), of_op)

    def records(self, keys: pa.BinaryArray, values: pa.BinaryArray, ops: Ops, first: int) -> EventRecords:
        events = self._events(values, ops, first)
        gone = ops == Op.DELETE
        if not gone.any():
            return EventRecords(keys, events)
        rows = np.repeat(np.arange(len(ops)), 1 + gone)
        tombstones = np.zeros(len(rows), np.bool_)
        tombstones[1:] = rows[1:] == rows[:-1]
        return EventRecords(keys.take(pa.array(rows)), events.take(pa.array(rows, mask=tombstones)))

    @abstractmethod
    def _upserts(self, rows: Columns) -> pa.BinaryArray:
        """The values of changes with a row after."""

    @abstractmethod
    def _deletes(self, rows: Columns) -> pa.BinaryArray:
        """The values of deletes, from their key columns."""

    @abstractmethod
    def _events(self, values: pa.BinaryArray, ops: Ops, first: int) -> pa.BinaryArray:
        """The values with the rest of their events."""


def positions(first: int, count: int) -> tuple[Numbers, Numbers]:
    """The numbers of changes in their topic, and their positions in the database's log."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    return numbers, _LSN_ZERO + numbers * _LSN_STEP


_TEXT, _NUMBER = ColumnType(TypeName.STRING), ColumnType(TypeName.BIGINT)


def _texts(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, _TEXT, nullable=False) for name in names)


_ORIGIN_COLUMNS = _texts("version", "connector", "name")
_MOMENT_COLUMNS = (Column("ts_ms", _NUMBER, nullable=False), *_texts("snapshot", "db"))
_SEQUENCE_COLUMNS = (Column("sequence", _TEXT, nullable=True),)
_RELATION_COLUMNS = _texts("schema", "table")
_POSITION_COLUMNS = tuple(Column(name, _NUMBER, nullable=True) for name in ("txId", "lsn"))
_SOURCE_COLUMNS = (
    *_ORIGIN_COLUMNS,
    *_MOMENT_COLUMNS,
    *_SEQUENCE_COLUMNS,
    *_RELATION_COLUMNS,
    *_POSITION_COLUMNS,
)
_BLOCK_COLUMNS = (
    *_texts("id"),
    *(Column(name, _NUMBER, nullable=False) for name in ("total_order", "data_collection_order")),
)
_END_COLUMNS = *_texts("op"), Column("ts_ms", _NUMBER, nullable=True)

_SOURCE = b',"source":{'
_OP = re.compile(rb'"op":"([cud])"')


class JsonDebeziumEvents(ConnectorEvents):
    """Events in JSON; with their schemas if `time` is `adaptive`."""

    def __init__(self, table: TableSchema, form: DebeziumFormat) -> None:
        self._table, self._form = table, form
        frames = form.time == "adaptive"
        nothing = b"", b""
        self._key_frame = framed(connect_row("Key", table.key_columns)) if frames else nothing
        self._frame = framed(_json_envelope(table.columns)) if frames else nothing

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        begin, end = self._key_frame
        return _row_by_row([begin, *self._object(self._table.key_columns, arrays), end])

    def read_back(self, value: bytes | None) -> RecordContent | None:
        if value is None:
            return None
        head, _, rest = value.rpartition(_SOURCE)
        letter = _OP.search(rest)
        if not head or letter is None:
            raise ValueError("no event")
        return RecordContent(OPS[letter[1].decode()], head)

    def _upserts(self, rows: Columns) -> pa.BinaryArray:
        after = self._object(self._table.columns, rows)
        return _row_by_row([self._frame[0], b'{"before":null,"after":', *after])

    def _deletes(self, rows: Columns) -> pa.BinaryArray:
        known = set(self._table.primary_key)
        columns = [
            (column, array if column.name in known else None)
            for column, array in zip(self._table.columns, rows, strict=True)
        ]
        before = self._object(*zip(*columns, strict=True))
        return _row_by_row([self._frame[0], b'{"before":', *before, b',"after":null'])

    def _object(self, columns: Sequence[Column], arrays: Sequence[pa.Array | None]) -> list[Piece]:
        """Pieces of an object per row; null for a column without an array."""
        pieces: list[Piece] = []
        for column, array in zip(columns, arrays, strict=True):
            pieces.append(b"%s%s:" % (b"," if pieces else b"{", text(column.name).encode()))
            pieces += [b"null"] if array is None else self._cells(array, column.type)
        return [*pieces, b"}"]

    def _cells(self, array: pa.Array, kind: ColumnType) -> list[Piece]:
        as_text = {
            TypeName.DECIMAL: self._form.decimal == "string",
            TypeName.DATE: self._form.time == "isostring",
            TypeName.TIMESTAMP: self._form.time == "isostring",
        }
        unit = UNITS.get(self._form.time or "", MICROS)
        if kind.name is TypeName.TIMESTAMP and unit != MICROS:
            micros = array.view(pa.int64())
            numbers = (
                pc.divide(micros, MICROS // unit) if unit < MICROS else pc.multiply(micros, unit // MICROS)
            )
            return cells(numbers, ColumnType(TypeName.BIGINT), "json")
        return cells(array, kind, "json" if as_text.get(kind.name, True) else "json-schema")

    def _events(self, values: pa.BinaryArray, ops: Ops, first: int) -> pa.BinaryArray:
        now = time.time_ns() // 1_000_000
        numbers, lsns = positions(first, len(ops))
        lsn, transaction = (
            pa.array(each).cast(pa.string()).cast(pa.binary()) for each in (lsns, TRANSACTION + numbers)
        )
        letters = pa.array([LETTERS[op].encode() for op in Op], pa.binary()).take(pa.array(ops))
        pieces = [
            *(values, _SOURCE),
            f'"version":"{own_version()}","connector":"{CONNECTOR[0]}","name":"{CONNECTOR[1]}","ts_ms":{now},'.encode(),
            rb'"snapshot":"false","db":"test","sequence":"[\"',
            *(lsn, rb"\",\"", lsn, rb'\"]","schema":"public","table":'),
            text(self._table.name).encode(),
            *(b',"txId":', transaction, b',"lsn":', lsn),
            *(b'},"transaction":null,"op":"', letters, f'","ts_ms":{now}}}'.encode()),
            self._frame[1],
        ]
        return _row_by_row(pieces)


def _row_by_row(pieces: list[Piece]) -> pa.BinaryArray:
    return join(pieces, null=b"null")


def _json_envelope(columns: Sequence[Column]) -> Schema:
    row = connect_row("Value", columns, optional=True)
    source = [replace(column, nullable=False) for column in _SOURCE_COLUMNS]
    fields = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {**connect_row("Source", source), "field": "source"},
        {**connect_row("Transaction", _BLOCK_COLUMNS, optional=True), "field": "transaction"},
        connect_field("op", {"type": "string"}),
        connect_field("ts_ms", {"type": "int64"}, optional=True),
    ]
    return connect_struct("Envelope", fields)


_TAIL = re.compile(rb"\x02([cud])\x02[\x80-\xff]*[\x00-\x7f]\Z", re.DOTALL)
"""The op and the time, with which an event ends."""


def connector_schemas(
    columns: Sequence[Column], key_columns: Sequence[Column], topic: str
) -> dict[Half, dict[str, object]]:
    """The schemas of keys and events of a topic, as the connector's converter registers them."""
    return {"key": row_record("Key", key_columns, topic), "value": _avro_envelope(columns, topic)}


class AvroDebeziumEvents(ConnectorEvents):
    """Events `c`, `u` and `d`, each `d` with its tombstone."""

    def __init__(self, table: TableSchema, ids: SchemaIds) -> None:
        self._table = table
        self._frame, self._keys = frame(ids.value), AvroRowEncoder(table.key_columns, frame(ids.key))
        self._begin = _constant(_ORIGIN_COLUMNS, own_version(), *CONNECTOR)
        self._relation = _constant(_RELATION_COLUMNS, "public", table.name)

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        return self._keys(arrays)

    def read_back(self, value: bytes | None) -> RecordContent | None:
        if value is None:
            return None
        head, begin, rest = value.rpartition(self._begin)
        letter = _TAIL.search(rest)
        if not begin or not head.startswith(self._frame) or letter is None:
            raise ValueError("no event")
        return RecordContent(OPS[letter[1].decode()], head)

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
        now, count = time.time_ns() // 1_000_000, len(ops)
        numbers, lsns = positions(first, count)
        texts = pa.array(lsns).cast(pa.string())
        sequence = pc.binary_join_element_wise('["', texts, '","', texts, '"]', "")
        ends = pa.array([NULL + _constant(_END_COLUMNS, LETTERS[op], now) for op in Op], pa.binary())
        return encode_records(
            count,
            values,
            self._begin + _constant(_MOMENT_COLUMNS, now, "false", "test"),
            (_SEQUENCE_COLUMNS, [sequence]),
            self._relation,
            (_POSITION_COLUMNS, [pa.array(TRANSACTION + numbers), pa.array(lsns)]),
            ends.take(pa.array(ops)),
        )


def _constant(columns: Sequence[Column], *values: str | int) -> bytes:
    """Encoded values of these columns that all records share."""
    arrays = [pa.array([value], column.type.arrow) for column, value in zip(columns, values, strict=True)]
    found: bytes = encode_records(1, (columns, arrays))[0].as_py()
    return found


def _avro_envelope(columns: Sequence[Column], topic: str) -> Schema:
    fields: list[dict[str, Any]] = [
        {"name": "before", "type": ["null", row_record("Value", columns, None)], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": row_record("Source", _SOURCE_COLUMNS, None)},
        {"name": "transaction", "type": ["null", row_record("block", _BLOCK_COLUMNS, None)], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    return {"type": "record", "name": "Envelope", "namespace": namespace_of(topic), "fields": fields}
