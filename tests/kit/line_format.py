"""A format that is not in the product, as small as one can be: JSON text, `[op, before, after]`, and `[key...]`.

It holds booleans, whole numbers and texts, and loops over rows, which is right for a test only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pytest

from schemas.codec.envelopes import structs_of
from schemas.codec.results import Decoded, ReadStructs, row_type
from schemas.errors import Code, InputError
from schemas.formats.protocol import Half, Origins, OutputFormat, UpstreamFormat
from schemas.formats.registry import OUTPUT_FORMATS, UPSTREAM_FORMATS
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column
from schemas.types import ColumnType
from streaming.reading.records.forms import ReadRecord, RecordForm
from streaming.reading.records.reader import READERS
from streaming.reading.records.upstreams import UpstreamReader

LINE_TYPES = tuple(map(ColumnType.parse, ("boolean", "int", "bigint", "string")))


def line(value: object) -> bytes:
    return json.dumps(value).encode()


class LineFormat(UpstreamFormat, OutputFormat):
    """Text lines."""

    format: Literal["lines"] = "lines"

    def decoder(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> LineDecoder:
        return LineDecoder(LineRows(len(columns), len(key_columns)), row_type(columns), row_type(key_columns))

    def keys(self, key_columns: Sequence[Column]) -> LineKeys:
        return LineKeys()

    def values(self, columns: Sequence[Column]) -> LineValues:
        return LineValues()

    def schemas(
        self, columns: Sequence[Column], key_columns: Sequence[Column], topic: str
    ) -> dict[Half, dict[str, object]]:
        return {"key": {"is": "JSON"}, "value": {"is": "JSON"}}


@dataclass(frozen=True)
class LineRows:
    columns: int
    key_columns: int

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        return self._row(self._read(data, where), self.key_columns, where)

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        op, *halves = self._row(self._read(value or b"", where), 3, where)
        rows = [None if half is None else self._row(half, self.columns, where) for half in halves]
        return Change(Op(op), *rows)

    def _read(self, data: bytes, where: str | None) -> object:
        try:
            return json.loads(data)
        except ValueError:
            raise InputError(Code.CHANGE_MALFORMED, where=where, found="no JSON", what="line") from None

    def _row(self, found: Any, length: int, where: str | None) -> tuple[Any, ...]:
        if not isinstance(found, list) or len(found) != length:
            raise InputError(Code.CHANGE_MALFORMED, where=where, found="no such list", what="line")
        return tuple(found)


@dataclass(frozen=True)
class LineDecoder:
    rows: LineRows
    kind: pa.StructType
    key_kind: pa.StructType

    def decode(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> Decoded:
        found, errors = list[Change | None](), dict[int, InputError]()
        for row, (key, value) in enumerate(zip(keys.to_pylist(), values.to_pylist(), strict=True)):
            try:
                found.append(self.rows.read_change(key, value))
                structs_of(pair(found[-1]), self.kind)
            except (InputError, ValueError, TypeError, pa.ArrowException) as error:
                found[row:] = [None]
                errors[row] = error if isinstance(error, InputError) else malformed()
        before, after = zip(*map(pair, found), strict=True) if found else ((), ())
        ops = pa.array([each and each.op.value for each in found], pa.int8())
        return Decoded(ops, structs_of(before, self.kind), structs_of(after, self.kind), errors)

    def decode_keys(self, keys: pa.BinaryArray) -> ReadStructs:
        found, errors = list[Key | None](), dict[int, InputError]()
        for row, data in enumerate(keys.to_pylist()):
            try:
                found.append(self.rows.read_key(data))
            except InputError as error:
                found.append(None)
                errors[row] = error
        return ReadStructs.of(structs_of(found, self.key_kind), errors)


def pair(change: Change | None) -> tuple[Row | None, Row | None]:
    return (None, None) if change is None else (change.before, change.after)


def malformed() -> InputError:
    return InputError(Code.CHANGE_MALFORMED, found="values of other types", what="line")


@dataclass(frozen=True)
class LineKeys:
    def __call__(self, arrays: Sequence[pa.Array]) -> pa.BinaryArray:
        return pa.array([line(key) for key in rows_of(arrays)], pa.binary())


@dataclass(frozen=True)
class LineValues:
    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        return pa.array([line([Op.INSERT, None, row]) for row in rows_of(arrays)], pa.binary())

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        changes = zip(ops.to_pylist(), rows_of(before), rows_of(after), strict=True)
        lines = [
            line([op, None if op == Op.INSERT else old, None if op == Op.DELETE else new])
            for op, old, new in changes
        ]
        return pa.array(lines, pa.binary())


def rows_of(arrays: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
    return list(zip(*(array.to_pylist() for array in arrays), strict=True))


class LineReader(UpstreamReader):
    """Of the checker, which shares none with the service."""

    def __init__(self, form: RecordForm, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._rows = LineRows(len(columns), len(key_columns))

    def key(self, data: bytes | None, *, where: str | None = None) -> Key:
        return self._rows.read_key(data or b"", where=where)

    def record(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> ReadRecord:
        change = self._rows.read_change(key, value, where=where)
        return ReadRecord(change, key=self.key(key, where=where))


def know_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is known for the rest of a test: the registries are all that has to be touched."""
    monkeypatch.setitem(UPSTREAM_FORMATS, "lines", LineFormat)
    monkeypatch.setitem(OUTPUT_FORMATS, "lines", LineFormat)
    monkeypatch.setitem(READERS, "lines", LineReader)
