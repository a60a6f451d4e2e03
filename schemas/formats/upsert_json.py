"""Rows of the format `upsert` in JSON, one by one: the reference decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from schemas.errors import Code, InputError
from schemas.formats.protocol import Rows
from schemas.formats.upsert import KeyForm
from schemas.json.parsing.scan import decoded_text, read_object, read_scalar
from schemas.json.parsing.tokens import JsonError
from schemas.json.values import plain_value, value_of
from schemas.position import Key
from schemas.records import Change, Op
from schemas.table import Column
from schemas.types import Value


class JsonUpserts(Rows):
    """Rows and keys, see `formats.protocol.Rows`. An INSERT here only says what the row is now."""

    def __init__(self, columns: Sequence[Column], key_columns: Sequence[Column], key: KeyForm) -> None:
        self._columns = {column.name: column for column in columns}
        self._key_columns = {column.name: column for column in key_columns}
        forms: dict[str, Callable[[bytes], dict[str, Value]]] = {
            "record": self._key_record,
            "json": partial(self._key_value, lambda data, column: value_of(read_scalar(data), column)),
            "text": partial(self._key_value, lambda data, column: plain_value(decoded_text(data), column)),
        }
        self._read_key = forms[key]

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """Raises: InputError: KEY_MISMATCH for what is no key in this form, PK_NULL, and as values do."""
        return tuple(self._key(data, where).values())

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError as `read_key`; JSON_MALFORMED, VALUE_OUT_OF_RANGE, BAD_ENCODING."""
        keys = self._key(key, where)
        if not value:
            return Change(Op.DELETE, tuple(keys.get(name) for name in self._columns), None)
        try:
            row = read_row(value, self._columns)
        except JsonError as reason:
            raise error(reason, "a value", where) from None
        for name, found in row.items():
            if name in keys and found is not None and found != keys[name]:
                raise _mismatch("a value whose key columns are not those of its key", where)
        row |= keys
        return Change(Op.INSERT, None, tuple(row.get(name) for name in self._columns))

    def _key(self, data: bytes | None, where: str | None) -> dict[str, Value]:
        if not data:
            raise _mismatch("a record without a key", where)
        try:
            keys = self._read_key(data)
        except JsonError as reason:
            raise error(reason, "a key", where) from None
        if None in keys.values():
            raise InputError(Code.PK_NULL, where=where, found="a null in a key column")
        return keys

    def _key_record(self, data: bytes) -> dict[str, Value]:
        fields = read_object(data)
        if sorted(name for name, _ in fields) != sorted(self._key_columns):
            raise JsonError("other fields than the key columns", Code.KEY_MISMATCH)
        tokens = dict(fields)
        return {name: value_of(tokens[name], column) for name, column in self._key_columns.items()}

    def _key_value(self, read: Callable[[bytes, Column], Value], data: bytes) -> dict[str, Value]:
        [column] = self._key_columns.values()
        return {column.name: read(data, column)}


_FORM = "JSON of the table's columns, in UTF-8"


def read_row(data: bytes, columns: Mapping[str, Column]) -> dict[str, Value]:
    """The values that a JSON object has for these columns; other fields are ignored. Raises: JsonError."""
    row = {}
    for name, token in read_object(data):
        if (column := columns.get(name)) is not None:
            row[name] = value_of(token, column)
    return row


def error(reason: JsonError, what: str, where: str | None) -> InputError:
    """The error for a half of a record; `what` is `a key` or `a value`."""
    column = f" in column {reason.column}" if reason.column else ""
    code = Code.KEY_MISMATCH if what == "a key" and reason.code is Code.JSON_MALFORMED else reason.code
    values = {"column": reason.column} if reason.column else {}
    expected = None if reason.column or code is not Code.BAD_ENCODING else _FORM
    return InputError(code, where=where, found=f"{what} with {reason}{column}", expected=expected, **values)


def _mismatch(found: str, where: str | None) -> InputError:
    return InputError(Code.KEY_MISMATCH, where=where, found=found)
