"""The fallback of columns: one record at a time, for exactly those that `schemas.avro.columns` marks.

Nearly all of them are invalid, and get their error here. The others are rare, and read faster alone: a list much longer
than its neighbours', deeply nested values, texts in unusual forms.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from schemas.avro.cells import CellError
from schemas.avro.projection import Project, Projection, projected
from schemas.avro.record_bytes import INT_MAX, INT_MIN, MalformedError, RecordBytes
from schemas.avro.registered import FRAME_BYTES, Schemas, framed_id
from schemas.avro.writer_schemas import WriterSchemaError
from schemas.errors import Code, InputError
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column
from schemas.types import FIRST_DAY, FIRST_US, LAST_DAY, LAST_US, TypeName, Value

HALVES = "INSERT with after, DELETE with before, UPDATE with both"
_FORM = "a zero byte, the id of a schema in four bytes, and Avro by this schema"


class RegisteredRecords:
    """Reads keys or values, each by the schema that it names. `what` names them in errors, as `a value`."""

    def __init__(self, schemas: Schemas, project: Project, what: str) -> None:
        self._schemas, self._project, self._what = schemas, project, what
        self._projections: dict[int, Projection] = {}

    def read(self, data: bytes, *, general: Code, where: str | None = None) -> dict[str, Any]:
        """The columns and parts that the writer's schema has, as `Projection.value`.

        Raises: InputError: SCHEMA_UNKNOWN; SCHEMA_INCOMPATIBLE; AVRO_TRUNCATED, AVRO_TRAILING, AVRO_LIMIT;
        VALUE_OUT_OF_RANGE, BAD_ENCODING; `general` for anything else. And as `Schemas.get`.
        """
        schema_id = framed_id(data)
        if schema_id is None:
            found = f"{self._what} of {len(data)} bytes without the id of a schema in front"
            raise InputError(general, where=where, found=found, expected=_FORM)
        if schema_id not in self._projections:
            self._projections[schema_id] = self._projection(schema_id, where)
        projection, record = self._projections[schema_id], RecordBytes(data, FRAME_BYTES)
        try:
            raw = projection.read(record)
            record.finish()
            return projection.value(raw)
        except CellError as reason:
            code = reason.code or general
            found = f"{self._what} by schema {schema_id} with {reason}"
            values = {"column": reason.column} if code in _BY_COLUMN else {}
            expected = None if values else _FORM
            raise InputError(code, where=where, found=found, expected=expected, **values) from None
        except MalformedError as reason:
            found = f"{self._what} of {len(data)} bytes that is none of schema {schema_id} ({reason})"
            raise InputError(reason.code or general, where=where, found=found, expected=_FORM) from None

    def _projection(self, schema_id: int, where: str | None) -> Projection:
        schema = self._schemas.get(schema_id)
        if schema is None:
            found = f"{self._what} by schema {schema_id}, which the registry does not know"
            raise InputError(Code.SCHEMA_UNKNOWN, where=where, found=found)
        try:
            return projected(schema, self._project)
        except WriterSchemaError as reason:
            found = f"{self._what} by schema {schema_id}: {reason}"
            raise InputError(reason.code, where=where, found=found) from None


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
        self._rows = _RowReader(columns)

    def decode(self, data: bytes, *, where: str | None = None) -> Change:
        """Read a change.

        Raises:
            InputError: UNKNOWN_OP; AVRO_TRUNCATED; AVRO_TRAILING; AVRO_LIMIT, a length that no value has;
                BAD_ENCODING, a text that is not UTF-8; VALUE_OUT_OF_RANGE; CHANGE_MALFORMED, anything else, images
                that the op forbids included.
        """
        record = RecordBytes(data)
        try:
            op = record.integer()
            if not 0 <= op < len(Op):
                raise MalformedError(f"op {op} where 0..{len(Op) - 1} exist", Code.UNKNOWN_OP)
            before, after = (self._rows.read(record) if record.choice(2) else None for _ in range(2))
            record.finish()
        except MalformedError as reason:
            raise _avro_error(reason, Code.CHANGE_MALFORMED, "Change", data, where) from None
        change = Change(Op(op), before, after)
        if not change.is_well_formed():
            raise InputError(
                Code.CHANGE_MALFORMED,
                where=where,
                found=f"{change.op.name} with before={'null' if change.before is None else 'set'}, "
                f"after={'null' if change.after is None else 'set'}",
                expected=HALVES,
            )
        return change


class KeyRecords:
    """Reads the `Key` records of a table."""

    def __init__(self, key_columns: Sequence[Column]) -> None:
        self._rows = _RowReader(key_columns)

    def decode(self, data: bytes, *, where: str | None = None) -> Key:
        """Read a key. InputError as from `ChangeRecords.decode`, but KEY_MISMATCH where no other code fits."""
        record = RecordBytes(data)
        try:
            key = self._rows.read(record)
            record.finish()
        except MalformedError as reason:
            raise _avro_error(reason, Code.KEY_MISMATCH, "Key", data, where) from None
        return key


class _RowReader:
    """Reads the columns of a record of the contract's own schemas (`output_schemas`). Raises: MalformedError."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [(each, _VALUES[each.type.name]) for each in columns]

    def read(self, record: RecordBytes) -> Row:
        return tuple(
            None if column.nullable and not record.choice(2) else read(record, column)
            for column, read in self._columns
        )


def _int(record: RecordBytes, column: Column) -> int:
    number = record.integer()
    if not INT_MIN <= number <= INT_MAX:
        record.refuse(_out_of_range(column))
    return number


def _decimal(record: RecordBytes, column: Column) -> Decimal:
    data = record.sized()
    number = int.from_bytes(data, signed=True)
    if not data:
        record.refuse(MalformedError("a decimal of no byte"))
    elif abs(number) >= 10 ** (column.type.precision or 0):
        record.refuse(_out_of_range(column))
        number = 0
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -(column.type.scale or 0)))


def _out_of_range(column: Column) -> MalformedError:
    return MalformedError(f"column {column.name} does not fit {column.type}", Code.VALUE_OUT_OF_RANGE)


_UNIX_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_VALUES: dict[TypeName, Callable[[RecordBytes, Column], Value]] = {
    TypeName.BOOLEAN: lambda record, _: record.boolean(),
    TypeName.INT: _int,
    TypeName.BIGINT: lambda record, _: record.number(),
    TypeName.FLOAT: lambda record, _: record.real(),
    TypeName.DOUBLE: lambda record, _: record.double(),
    TypeName.DECIMAL: _decimal,
    TypeName.STRING: lambda record, _: record.text(),
    TypeName.BINARY: lambda record, _: record.sized(),
    TypeName.DATE: lambda record, _: (
        dt.date.min + dt.timedelta(days=record.within(FIRST_DAY, LAST_DAY) - FIRST_DAY)
    ),
    TypeName.TIMESTAMP: lambda record, _: (
        _UNIX_ZERO + dt.timedelta(microseconds=record.within(FIRST_US, LAST_US))
    ),
}
