"""Rows of the format `upsert` in Avro by a schema registry, one by one: the reference decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from schemas.avro.by_id import RegisteredRecords
from schemas.avro.projection import Project, Projection, branches_of, fields_of, of_record, of_value
from schemas.avro.registered import Schemas
from schemas.avro.writers.meanings import Schema
from schemas.errors import Code, InputError
from schemas.formats.protocol import Rows
from schemas.formats.upsert import KeyForm
from schemas.formats.upsert_json import JsonUpserts
from schemas.json.values import SubMicros
from schemas.kinds.columns import Column
from schemas.position import Key
from schemas.records import Change, Op
from schemas.types import ColumnType, TypeName, Value


def projects(
    key: KeyForm,
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    sub_micros: SubMicros = "refuse",
    deleted_field: str | None = None,
) -> dict[str, Project]:
    """How a `value` is read, by the writer's schema, and a `key` that is in Avro, too.

    Of a value the `deleted_field` is read as well, as a text or a boolean.
    """
    row = partial(of_record, sub_micros=sub_micros)
    found: dict[str, Project] = {"value": partial(row, columns=columns)}
    if deleted_field is not None and deleted_field not in {column.name for column in columns}:
        found["value"] = partial(_of_row, columns=columns, deleted_field=deleted_field, of_columns=row)
    if key == "record":
        found["key"] = partial(row, columns=key_columns, exact=True)
    elif key == "avro":
        found["key"] = partial(of_value, column=key_columns[0])
    return found


def _of_row(
    schema: Schema, columns: Sequence[Column], deleted_field: str, of_columns: Callable[..., Projection]
) -> Projection:
    kinds = {each["type"] for each in branches_of(fields_of(schema).get(deleted_field, "null"))}
    name = TypeName.BOOLEAN if "boolean" in kinds else TypeName.STRING
    deleted = Column(deleted_field, ColumnType(name), nullable=True)
    return of_columns(schema, columns=[*columns, deleted])


class AvroUpserts(Rows):
    """Rows and keys, see `formats.protocol.Rows`. An INSERT here only says what the row is now."""

    def __init__(
        self,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        key: KeyForm,
        schemas: Schemas,
        sub_micros: SubMicros = "refuse",
        deleted_field: str | None = None,
    ) -> None:
        self._deleted_field = deleted_field
        self._columns = tuple(column.name for column in columns)
        self._key_names = tuple(column.name for column in key_columns)
        read = projects(key, columns, key_columns, sub_micros, deleted_field)
        self._values = RegisteredRecords(schemas, read["value"], "a value")
        self._read_key: Callable[..., Key]
        if "key" in read:
            self._keys = RegisteredRecords(schemas, read["key"], "a key")
            self._read_key = self._registered_key
        else:
            self._read_key = JsonUpserts(columns, key_columns, key, sub_micros).read_key

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """Raises: InputError: KEY_MISMATCH for what is no key in this form, PK_NULL, and as values do."""
        return self._read_key(data, where=where)

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError as `read_key`, and as `RegisteredRecords.read`, CHANGE_MALFORMED in general."""
        if key is None:
            raise _mismatch("a record without a key", where)
        keys = dict(zip(self._key_names, self.read_key(key, where=where), strict=True))
        row = self._values.read(value, general=Code.CHANGE_MALFORMED, where=where) if value else None
        if row is None or self._is_deleted(row.get(self._deleted_field or ""), where):
            return Change(Op.DELETE, tuple(keys.get(name) for name in self._columns), None)
        for name, found in keys.items():
            if row.get(name) is not None and row[name] != found:
                raise _mismatch("a value whose key columns are not those of its key", where)
        row |= keys
        return Change(Op.INSERT, None, tuple(row.get(name) for name in self._columns))

    def _is_deleted(self, found: Value, where: str | None) -> bool:
        if type(found) not in (bool, str, type(None)) or found not in _DELETED:
            text = f"a value whose {self._deleted_field} is neither true nor false"
            raise InputError(Code.CHANGE_MALFORMED, where=where, found=text, expected="true, false or null")
        return _DELETED[found]

    def _registered_key(self, data: bytes, *, where: str | None = None) -> Key:
        if not data:
            raise _mismatch("a record without a key", where)
        found = self._keys.read(data, general=Code.KEY_MISMATCH, where=where)
        if None in found.values():
            raise InputError(Code.PK_NULL, where=where, found="a null in a key column")
        return tuple(found[name] for name in self._key_names)


_DELETED: Mapping[Value, bool] = {None: False, False: False, True: True, "false": False, "true": True}


def _mismatch(found: str, where: str | None) -> InputError:
    return InputError(Code.KEY_MISMATCH, where=where, found=found)
