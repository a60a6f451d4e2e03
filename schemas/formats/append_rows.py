"""Rows of the format `append`, one by one: the reference decoders of upstreams and outputs.

Keys are not looked at: every key, and none, is the empty one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from schemas.avro.by_id import RegisteredRecords
from schemas.avro.projection import Project, of_record
from schemas.avro.registered import Schemas
from schemas.errors import Code, InputError
from schemas.formats.outputs.halves import Values
from schemas.formats.protocol import Origin, OutputRows, Rows
from schemas.formats.upsert_json import JsonObjects, error
from schemas.json.parsing.tokens import JsonError
from schemas.json.values import SubMicros
from schemas.position import Key
from schemas.records import Change, Op, Row, UpstreamRecord
from schemas.table import Column


def project(columns: Sequence[Column], sub_micros: SubMicros = "refuse") -> Project:
    """How a value in Avro is read, by the writer's schema."""
    return partial(of_record, columns=columns, sub_micros=sub_micros)


class _AppendedRows(Rows):
    """An upstream's rows. A null value is no row."""

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """The empty one."""
        return ()

    def read_record(
        self, key: bytes | None, value: bytes | None, *, where: str | None = None
    ) -> UpstreamRecord:
        """`change` is None for a null value. Raises: InputError as `read_change`."""
        return UpstreamRecord(None if value is None else self.read_change(key, value, where=where))


class JsonRows(_AppendedRows):
    """Objects, as docs/formats.md#json-values has them."""

    def __init__(self, columns: Sequence[Column], sub_micros: SubMicros) -> None:
        self._names = tuple(column.name for column in columns)
        self._rows = JsonObjects(columns, sub_micros)

    def read_record(
        self, key: bytes | None, value: bytes | None, *, where: str | None = None
    ) -> UpstreamRecord:
        """`change` is None for a null value, also in a frame. Raises: InputError as `read_change`."""
        if value is None:
            return UpstreamRecord(None)
        try:
            row = self._rows.row(value)
        except JsonError as reason:
            raise error(reason, "a value", where) from None
        if row is None:
            return UpstreamRecord(None)
        return UpstreamRecord(Change(Op.INSERT, None, tuple(map(row.get, self._names))))

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError: JSON_MALFORMED, VALUE_OUT_OF_RANGE, BAD_ENCODING; ValueError for no row."""
        change = self.read_record(key, value or b"", where=where).change
        if change is None:
            raise ValueError("a record that is no row")
        return change


class AvroRows(_AppendedRows):
    """Avro by a schema registry."""

    def __init__(self, columns: Sequence[Column], schemas: Schemas, sub_micros: SubMicros) -> None:
        self._names = tuple(column.name for column in columns)
        self._values = RegisteredRecords(schemas, project(columns, sub_micros), "a value")

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError as `RegisteredRecords.read`, CHANGE_MALFORMED in general."""
        row = self._values.read(value or b"", general=Code.CHANGE_MALFORMED, where=where)
        return Change(Op.INSERT, None, tuple(row.get(name) for name in self._names))


class WrittenRows(OutputRows):
    """An output's rows; each record has a value."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """The empty one."""
        return ()

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError as `Values.read`; TOMBSTONE_UNSUPPORTED."""
        if value is None:
            raise InputError(Code.TOMBSTONE_UNSUPPORTED, where=where, found="a null value")
        return Change(Op.INSERT, None, self._values.read(value, where))

    def write_key(self, key: Key) -> bytes:
        """Nothing: what is sent is the key that came."""
        return b""

    def write_insert(self, row: Row, origin: Origin) -> bytes:
        return self._values.write(row)

    def write_change(self, change: Change, origin: Origin) -> bytes:
        return self._values.write(change.row)
