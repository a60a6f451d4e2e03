"""Events of the format `debezium` in JSON, one by one: the reference decoder.

A value is an envelope, `{"op": ..., "after": ..., "source": ...}`, or has one as its `payload` beside its `schema`; a
key likewise is an object of the key columns or has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import Code, InputError
from schemas.formats.events.frames import Frames
from schemas.formats.events.logs import NUMBERS, TEXTS, log_position
from schemas.formats.events.rows import (
    MESSAGE,
    Event,
    EventError,
    EventRows,
    Half,
    check_op,
    mismatch,
    transaction_of,
)
from schemas.json.debezium_values import DebeziumValues
from schemas.json.parsing.field_schemas import UNDESCRIBED, FieldSchema
from schemas.json.parsing.placeholder import Placeholder
from schemas.json.parsing.scan import fields_in
from schemas.json.parsing.tokens import JsonError, Kind, Token
from schemas.json.values import Reader, read_by
from schemas.records import UpstreamRecord
from schemas.table import Column
from schemas.types import TypeName, Value

_LONG_MAX = 2**63 - 1
_NOTHING = Token(Kind.NULL, "null")

_Fields = Mapping[str, Token]
_Schemas = Mapping[str, FieldSchema]


class DebeziumRows(EventRows):
    """Rows and keys, see `formats.protocol.Rows`."""

    def __init__(
        self,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        values: DebeziumValues,
        placeholder: Placeholder,
        *,
        whole: bool = False,
        transactions: bool = False,
    ) -> None:
        super().__init__(columns, key_columns, whole=whole)
        self._transactions = transactions
        forms = {TypeName.STRING: placeholder.texts, TypeName.BINARY: frozenset([placeholder.base64])}
        left_out = [
            forms.get(column.type.name, _NEVER) if column.name not in self._keys else _NEVER
            for column in self._columns
        ]
        self._rows = _Cells(self._columns, values, left_out)
        self._key_cells = _Cells(self._key_columns, values, [_NEVER] * len(self._key_columns))
        self._key_frames, self._frames = Frames(), Frames("after")

    def read_record(
        self, key: bytes | None, value: bytes | None, *, where: str | None = None
    ) -> UpstreamRecord:
        """Raises: InputError as `read_key`; JSON_MALFORMED, UNKNOWN_OP, TRUNCATE_UNSUPPORTED, as values do."""
        if not value:
            return self._without_value(key, where)
        try:
            fields, schemas = self._frames.unframed(value)
            if fields is None:
                return self._without_value(key, where)
            envelope = _set(fields)
            if _is_no_data(envelope):
                return UpstreamRecord(None)
            op, source = _op(envelope), _source(envelope)
            transaction = _transaction(source) if self._transactions else None
        except JsonError as reason:
            raise _error(reason, "a value", where) from None
        keys = self._key(key, where)
        try:
            before, after = (
                Half(*self._rows.read(fields_in(envelope[name]), schemas))
                if name in envelope and is_read
                else None
                for name, is_read in (("before", self._whole), ("after", True))
            )
        except JsonError as reason:
            raise _error(reason, "a value", where) from None
        said = _said(source)
        event = Event(op, before, after, log_position(said), said["snapshot"], transaction)
        return self._record(event, keys, where)

    def _key(self, data: bytes | None, where: str | None) -> dict[str, Value]:
        if not data:
            raise mismatch("a record without a key", where)
        try:
            fields, schemas = self._key_frames.unframed(data)
            if sorted(name for name, _ in fields or ()) != sorted(self._keys):
                raise JsonError("other fields than the key columns", Code.KEY_MISMATCH)
            keys, _ = self._key_cells.read(fields or [], schemas)
        except JsonError as reason:
            raise _error(reason, "a key", where) from None
        if None in keys.values():
            raise InputError(Code.PK_NULL, where=where, found="a null in a key column")
        return keys


_NEVER: frozenset[str] = frozenset()


class _Cells:
    """Reads rows of some columns. `left_out`: by column, the texts that stand for a value that is left out."""

    def __init__(
        self, columns: Sequence[Column], values: DebeziumValues, left_out: Sequence[frozenset[str]]
    ) -> None:
        self._columns, self._left_out = columns, left_out
        self._values = [values.for_column(column) for column in columns]
        self._known: tuple[_Schemas | None, Sequence[Reader]] = (None, ())

    def read(
        self, fields: list[tuple[str, Token]], schemas: _Schemas
    ) -> tuple[dict[str, Value], tuple[int, ...]]:
        """The row by column, and the indices of the columns that it leaves out. Raises: JsonError."""
        tokens, row, unchanged = dict(fields), dict[str, Value](), []
        for index, (column, reader) in enumerate(zip(self._columns, self._readers(schemas), strict=True)):
            token, placeholders = tokens.get(column.name, _NOTHING), self._left_out[index]
            if placeholders and token.text in placeholders:
                unchanged.append(index)
            else:
                row[column.name] = read_by(reader, token, column)
        return row, tuple(unchanged)

    def _readers(self, schemas: _Schemas) -> Sequence[Reader]:
        """Those of the last schemas are kept: most records have the same."""
        if self._known[0] is not schemas:
            pairs = zip(self._columns, self._values, strict=True)
            readers = [
                values.reader_of(column, schemas.get(column.name, UNDESCRIBED)) for column, values in pairs
            ]
            self._known = schemas, readers
        return self._known[1]


def _set(fields: list[tuple[str, Token]]) -> _Fields:
    """Those that are not null."""
    return {name: token for name, token in dict(fields).items() if token.kind is not Kind.NULL}


def _is_no_data(envelope: _Fields) -> bool:
    """A logical message, a heartbeat or the end of a transaction: it has a time and no op."""
    if "op" in envelope:
        return envelope["op"].text == MESSAGE
    return "ts_ms" in envelope and not {"after", "source"} & envelope.keys()


def _op(envelope: _Fields) -> str:
    try:
        return check_op(envelope.get("op", _NOTHING).text, has_after="after" in envelope)
    except EventError as reason:
        raise JsonError(str(reason), reason.code or Code.JSON_MALFORMED) from None


def _source(envelope: _Fields) -> _Fields:
    return _set(fields_in(envelope["source"])) if "source" in envelope else {}


def _said(source: _Fields) -> dict[str, Any]:
    """The fields that positions are made of; None for those of another type, as other connectors have them."""
    texts = {name: source[name].text if _is_text(source.get(name), name) else None for name in TEXTS}
    return texts | {name: _long(source.get(name, _NOTHING)) for name in NUMBERS}


def _is_text(token: Token | None, name: str) -> bool:
    return token is not None and (
        token.kind is Kind.TEXT or (token.kind is Kind.BOOLEAN and name == "snapshot")
    )


def _transaction(source: _Fields) -> int | None:
    number = _long(source.get("txId", _NOTHING))
    if number is None and "txId" in source:
        raise JsonError("a source whose txId is no number")
    return transaction_of(_said(source), number)


def _long(token: Token) -> int | None:
    is_long = token.kind is Kind.INTEGER and -_LONG_MAX - 1 <= int(token.text) <= _LONG_MAX
    return int(token.text) if is_long else None


def _error(reason: JsonError, what: str, where: str | None) -> InputError:
    column = f" in column {reason.column}" if reason.column else ""
    code = Code.KEY_MISMATCH if what == "a key" and reason.code is Code.JSON_MALFORMED else reason.code
    values = {"column": reason.column} if reason.column else {}
    expected = None if reason.column or code is not Code.BAD_ENCODING else "a change event in JSON, in UTF-8"
    return InputError(code, where=where, found=f"{what} with {reason}{column}", expected=expected, **values)
