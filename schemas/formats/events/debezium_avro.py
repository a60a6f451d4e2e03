"""Events of the format `debezium` in Avro by a schema registry, one by one: the reference decoder.

A value is the envelope, a record of `op`, `after`, `source` and more, as Kafka Connect's converters write it; a key is
a record of the key columns. What days, times and decimals mean is in the writer's schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from schemas.avro.by_id import RegisteredRecords
from schemas.avro.cells import cell_of
from schemas.avro.projection import Project, Projection, fields_of, of_record
from schemas.avro.registered import Schemas
from schemas.avro.writers.meanings import MisfitError, Schema
from schemas.errors import Code, InputError
from schemas.formats.events.logs import NUMBERS, TEXTS, log_position
from schemas.formats.events.rows import (
    MESSAGE,
    Event,
    EventError,
    EventRows,
    Half,
    check_op,
    halves,
    mismatch,
    transaction_of,
)
from schemas.json.parsing.placeholder import Placeholder
from schemas.json.values import SubMicros
from schemas.records import UpstreamRecord
from schemas.table import Column
from schemas.types import ColumnType, TypeName, Value

ENVELOPE = (
    Column("op", ColumnType(TypeName.BINARY), nullable=True),
    Column("ts_ms", ColumnType(TypeName.BIGINT), nullable=True),
)
SOURCE = (
    *(Column(name, ColumnType(TypeName.BINARY), nullable=True) for name in TEXTS),
    *(Column(name, ColumnType(TypeName.BIGINT), nullable=True) for name in NUMBERS),
)
"""The fields of an event's source that are read. Texts are read as bytes, for they need not be UTF-8."""
TRANSACTION = Column("txId", ColumnType(TypeName.BIGINT), nullable=True)
"""Read as well, where transactions are asked for."""


def projects(
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    *,
    whole: bool,
    transactions: bool = False,
    sub_micros: SubMicros = "refuse",
) -> dict[Literal["key", "value"], Project]:
    """How a `value` and a `key` are read. `whole`: the row before, too; `transactions`: the transaction's id, too."""
    parts: dict[str, Project] = {
        "source": partial(_of_source, columns=source_columns(transactions=transactions))
    }
    for half in halves(whole=whole):
        parts[half] = partial(
            of_record, columns=columns, name=f"backfill.{half.title()}", sub_micros=sub_micros
        )
    return {
        "value": partial(_of_event, parts=parts),
        "key": partial(of_record, columns=key_columns, exact=True, sub_micros=sub_micros),
    }


def left_out(unavailable: Placeholder) -> Mapping[TypeName, frozenset[Value]]:
    """By type, what stands in place of a value that is what it was: the placeholder in each of its forms."""
    return {
        TypeName.STRING: unavailable.texts,
        TypeName.BINARY: frozenset(text.encode() for text in unavailable.texts),
    }


def source_columns(*, transactions: bool) -> tuple[Column, ...]:
    """The fields of an event's source that are read."""
    return (*SOURCE, TRANSACTION) if transactions else SOURCE


def _of_event(schema: Schema, parts: Mapping[str, Project]) -> Projection:
    if not fields_of(schema).keys() & {column.name for column in ENVELOPE}:
        raise MisfitError("a record that is no change event: it has no op")
    return of_record(schema, ENVELOPE, parts=parts)


def _of_source(schema: Schema, columns: Sequence[Column]) -> Projection:
    """Fields of other types, as other connectors have them under these names, are left out."""
    fields = fields_of(schema)

    def fits(column: Column) -> bool:
        try:
            return column.name in fields and cell_of(column, fields[column.name]) is not None
        except MisfitError:
            return False

    return of_record(schema, list(filter(fits, columns)), name="backfill.Source")


class AvroEvents(EventRows):
    """Rows and keys, see `formats.protocol.Rows`."""

    def __init__(
        self,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        schemas: Schemas,
        unavailable: Placeholder,
        *,
        whole: bool = False,
        transactions: bool = False,
        sub_micros: SubMicros = "refuse",
    ) -> None:
        super().__init__(columns, key_columns, whole=whole)
        self._transactions = transactions
        self._unavailable = left_out(unavailable)
        read = projects(columns, key_columns, whole=whole, transactions=transactions, sub_micros=sub_micros)
        self._values = RegisteredRecords(schemas, read["value"], "a value")
        self._key_records = RegisteredRecords(schemas, read["key"], "a key")

    def read_record(
        self, key: bytes | None, value: bytes | None, *, where: str | None = None
    ) -> UpstreamRecord:
        """Raises: InputError as `read_key`; UNKNOWN_OP, TRUNCATE_UNSUPPORTED; as `RegisteredRecords.read`."""
        if not value:
            return self._without_value(key, where)
        found = self._values.read(value, general=Code.CHANGE_MALFORMED, where=where)
        source, row = found.get("source"), found.get("after")
        op = _text(found.get("op"))
        is_alive = op is None and source is None and row is None and found.get("ts_ms") is not None
        if op == MESSAGE or is_alive:
            return UpstreamRecord(None)
        try:
            op = check_op(op, has_after=row is not None)
        except EventError as reason:
            code = reason.code or Code.CHANGE_MALFORMED
            raise InputError(code, where=where, found=f"a value with {reason}") from None
        origin: dict[str, Any] = {
            name: _text(each) if isinstance(each, bytes) else each for name, each in (source or {}).items()
        }
        before, after = (self._half(found.get(name)) for name in ("before", "after"))
        transaction = transaction_of(origin, origin.get("txId")) if self._transactions else None
        event = Event(op, before, after, log_position(origin), origin.get("snapshot"), transaction)
        return self._record(event, self._key(key, where), where)

    def _half(self, row: dict[str, Value] | None) -> Half | None:
        return None if row is None else Half(row, self._left_out(row))

    def _left_out(self, row: dict[str, Value]) -> tuple[int, ...]:
        """The columns whose value is left out; they are removed from `row`."""
        found = [
            index
            for index, column in enumerate(self._columns)
            if column.name not in self._keys
            and row.get(column.name) in self._unavailable.get(column.type.name, ())
        ]
        for index in found:
            del row[self._columns[index].name]
        return tuple(found)

    def _key(self, data: bytes | None, where: str | None) -> dict[str, Value]:
        if not data:
            raise mismatch("a record without a key", where)
        found = self._key_records.read(data, general=Code.KEY_MISMATCH, where=where)
        if None in found.values():
            raise InputError(Code.PK_NULL, where=where, found="a null in a key column")
        return {column.name: found[column.name] for column in self._key_columns}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
