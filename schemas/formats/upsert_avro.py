"""Rows of the format `upsert` in Avro by a schema registry, one by one: the strict twin of its Spark columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from schemas.avro.by_id import RegisteredRecords
from schemas.avro.projection import Project, of_record, of_value
from schemas.avro.registered import Schemas
from schemas.errors import Code, InputError
from schemas.formats.protocol import Rows
from schemas.formats.upsert import KeyForm
from schemas.formats.upsert_json import JsonUpserts
from schemas.position import Key
from schemas.records import Change, Op
from schemas.table import Column


def projects(key: KeyForm, columns: Sequence[Column], key_columns: Sequence[Column]) -> dict[str, Project]:
    """How a `value` is read, by the writer's schema, and a `key` that is in Avro, too."""
    found: dict[str, Project] = {"value": partial(of_record, columns=columns)}
    if key == "record":
        found["key"] = partial(of_record, columns=key_columns, exact=True)
    elif key == "avro":
        found["key"] = partial(of_value, column=key_columns[0])
    return found


class AvroUpserts(Rows):
    """Rows and keys, see `formats.protocol.Rows`. An INSERT here only says what the row is now."""

    def __init__(
        self, columns: Sequence[Column], key_columns: Sequence[Column], key: KeyForm, schemas: Schemas
    ) -> None:
        self._columns = tuple(column.name for column in columns)
        self._key_names = tuple(column.name for column in key_columns)
        read = projects(key, columns, key_columns)
        self._values = RegisteredRecords(schemas, read["value"], "a value")
        self._read_key: Callable[..., Key]
        if "key" in read:
            self._keys = RegisteredRecords(schemas, read["key"], "a key")
            self._read_key = self._registered_key
        else:
            self._read_key = JsonUpserts(columns, key_columns, key).read_key

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """Raises: InputError: KEY_MISMATCH for what is no key in this form, PK_NULL, and as values do."""
        return self._read_key(data, where=where)

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError as `read_key`, and as `RegisteredRecords.read`, CHANGE_MALFORMED in general."""
        if key is None:
            raise _mismatch("a record without a key", where)
        keys = dict(zip(self._key_names, self.read_key(key, where=where), strict=True))
        if not value:
            return Change(Op.DELETE, tuple(keys.get(name) for name in self._columns), None)
        row = self._values.read(value, general=Code.CHANGE_MALFORMED, where=where)
        for name, found in keys.items():
            if row.get(name) is not None and row[name] != found:
                raise _mismatch("a value whose key columns are not those of its key", where)
        row |= keys
        return Change(Op.INSERT, None, tuple(row.get(name) for name in self._columns))

    def _registered_key(self, data: bytes, *, where: str | None = None) -> Key:
        if not data:
            raise _mismatch("a record without a key", where)
        found = self._keys.read(data, general=Code.KEY_MISMATCH, where=where)
        if None in found.values():
            raise InputError(Code.PK_NULL, where=where, found="a null in a key column")
        return tuple(found[name] for name in self._key_names)


def _mismatch(found: str, where: str | None) -> InputError:
    return InputError(Code.KEY_MISMATCH, where=where, found=found)
