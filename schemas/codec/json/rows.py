"""Rows and keys in JSON: objects of columns, also within Kafka Connect's frame; and keys that are a single value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.codec.envelopes import IS_DELETED, upsert_type
from schemas.codec.json.cells import JsonCell, json_cell
from schemas.codec.json.reader import (
    JsonField,
    JsonHalf,
    JsonReader,
    RowShape,
    Schemas,
    Shape,
    Slow,
    can_be_typed,
    finished,
)
from schemas.codec.json.text import (
    FRAME_PARTS,
    FRAMED,
    Frames,
    fields_in,
    is_frame,
    read_object,
    read_value,
    unframed,
)
from schemas.codec.results import Flags, flags_of, row_type
from schemas.errors import Code
from schemas.json.debezium_values import DebeziumValues, Meaning, ValueForm, plain_form, reader_of
from schemas.json.tokens import (
    NO_SCHEMAS,
    UNDESCRIBED,
    Fields,
    FieldSchema,
    JsonError,
    Kind,
    Token,
    value_schema,
)
from schemas.json.values import SubMicros, plain_token, read_by
from schemas.kinds.columns import new_field_text
from schemas.table import Column
from schemas.types import Value

_FORM = "JSON of the table's columns"
A_VALUE, A_KEY = JsonHalf("a value", _FORM), JsonHalf("a key", _FORM)


class ColumnForms:
    """Columns under their names in records, with the forms of their values.

    `settings` are those of a connector; None: values say themselves what they are, or the schema in their frame does.
    `known` are the names that fields may have; None: any.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        sub_micros: SubMicros,
        settings: DebeziumValues | None = None,
        known: frozenset[str] | None = None,
    ) -> None:
        self.columns, self._sub_micros = tuple(columns), sub_micros
        self.names = [name for column in columns for name in column.names_in_records]
        self._settings, self._known = settings, known

    def unread(self, *read: str | None) -> list[str] | None:
        """The names of the fields that are known and not read; None where objects may have any."""
        return None if self._known is None else sorted(self._known - {*self.names, *read})

    def refuse_new(self, names: Iterable[str]) -> None:
        """Raises: JsonError(SCHEMA_WAITS) for a name that is not known."""
        if self._known is not None and (new := sorted(set(names) - self._known)):
            raise JsonError(new_field_text(new[0]), Code.SCHEMA_WAITS)

    def fields(self, schemas: Schemas) -> list[JsonField]:
        """The typed fields of the columns. Raises: JsonError(SCHEMA_INCOMPATIBLE, SCHEMA_WAITS)."""
        self.refuse_new(schemas)
        cuts, found = self._sub_micros == "truncate", []
        for each in self.columns:
            names, fill = _names_and_fill(each, schemas)
            cell = json_cell(each, self._form(each, schemas.get(names[0], UNDESCRIBED)), cuts=cuts)
            found.append(JsonField(names, cell, fill))
        return found

    def value(self, column: Column, token: Token, schema: FieldSchema = UNDESCRIBED) -> Value:
        """The value of a column. Raises: JsonError."""
        return read_by(reader_of(self._form(column, schema), column, self._sub_micros), token, column)

    def row(self, fields: Fields, schemas: Schemas) -> dict[str, Value]:
        """The values of an object by column, the fill of what it lacks; other fields are ignored. Raises: JsonError.

        Of a name that comes twice the last value counts, as it does to the typed decoder.
        """
        row, tokens = dict[str, Value](), dict(fields)
        self.refuse_new((*tokens, *schemas))
        for column in self.columns:
            names, fill = _names_and_fill(column, schemas)
            name = next((each for each in names if each in tokens), None)
            schema = schemas.get(name or "", UNDESCRIBED)
            row[column.name] = fill if name is None else self.value(column, tokens[name], schema)
        return row

    def _form(self, column: Column, schema: FieldSchema) -> ValueForm:
        if self._settings is not None:
            return self._settings.for_column(column).form_of(column, schema)
        if schema.meaning is None and schema.fault is None:
            return plain_form(column)
        return (
            DebeziumValues("adaptive", "precise", self._sub_micros).for_column(column).form_of(column, schema)
        )


def _names_and_fill(column: Column, schemas: Schemas) -> tuple[tuple[str, ...], Value]:
    """The names under which records with these schemas may have a column, and its value where none is there."""
    names = column.names_in_records
    described = next((name for name in names if name in schemas), None)
    # A field that the schema has, and the payload lacks, is null.
    return (names, column.fill) if described is None else ((described,), None)


