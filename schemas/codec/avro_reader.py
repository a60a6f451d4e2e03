"""Records in Avro by a schema registry as structs, by the schema that each record names.

They are read columnar, and marked ones by the fallback. What is read of a writer's schema are projections: of a row or
key, or of Debezium's event. That is the envelope, a record of `op`, `after`, `source` and more, as Kafka Connect's
converters write it; what days, times and decimals mean is in the writer's schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.cells import cell_of
from schemas.avro.columns.records import RegisteredColumns
from schemas.avro.fallback import RegisteredRecords
from schemas.avro.projection import (
    Project,
    Projection,
    branches_of,
    of_record,
    of_value,
    record_fields,
)
from schemas.avro.registered import Schemas
from schemas.avro.writer_schemas import Schema, WriterSchemaError
from schemas.codec.debezium import event_type, images
from schemas.codec.envelopes import IS_DELETED
from schemas.codec.logs import NUMBERS, TEXTS
from schemas.codec.results import (
    ReadStructs,
    fields_of,
    flags_of,
    null_where,
    read_marked,
    replaced,
    row_type,
)
from schemas.errors import Code, InputError
from schemas.table import Column
from schemas.types import ColumnType, TypeName

if TYPE_CHECKING:
    from schemas.formats.debezium import DebeziumFormat
    from schemas.formats.protocol import Half
    from schemas.formats.upsert import UpsertFormat


def row_projects(
    format_: UpsertFormat,
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    names: frozenset[str] | None,
) -> dict[Half, Project]:
    """Projections, by the writer's schema, of a `value`, and of a `key` that is in Avro.

    Of a value the field that says that it is deleted is read as well, as a text or a boolean.
    """
    deleted_field, sub_micros = format_.deleted_field_beside(columns), format_.sub_micros
    row = partial(of_record, sub_micros=sub_micros, names=names)
    found: dict[Half, Project] = {"value": partial(row, columns=columns)}
    if deleted_field is not None and deleted_field not in {column.name for column in columns}:
        found["value"] = partial(_of_row, columns=columns, deleted_field=deleted_field, of_columns=row)
    if format_.key == "record":
        found["key"] = partial(of_record, columns=key_columns, exact=True, sub_micros=sub_micros)
    elif format_.key == "avro":
        found["key"] = partial(of_value, column=key_columns[0])
    return found


def _of_row(
    schema: Schema, columns: Sequence[Column], deleted_field: str, of_columns: Callable[..., Projection]
) -> Projection:
    kinds = {each["type"] for each in branches_of(record_fields(schema).get(deleted_field, "null"))}
    name = TypeName.BOOLEAN if "boolean" in kinds else TypeName.STRING
    deleted = Column(deleted_field, ColumnType(name), nullable=True)
    return of_columns(schema, columns=[*columns, deleted])


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


def event_projects(
    format_: DebeziumFormat,
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    names: frozenset[str] | None,
) -> dict[Half, Project]:
    """Projections of a `value` and a `key`."""
    sub_micros = format_.sub_micros
    row = partial(of_record, columns=columns, sub_micros=sub_micros, names=names)
    source = (*SOURCE, TRANSACTION) if format_.reads_transactions else SOURCE
    parts = {
        "source": partial(_of_source, columns=source),
        **dict.fromkeys(images(whole=format_.is_whole), row),
    }
    return {
        "value": partial(_of_event, parts=parts),
        "key": partial(of_record, columns=key_columns, exact=True, sub_micros=sub_micros),
    }


def _of_event(schema: Schema, parts: Mapping[str, Project]) -> Projection:
    if not record_fields(schema).keys() & {column.name for column in ENVELOPE}:
        raise WriterSchemaError("a record that is no change event: it has no op")
    return of_record(schema, ENVELOPE, parts=parts)


def _of_source(schema: Schema, columns: Sequence[Column]) -> Projection:
    """Fields of other types, as other connectors have them under these names, are left out."""
    fields = record_fields(schema)

    def fits(column: Column) -> bool:
        try:
            return column.name in fields and cell_of(column, fields[column.name]) is not None
        except WriterSchemaError:
            return False

    return of_record(schema, list(filter(fits, columns)))


@dataclass
class AvroReader:
    """See `schemas.codec.results.StructReader`: structs of the type `kind`.

    `project` says what is read of a writer's schema; `half` names what is read in errors, as `a value`; `general` is
    the code of bytes that have no code of their own.
    """

    schemas: Schemas
    project: Project
    kind: pa.StructType
    half: str
    general: Code

    def __post_init__(self) -> None:
        self._columns = RegisteredColumns(self.schemas, self.project, self.kind)
        self._records = RegisteredRecords(self.schemas, self.project, self.half)

    def read(self, records: pa.BinaryArray) -> ReadStructs:
        structs, marked = self._columns.read(records)
        rows, found, errors = read_marked(records, marked, self._record)
        if not found:
            return ReadStructs.of(structs)
        return ReadStructs.of(replaced(structs, rows, pa.array(found, self.kind)), errors)

    def _record(self, data: bytes) -> dict[str, Any]:
        read = self._records.read(data, general=self.general)
        return {name: _as_text(each, self.kind, name) for name, each in read.items()}


@dataclass
class AvroKeys:
    """Keys: records of the key columns, or the value of a single one."""

    schemas: Schemas
    project: Project
    key_columns: Sequence[Column]

    def __post_init__(self) -> None:
        kind = row_type(self.key_columns)
        self._reader = AvroReader(self.schemas, self.project, kind, "a key", Code.KEY_MISMATCH)

    def read(self, records: pa.BinaryArray) -> ReadStructs:
        read = self._reader.read(records)
        errors, is_null = dict(read.errors), np.zeros(len(records), np.bool_)
        for column in read.structs.flatten():
            is_null |= flags_of(column.is_null())
        for row in np.flatnonzero(is_null).tolist():
            errors.setdefault(row, InputError(Code.PK_NULL, found="a null in a key column"))
        return ReadStructs.of(null_where(read.structs, is_null), errors)


@dataclass
class AvroRows:
    """Values that are rows: structs of `keyed.upsert_type`. `deleted_field` as in `formats.upsert`."""

    schemas: Schemas
    project: Project
    columns: Sequence[Column]
    deleted_field: str | None = None

    def __post_init__(self) -> None:
        kind = row_type(self.columns)
        self._has_own = self.deleted_field is not None and kind.get_field_index(self.deleted_field) < 0
        if self._has_own:
            kind = pa.struct([*kind, pa.field(self.deleted_field, pa.string())])
        self._reader = AvroReader(self.schemas, self.project, kind, "a value", Code.CHANGE_MALFORMED)

    def read(self, records: pa.BinaryArray) -> ReadStructs:
        read = self._reader.read(records)
        if self.deleted_field is None:
            return read
        columns = fields_of(read.structs)
        is_deleted, errors = self._deleted(columns[self.deleted_field], dict(read.errors))
        if self._has_own:
            del columns[self.deleted_field]
        kind = pa.struct([*row_type(self.columns), pa.field(IS_DELETED, pa.bool_())])
        arrays = [*columns.values(), is_deleted]
        structs = pa.StructArray.from_arrays(arrays, fields=list(kind), mask=read.structs.is_null())
        return ReadStructs.of(structs, errors)

    def _deleted(
        self, found: pa.Array, errors: dict[int, InputError]
    ) -> tuple[pa.BooleanArray, dict[int, InputError]]:
        """Raises nothing: a value that is neither true nor false is an error of its record."""
        is_text = pa.types.is_string(found.type) or pa.types.is_boolean(found.type)
        texts = found.cast(pa.string()) if is_text else pc.if_else(found.is_null(), None, pa.scalar(""))
        number = pc.index_in(texts, pa.array(["false", "true"]))
        for row in np.flatnonzero(flags_of(pc.and_(number.is_null(), texts.is_valid()))):
            text = f"a value whose {self.deleted_field} is neither true nor false"
            error = InputError(Code.CHANGE_MALFORMED, found=text, expected="true, false or null")
            errors.setdefault(int(row), error)
        return pc.equal(number, 1).fill_null(False), errors


@dataclass
class AvroEvents:
    """Change events of Debezium: structs of `debezium.event_type` over `columns`.

    Texts of the source are projected as bytes, for they need not be UTF-8.
    """

    schemas: Schemas
    project: Project
    columns: Sequence[Column]
    whole: bool
    transactions: bool

    def __post_init__(self) -> None:
        self._kind = event_type(self.columns, whole=self.whole, transactions=self.transactions)
        kinds: dict[str, pa.DataType] = {"op": pa.binary(), "ts_ms": pa.int64()}
        source = self._kind.field("source").type
        kinds["source"] = pa.struct(
            [(each.name, pa.binary() if pa.types.is_string(each.type) else each.type) for each in source]
        )
        kinds |= {each.name: each.type for each in self._kind if each.name not in (*kinds, "has_time")}
        kind = pa.struct(list(kinds.items()))
        self._reader = AvroReader(self.schemas, self.project, kind, "a value", Code.CHANGE_MALFORMED)

    def read(self, records: pa.BinaryArray) -> ReadStructs:
        read = self._reader.read(records)
        found = fields_of(read.structs)
        source = found["source"]
        fields = list(self._kind.field("source").type)
        texts = [_texts(each) if pa.types.is_binary(each.type) else each for each in source.flatten()]
        found["op"], found["has_time"] = _texts(found["op"]), found["ts_ms"].is_valid()
        found["source"] = pa.StructArray.from_arrays(texts, fields=fields, mask=source.is_null())
        arrays = [found[each.name] for each in self._kind]
        structs = pa.StructArray.from_arrays(arrays, fields=list(self._kind), mask=read.structs.is_null())
        return ReadStructs.of(structs, read.errors)


def _as_text(value: Any, kind: pa.StructType, name: str) -> Any:
    """A boolean that is read for a text, as Arrow's cast has it."""
    if type(value) is bool and pa.types.is_string(kind.field(name).type):
        return "true" if value else "false"
    return value


def _texts(data: pa.BinaryArray) -> pa.StringArray:
    """Bytes as texts; what is not UTF-8 is replaced."""
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if each is None else each.decode(errors="replace") for each in data.to_pylist()],
            pa.string(),
        )
