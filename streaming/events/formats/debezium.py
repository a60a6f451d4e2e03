"""Test events of the format `debezium` in JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats.debezium import DebeziumFormat
from schemas.formats.outputs.envelope import LETTERS, OPS, own_version
from schemas.json.cells import cells
from schemas.json.debezium_values import MICROS, UNITS
from schemas.json.frames import Schema, connect_field, connect_row, connect_struct, framed
from schemas.json.pieces import Piece, join
from schemas.json.written import text
from schemas.records import Op
from schemas.table import Column, TableSchema
from schemas.types import ColumnType, TypeName
from streaming.events.formats.connector import (
    CONNECTOR,
    TRANSACTION,
    ConnectorEvents,
    Numbers,
    places,
)
from streaming.events.formats.protocol import Columns, Ops, Said

_SOURCE = b',"source":{'
_OP = re.compile(rb'"op":"([cud])"')
_SOURCE_TYPES = {
    **dict.fromkeys(("version", "connector", "name"), "string"),
    "ts_ms": "int64",
    **dict.fromkeys(("snapshot", "db", "sequence", "schema", "table"), "string"),
    **dict.fromkeys(("txId", "lsn"), "int64"),
}


class JsonDebeziumEvents(ConnectorEvents):
    """Events in JSON; with their schemas if `time` is `adaptive`."""

    def __init__(
        self, table: TableSchema, form: DebeziumFormat, clock: Callable[[], float] = time.time
    ) -> None:
        self._table, self._form, self._clock = table, form, clock
        frames = form.time == "adaptive"
        nothing = b"", b""
        self._key_frame = framed(connect_row("Key", table.key_columns)) if frames else nothing
        self._frame = framed(_envelope(table.columns)) if frames else nothing

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        begin, end = self._key_frame
        return _row_by_row([begin, *self._object(self._table.key_columns, arrays), end])

    def said(self, value: bytes | None) -> Said | None:
        if value is None:
            return None
        head, _, rest = value.rpartition(_SOURCE)
        letter = _OP.search(rest)
        if not head or letter is None:
            raise ValueError("no event")
        return Said(OPS[letter[1].decode()], head)

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
        """With nulls for a column without an array."""
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
        return _row_by_row([values, *self._origins(ops, first), self._frame[1]])

    def _origins(self, ops: Ops, first: int) -> list[Piece]:
        now = int(self._clock() * 1000)
        numbers, lsns = places(first, len(ops))
        lsn = _texts(lsns)
        letters = pa.array([LETTERS[op].encode() for op in Op], pa.binary()).take(pa.array(ops))
        return [
            _SOURCE,
            f'"version":"{own_version()}","connector":"{CONNECTOR[0]}","name":"{CONNECTOR[1]}","ts_ms":{now},'.encode(),
            rb'"snapshot":"false","db":"test","sequence":"[\"',
            *(lsn, rb"\",\"", lsn, rb'\"]","schema":"public","table":'),
            text(self._table.name).encode(),
            *(b',"txId":', _texts(TRANSACTION + numbers), b',"lsn":', lsn),
            *(b'},"transaction":null,"op":"', letters, f'","ts_ms":{now}}}'.encode()),
        ]


def _texts(numbers: Numbers) -> pa.BinaryArray:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def _row_by_row(pieces: list[Piece]) -> pa.BinaryArray:
    return join(pieces, null=b"null")


def _envelope(columns: Sequence[Column]) -> Schema:
    row = connect_row("Value", columns, optional=True)
    source = [connect_field(name, {"type": kind}) for name, kind in _SOURCE_TYPES.items()]
    transaction = {"id": "string", "total_order": "int64", "data_collection_order": "int64"}
    block = [connect_field(name, {"type": kind}) for name, kind in transaction.items()]
    fields = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {**connect_struct("Source", source), "field": "source"},
        {**connect_struct("Transaction", block, optional=True), "field": "transaction"},
        connect_field("op", {"type": "string"}),
        connect_field("ts_ms", {"type": "int64"}, optional=True),
    ]
    return connect_struct("Envelope", fields)