class JsonRows(JsonReader):
    """Values that are rows: structs of `keyed.upsert_type`. Fields that are no column are ignored.

    `deleted_field` names the field by which a row says that it is deleted; `names` are those that fields may have.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        sub_micros: SubMicros,
        deleted_field: str | None = None,
        names: frozenset[str] | None = None,
    ) -> None:
        self._columns = ColumnForms(columns, sub_micros, known=names)
        self._deleted_field = deleted_field
        self._has_frames = set(FRAME_PARTS).isdisjoint(self._columns.names)
        kind = upsert_type(self._columns.columns, has_deletes=deleted_field is not None)
        super().__init__(kind, A_VALUE, Frames[Shape]() if self._has_frames else None)

    def typed(self, schemas: Schemas) -> Shape | None:
        deleted, names = self._deleted_field, self._columns.names
        if deleted in names or not can_be_typed([*names, deleted or ""]):
            return None
        fields = self._columns.fields(schemas)
        if deleted is not None:
            fields.append(JsonField((deleted,), _DELETED))
        parts = [] if deleted in FRAME_PARTS or schemas or not self._has_frames else FRAME_PARTS
        return RowShape(self.kind, fields, unless=parts, unread=self._columns.unread(deleted))

    def slowly(self, text: str) -> Slow:
        fields: Fields | None = read_object(text)
        schemas = NO_SCHEMAS
        if self._has_frames and is_frame(fields or []):
            fields, schemas = unframed(fields or [], None)
        if fields is None:
            return Slow(None)
        if self._deleted_field is None:
            return Slow(self._columns.row(fields, schemas))
        if _is_deleted(dict(fields).get(self._deleted_field), self._deleted_field):
            return Slow({IS_DELETED: True})
        return Slow({**self._columns.row(fields, schemas), IS_DELETED: False})


class JsonKeys(JsonReader):
    """Keys that are objects of the key columns, and have no other fields."""

    def __init__(
        self,
        key_columns: Sequence[Column],
        sub_micros: SubMicros,
        settings: DebeziumValues | None = None,
        half: JsonHalf = A_KEY,
    ) -> None:
        self._columns = ColumnForms(key_columns, sub_micros, settings)
        self._quoted = [f'"{name}"' for name in self._columns.names]
        self._settings = settings
        may_be_framed = settings is not None or set(FRAME_PARTS).isdisjoint(self._columns.names)
        super().__init__(row_type(key_columns), half, Frames[Shape]() if may_be_framed else None)

    def typed(self, schemas: Schemas) -> Shape | None:
        if not can_be_typed(self._columns.names):
            return None
        return RowShape(self.kind, self._columns.fields(schemas), exact=True)

    def are_usual(self, texts: pa.StringArray) -> Flags:
        """A name that comes twice is nothing that the typed decoder sees."""
        usual = super().are_usual(texts) & ~flags_of(pc.match_substring(texts, "\\"))
        for name in self._quoted:
            usual &= pc.count_substring(texts, name).to_numpy(zero_copy_only=False) == 1
        return usual

    def slowly(self, text: str) -> Slow:
        fields: Fields | None = read_object(text)
        schemas = NO_SCHEMAS
        is_framed = text.startswith(FRAMED) if self._settings is not None else is_frame(fields or [])
        if is_framed and self._frames is not None:
            fields, schemas = unframed(fields or [], None)
        if sorted(name for name, _ in fields or ()) != sorted(self._columns.names):
            raise JsonError("other fields than the key columns", Code.KEY_MISMATCH)
        return Slow(_without_nulls(self._columns.row(fields or [], schemas)))


class JsonValueKeys(JsonReader):
    """Keys that are the value of a single key column: in JSON, or, if `plain`, the same without quotes."""

    def __init__(self, column: Column, sub_micros: SubMicros, *, plain: bool) -> None:
        self._columns, self._column, self._plain_text = ColumnForms([column], sub_micros), column, plain
        self._has_frames = column.name not in FRAME_PARTS
        super().__init__(row_type([column]), A_KEY, None)

    def typed(self, schemas: Schemas) -> Shape | None:
        [(_, cell, _)] = self._columns.fields(schemas)
        if self._plain_text and cell.kind is msgspec.Raw:
            cell = json_cell(self._column, ValueForm(Meaning.DIGITS), cuts=False)
        return ValueShape(self.kind, cell, plain=self._plain_text)

    def are_usual(self, texts: pa.StringArray) -> Flags:
        """Blanks around a plain value are nothing that the typed decoder sees."""
        usual = super().are_usual(texts)
        if self._plain_text:
            usual &= flags_of(pc.equal(texts, pc.utf8_trim_whitespace(texts)))
        return usual

    def slowly(self, text: str) -> Slow:
        schema = UNDESCRIBED
        token = plain_token(text, self._column) if self._plain_text else read_value(text)
        if token.kind is Kind.NESTED:
            if token.fields is None or not self._has_frames or not is_frame(token.fields):
                raise JsonError("an object or a list")
            parts = dict(fields_in(token))
            token, schema = parts["payload"], value_schema(parts["schema"])
        return Slow(_without_nulls({self._column.name: self._columns.value(self._column, token, schema)}))


class ValueShape:
    """Single values in JSON; if `plain`, texts that have no quotes, and numbers and booleans as JSON has them."""

    def __init__(self, kind: pa.StructType, cell: JsonCell, *, plain: bool) -> None:
        self._kind, self._cell = kind, cell
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(cell.kind).decode
        if plain and cell.kind == str | None:
            self.decode = bytes.decode

    def structs(self, decoded: Sequence[Any]) -> tuple[pa.StructArray, Flags]:
        array, unusual = finished(self._cell, decoded, self._kind[0].type)
        unusual = np.zeros(len(decoded), np.bool_) if unusual is None else unusual
        unusual = unusual | flags_of(array.is_null())
        return pa.StructArray.from_arrays([array], fields=list(self._kind)), unusual


def _without_nulls(row: dict[str, Value]) -> dict[str, Value]:
    if None in row.values():
        raise JsonError("a null in a key column", Code.PK_NULL)
    return row


def _deletes(values: Sequence[bool | str | None]) -> tuple[pa.Array, Flags]:
    if values.count(None) == len(values):
        return pa.array(np.zeros(len(values), np.bool_)), np.zeros(len(values), np.bool_)
    found = [_DELETES.get(each) for each in values]
    return pa.array(found, pa.bool_()), np.array([each is None for each in found], np.bool_)


_DELETES: Mapping[bool | str | None, bool] = {
    None: False,
    False: False,
    True: True,
    "false": False,
    "true": True,
}
_DELETED = JsonCell(bool | str | None, _deletes)


def _is_deleted(token: Token | None, name: str) -> bool:
    if token is None or token.kind is Kind.NULL:
        return False
    if token.kind not in (Kind.BOOLEAN, Kind.TEXT) or token.text not in ("true", "false"):
        raise JsonError("neither true nor false", column=name)
    return token.text == "true"
