"""The common part of outputs in JSON: keys, and objects that are read back strictly, for their references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from schemas.codec.json.text import fields_in, read_object, text_of
from schemas.errors import Code, InputError
from schemas.formats.outputs.halves import Keys, mismatch
from schemas.json.columnar import encode_objects
from schemas.json.debezium_values import DebeziumValues
from schemas.json.frames import connect_row, framed, json_row
from schemas.json.parsing.field_schemas import FieldSchema
from schemas.json.parsing.tokens import JsonError, Token
from schemas.json.values import value_of
from schemas.json.written import Encoding, written_row
from schemas.position import Key
from schemas.records import Row
from schemas.table import Column
from schemas.types import TypeName, Value

_CONNECT = DebeziumValues("adaptive", "precise")
_MICROS = FieldSchema("io.debezium.time.MicroTimestamp")


def row_schema(name: str, columns: Sequence[Column], encoding: Encoding) -> dict[str, object]:
    """The schema of an object of columns, for its readers."""
    return connect_row(name, columns) if encoding == "json-schema" else json_row(columns)


@cache
def row_frame(name: str, columns: tuple[Column, ...], encoding: Encoding) -> tuple[bytes, bytes]:
    """The bytes before and after an object of columns that is the whole record."""
    return framed(connect_row(name, columns)) if encoding == "json-schema" else (b"", b"")


@dataclass(frozen=True, slots=True)
class JsonKeys:
    """Objects of the key columns, in key order."""

    key_columns: tuple[Column, ...]
    encoding: Encoding

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.BinaryArray:
        """See `formats.protocol.KeyEncoder`."""
        frame = row_frame("Key", self.key_columns, self.encoding)
        return encode_objects(self.key_columns, arrays, self.encoding, *frame)


class JsonKeyRows(Keys):
    """The reference implementation of `JsonKeys`."""

    def __init__(self, key_columns: Sequence[Column], encoding: Encoding) -> None:
        self.columns, self._encoding = tuple(key_columns), encoding

    def write(self, key: Key) -> bytes:
        """ValueError or TypeError for a key that the columns can't hold."""
        before, behind = row_frame("Key", self.columns, self._encoding)
        return before + written_row(key, self.columns, self._encoding).encode() + behind

    def read(self, data: bytes | None, where: str | None) -> Key:
        """Raises: InputError: KEY_MISMATCH for what is no key in this form, PK_NULL, and as values do."""
        if not data:
            raise mismatch("a record without a key", where)
        try:
            frame = row_frame("Key", self.columns, self._encoding)
            key = read_row(payload_of(data, frame), self.columns, self._encoding)
            same(data, self.write(key))
        except JsonError as reason:
            raise error(reason, "a key", where) from None
        return key


def payload_of(data: bytes, frame: tuple[bytes, bytes]) -> list[tuple[str, Token]]:
    """The fields of a record within its frame, which may be empty.

    A frame is far longer than most rows, so one that is as it is written is not read. Another one is for `same` to
    find, unless something worse is found before.
    """
    begin, end = frame
    if data.startswith(begin) and data.endswith(end):
        return read_object(text_of(data[len(begin) : len(data) - len(end)]))
    fields = read_object(text_of(data))
    if [name for name, _ in fields] != ["schema", "payload"]:
        raise JsonError("other fields than schema and payload")
    return fields_in(fields[1][1])


def read_row(fields: Sequence[tuple[str, Token]], columns: Sequence[Column], encoding: Encoding) -> Row:
    """The values of an object that has exactly these columns. Raises: JsonError."""
    if [name for name, _ in fields] != [column.name for column in columns]:
        raise JsonError("other fields than its columns")
    row = tuple(_value(token, column, encoding) for (_, token), column in zip(fields, columns, strict=True))
    if any(value is None and not column.nullable for value, column in zip(row, columns, strict=True)):
        raise JsonError("a null in a key column", Code.PK_NULL)
    return row


def _value(token: Token, column: Column, encoding: Encoding) -> Value:
    if encoding == "json":
        return value_of(token, column)
    return _CONNECT.value_of(token, column, _MICROS if column.type.name is TypeName.TIMESTAMP else None)


def same(data: bytes, written: bytes) -> None:
    """A row has one form: what reads like it and is written in another way is refused. Raises: JsonError."""
    if data != written:
        raise JsonError("another form than this format writes")


def error(reason: JsonError, what: str, where: str | None) -> InputError:
    """Converts a reason to an error of a record's key or value."""
    column = f" in column {reason.column}" if reason.column else ""
    code = Code.KEY_MISMATCH if what == "a key" and reason.code is Code.JSON_MALFORMED else reason.code
    values = {"column": reason.column} if reason.column else {}
    expected = (
        None if reason.column or code is not Code.BAD_ENCODING else "JSON of the output's columns, in UTF-8"
    )
    return InputError(code, where=where, found=f"{what} with {reason}{column}", expected=expected, **values)
