"""The fallback of columns: one record at a time, by fastavro, for exactly those that `schemas.avro.columns` marks.

Nearly all of them are invalid, and get their error here. To name it in columns as well would take a second order of all
that can be wrong with bytes, beside that of fastavro, by which barriers are read in any case. The others are rare,
and read faster alone: a list much longer than its neighbours', deeply nested values, texts in unusual forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import fastavro

from schemas.avro.binary import change_schema, key_schema
from schemas.avro.cells import CellError
from schemas.avro.limits import MalformedError
from schemas.avro.projection import Project, Projection, projected
from schemas.avro.reader import Ranges, RecordReader, check_op
from schemas.avro.registered import FRAME_BYTES, Schemas, framed_id
from schemas.avro.writers.meanings import MisfitError
from schemas.errors import Code, InputError
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column

HALVES = "INSERT with after, DELETE with before, UPDATE with both"
_FORM = "a zero byte, the id of a schema in four bytes, and Avro by this schema"


class _Reader(NamedTuple):
    """The reader of the records of one schema, and the projection (with its two schemas) that it reads them by."""

    projection: Projection
    records: RecordReader


class RegisteredRecords:
    """Reads keys or values, each by the schema that it names. `what` names them in errors, as `a value`."""

    def __init__(self, schemas: Schemas, project: Project, what: str) -> None:
        self._schemas, self._project, self._what = schemas, project, what
        self._readers: dict[int, _Reader] = {}

    def read(self, data: bytes, *, general: Code, where: str | None = None) -> dict[str, Any]:
        """The columns and parts that the writer's schema has, as `Projection.row`.

        Raises: InputError: SCHEMA_UNKNOWN; SCHEMA_INCOMPATIBLE; AVRO_TRUNCATED, AVRO_TRAILING, AVRO_LIMIT;
        VALUE_OUT_OF_RANGE, BAD_ENCODING; `general` for anything else. And as `Schemas.get`.
        """
        schema_id = framed_id(data)
        if schema_id is None:
            found = f"{self._what} of {len(data)} bytes without the id of a schema in front"
            raise InputError(general, where=where, found=found, expected=_FORM)
        if schema_id not in self._readers:
            self._readers[schema_id] = self._reader(schema_id, where)
        projection, records = self._readers[schema_id]
        try:
            return projection.row(records.read(data[FRAME_BYTES:]))
        except CellError as reason:
            code = reason.code or general
            found = f"{self._what} by schema {schema_id} with {reason}"
            values = {"column": reason.column} if code in _BY_COLUMN else {}
            expected = None if values else _FORM
            raise InputError(code, where=where, found=found, expected=expected, **values) from None
        except MalformedError as reason:
            found = f"{self._what} of {len(data)} bytes that is none of schema {schema_id} ({reason})"
            raise InputError(reason.code or general, where=where, found=found, expected=_FORM) from None

    def _reader(self, schema_id: int, where: str | None) -> _Reader:
        schema = self._schemas.get(schema_id)
        if schema is None:
            found = f"{self._what} by schema {schema_id}, which the registry does not know"
            raise InputError(Code.SCHEMA_UNKNOWN, where=where, found=found)
        try:
            projection = projected(schema, self._project)
        except MisfitError as reason:
            found = f"{self._what} by schema {schema_id}: {reason}"
            raise InputError(reason.code, where=where, found=found) from None
        writer, reader = map(fastavro.parse_schema, (projection.writer, projection.reader))
        return _Reader(projection, RecordReader(writer, reader))


_BY_COLUMN = frozenset({Code.VALUE_OUT_OF_RANGE, Code.BAD_ENCODING})
"""Codes whose texts name a column."""


def _avro_error(reason: MalformedError, code: Code, what: str, data: bytes, where: str | None) -> InputError:
    return InputError(
        reason.code or code,
        where=where,
        found=f"{len(data)} bytes that are no {what} ({reason})",
        expected=f"schemaless Avro of {what} as the table declares it",
    )


class ChangeRecords:
    """Reads `Change` records over one list of columns. Rows are tuples in that order."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._reader = RecordReader(fastavro.parse_schema(change_schema(columns)))
        self._ranges = Ranges(columns)

    def decode(self, data: bytes, *, where: str | None = None) -> Change:
        """Read a change.

        Raises:
            InputError: UNKNOWN_OP; AVRO_TRUNCATED; AVRO_TRAILING; AVRO_LIMIT, a length that no value has;
                BAD_ENCODING, a text that is not UTF-8; VALUE_OUT_OF_RANGE; CHANGE_MALFORMED, anything else, images
                that the op forbids included.
        """
        try:
            check_op(data)
            value = self._reader.read(data)
            change = Change(Op[value["op"]], _values(value["before"]), _values(value["after"]))
            for row in (change.before, change.after):
                if row is not None:
                    self._ranges.check(row)
        except MalformedError as reason:
            raise _avro_error(reason, Code.CHANGE_MALFORMED, "Change", data, where) from None
        if not change.is_well_formed():
            raise InputError(
                Code.CHANGE_MALFORMED,
                where=where,
                found=f"{change.op.name} with before={'null' if change.before is None else 'set'}, "
                f"after={'null' if change.after is None else 'set'}",
                expected=HALVES,
            )
        return change


def _values(record: dict[str, Any] | None) -> Row | None:
    return None if record is None else tuple(record.values())


class KeyRecords:
    """Reads the `Key` records of a table."""

    def __init__(self, key_columns: Sequence[Column]) -> None:
        self._reader = RecordReader(fastavro.parse_schema(key_schema(key_columns)))
        self._ranges = Ranges(key_columns)

    def decode(self, data: bytes, *, where: str | None = None) -> Key:
        """Read a key. InputError as from `ChangeRecords.decode`, but KEY_MISMATCH where no other code fits."""
        try:
            key = tuple(self._reader.read(data).values())
            self._ranges.check(key)
        except MalformedError as reason:
            raise _avro_error(reason, Code.KEY_MISMATCH, "Key", data, where) from None
        return key
