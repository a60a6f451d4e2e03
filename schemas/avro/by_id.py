"""The strict reader of a record's key or value that names its schema: the reference decoder."""

from __future__ import annotations

from typing import Any, NamedTuple

import fastavro

from schemas.avro.cells import CellError
from schemas.avro.limits import MalformedError
from schemas.avro.projection import Project, Projection, projected
from schemas.avro.reader import RecordReader
from schemas.avro.registered import FRAME_BYTES, Schemas, framed_id
from schemas.avro.writers.meanings import MisfitError
from schemas.errors import Code, InputError

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
            raise InputError(Code.SCHEMA_INCOMPATIBLE, where=where, found=found) from None
        writer, reader = map(fastavro.parse_schema, (projection.writer, projection.reader))
        return _Reader(projection, RecordReader(writer, reader))


_BY_COLUMN = frozenset({Code.VALUE_OUT_OF_RANGE, Code.BAD_ENCODING})
"""Codes whose texts name a column."""
