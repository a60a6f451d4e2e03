"""Rows of the format `upsert` in JSON, one by one: the reference decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from schemas.errors import Code, InputError
from schemas.formats.protocol import Rows
from schemas.formats.upsert import KeyForm
from schemas.json.debezium_values import DebeziumValues
from schemas.json.parsing.field_schemas import (
    NO_SCHEMAS,
    UNDESCRIBED,
    FieldSchema,
    field_schemas,
    value_schema,
)
from schemas.json.parsing.scan import decoded_text, fields_in, read_object, read_value
from schemas.json.parsing.tokens import Fields, JsonError, Kind, Token
from schemas.json.values import Reader, SubMicros, plain_token, read_by, upstream_reader
from schemas.position import Key
from schemas.records import Change, Op
from schemas.table import Column
from schemas.types import Value

_FRAME = {"schema", "payload"}


class JsonObjects:
    """Reads objects of some columns, also within Kafka Connect's frame, whose schema then says what values mean.

    `deleted_field` names the field by which an object says that there is no such row.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        sub_micros: SubMicros = "refuse",
        deleted_field: str | None = None,
    ) -> None:
        self._columns = {column.name: column for column in columns}
        self._readers = {column.name: upstream_reader(column, sub_micros) for column in columns}
        self._described = DebeziumValues("adaptive", "precise", sub_micros)
        self._deleted_field = deleted_field
        self._has_frames = not _FRAME & self._columns.keys()

    def row(self, data: bytes) -> dict[str, Value] | None:
        """The values of an object; None for a null in a frame, and where it is deleted. Raises: JsonError.

        Fields that are no column are ignored.
        """
        fields, schemas = self.unframed(read_object(data))
        if fields is None or (self._deleted_field is not None and self._is_deleted(dict(fields))):
            return None
        return {name: self.value(name, token, schemas) for name, token in fields if name in self._columns}

    def unframed(self, fields: Fields) -> tuple[Fields | None, Mapping[str, FieldSchema]]:
        """The payload of a frame, None for null, and its fields' schemas; other objects are left as they are."""
        frame = self.frame(fields)
        if frame is None:
            return fields, NO_SCHEMAS
        schemas = field_schemas(frame["schema"])
        payload = frame["payload"]
        return (None if payload.kind is Kind.NULL else fields_in(payload)), schemas

    def frame(self, fields: Fields) -> dict[str, Token] | None:
        """The two parts of a frame, which are no columns then; None for another object."""
        parts = dict(fields)
        return parts if self._has_frames and len(fields) == len(_FRAME) and parts.keys() == _FRAME else None

    def value(self, name: str, token: Token, schemas: Mapping[str, FieldSchema] = NO_SCHEMAS) -> Value:
        """The value of a column. Raises: JsonError."""
        column = self._columns[name]
        return read_by(self._reader(column, schemas.get(name, UNDESCRIBED)), token, column)

    def _reader(self, column: Column, schema: FieldSchema) -> Reader:
        if schema.meaning is None and schema.fault is None:
            return self._readers[column.name]
        return self._described.for_column(column).reader_of(column, schema)

    def _is_deleted(self, fields: Mapping[str, Token]) -> bool:
        token = fields.get(self._deleted_field or "")
        if token is None or token.kind is Kind.NULL:
            return False
        if token.kind not in (Kind.BOOLEAN, Kind.TEXT) or token.text not in ("true", "false"):
            raise JsonError("neither true nor false", column=self._deleted_field)
        return token.text == "true"


class JsonUpserts(Rows):
    """Rows and keys, see `formats.protocol.Rows`. An INSERT here only says what the row is now."""

    def __init__(
        self,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        key: KeyForm,
        sub_micros: SubMicros = "refuse",
        deleted_field: str | None = None,
    ) -> None:
        self._columns, self._key_columns = tuple(columns), tuple(key_columns)
        self._rows = JsonObjects(columns, sub_micros, deleted_field)
        self._keys = JsonObjects(key_columns, sub_micros)
        forms: dict[str, Callable[[bytes], dict[str, Value]]] = {
            "record": self._key_record,
            "json": self._key_json,
            "text": self._key_text,
        }
        self._read_key, self._may_be_empty = forms[key], key == "text"

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """Raises: InputError: KEY_MISMATCH for what is no key in this form, PK_NULL, and as values do."""
        return tuple(self._key(data, where).values())

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError as `read_key`; JSON_MALFORMED, VALUE_OUT_OF_RANGE, BAD_ENCODING."""
        keys = self._key(key, where)
        try:
            row = self._rows.row(value) if value else None
        except JsonError as reason:
            raise error(reason, "a value", where) from None
        if row is None:
            return Change(Op.DELETE, tuple(keys.get(column.name) for column in self._columns), None)
        for name, found in row.items():
            if name in keys and found is not None and found != keys[name]:
                raise _mismatch("a value whose key columns are not those of its key", where)
        row |= keys
        return Change(Op.INSERT, None, tuple(row.get(column.name) for column in self._columns))

    def _key(self, data: bytes | None, where: str | None) -> dict[str, Value]:
        if data is None or not (data or self._may_be_empty):
            raise _mismatch("a record without a key", where)
        try:
            keys = self._read_key(data)
        except JsonError as reason:
            raise error(reason, "a key", where) from None
        if None in keys.values():
            raise InputError(Code.PK_NULL, where=where, found="a null in a key column")
        return keys

    def _key_record(self, data: bytes) -> dict[str, Value]:
        fields, schemas = self._keys.unframed(read_object(data))
        names = [column.name for column in self._key_columns]
        if sorted(name for name, _ in fields or ()) != sorted(names):
            raise JsonError("other fields than the key columns", Code.KEY_MISMATCH)
        tokens = dict(fields or ())
        return {name: self._keys.value(name, tokens[name], schemas) for name in names}

    def _key_json(self, data: bytes) -> dict[str, Value]:
        [column] = self._key_columns
        token, schemas = read_value(data), NO_SCHEMAS
        if token.kind is Kind.NESTED:
            frame = self._keys.frame(fields_in(token))
            if frame is None:
                raise JsonError("an object or a list")
            token, schemas = frame["payload"], {column.name: value_schema(frame["schema"])}
        return {column.name: self._keys.value(column.name, token, schemas)}

    def _key_text(self, data: bytes) -> dict[str, Value]:
        [column] = self._key_columns
        return {column.name: self._keys.value(column.name, plain_token(decoded_text(data), column))}


_FORM = "JSON of the table's columns, in UTF-8"


def error(reason: JsonError, what: str, where: str | None) -> InputError:
    """The error for a half of a record; `what` is `a key` or `a value`."""
    column = f" in column {reason.column}" if reason.column else ""
    code = Code.KEY_MISMATCH if what == "a key" and reason.code is Code.JSON_MALFORMED else reason.code
    values = {"column": reason.column} if reason.column else {}
    expected = None if reason.column or code is not Code.BAD_ENCODING else _FORM
    return InputError(code, where=where, found=f"{what} with {reason}{column}", expected=expected, **values)


def _mismatch(found: str, where: str | None) -> InputError:
    return InputError(Code.KEY_MISMATCH, where=where, found=found)
