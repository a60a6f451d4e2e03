"""Rows of `upsert` in Avro by a schema registry, by whole columns: what `schemas.formats.upsert_avro` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.columns.by_id import RegisteredColumns
from schemas.avro.columns.cursor import spread
from schemas.avro.registered import Schemas
from schemas.formats.by_columns.upserts import has_keys, struct_of, upserted
from schemas.formats.protocol import ReadColumns
from schemas.formats.upsert import KeyForm
from schemas.formats.upsert_avro import projects
from schemas.json.values import SubMicros
from schemas.records import refuse
from schemas.table import Column


@dataclass(frozen=True)
class RegisteredUpsertColumns:
    """See `formats.protocol.ColumnReader`."""

    columns: tuple[Column, ...]
    key_columns: tuple[Column, ...]
    keys: RegisteredColumns
    values: RegisteredColumns
    deleted_field: str | None = None

    @classmethod
    def of(
        cls,
        columns: Sequence[Column],
        key_columns: Sequence[Column],
        key: KeyForm,
        schemas: Schemas,
        sub_micros: SubMicros = "refuse",
        deleted_field: str | None = None,
    ) -> RegisteredUpsertColumns | None:
        """None where keys are not in Avro, or rows do not have them."""
        read = projects(key, columns, key_columns, sub_micros, deleted_field)
        if "key" not in read or not has_keys(columns, key_columns):
            return None
        row = struct_of(columns)
        if deleted_field is not None and deleted_field not in row.names:
            row = pa.struct([*row, pa.field(deleted_field, pa.string())])
        return cls(
            tuple(columns),
            tuple(key_columns),
            RegisteredColumns(schemas, read["key"], struct_of(key_columns)),
            RegisteredColumns(schemas, read["value"], row),
            deleted_field,
        )

    def __call__(self, keys: pa.BinaryArray, values: pa.BinaryArray) -> ReadColumns:
        """A null is a DELETE. Raises: OddRecordError."""
        own = self.keys.read(keys).flatten()
        refuse(any(key.null_count for key in own))
        is_row = values.is_valid()
        rows = self.values.read(values.drop_null())
        if (
            self.deleted_field is not None
            and (is_gone := _are_true(rows.field(self.deleted_field))) is not None
        ):
            rows = rows.filter(pc.invert(is_gone))
            is_row = pc.and_(
                is_row, pc.invert(spread(is_gone, is_row.to_numpy(zero_copy_only=False)).fill_null(True))
            )
        found = rows.flatten()[: len(self.columns)]
        of_rows = [key.filter(is_row) for key in own]
        rows = with_keys(self.columns, self.key_columns, found, of_rows)
        return upserted(self.columns, self.key_columns, own, rows, is_row)


def _are_true(found: pa.Array) -> pa.BooleanArray | None:
    """Where a text or a boolean is true; None where none is. Raises: OddRecordError for one that is no boolean."""
    if found.null_count == len(found):
        return None
    refuse(not (pa.types.is_string(found.type) or pa.types.is_boolean(found.type)))
    number = pc.index_in(found.drop_null().cast(pa.string()), pa.array(["false", "true"]))
    refuse(number.null_count)
    return (
        pc.equal(found.cast(pa.string()), "true").fill_null(False)
        if pc.any(number.cast(pa.bool_())).as_py()
        else None
    )


def with_keys(
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    rows: Sequence[pa.Array],
    keys: Sequence[pa.Array],
) -> list[pa.Array]:
    """The rows with their key columns from the keys. Raises: OddRecordError where a row has another value there."""
    own = {column.name: key for column, key in zip(key_columns, keys, strict=True)}
    for column, found in zip(columns, rows, strict=True):
        if column.name in own:
            refuse(not pc.all(pc.equal(found, own[column.name]), min_count=0).as_py())
    return [own.get(column.name, found) for column, found in zip(columns, rows, strict=True)]
