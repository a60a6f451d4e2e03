"""Whole records, columnar: keys or values that name their schemas, and those of the format `change`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from schemas.arrays import in_order
from schemas.avro.cells import Cell
from schemas.avro.columns.cells import optional, read_cell
from schemas.avro.columns.cursor import Cursor, Flags, Places, spread
from schemas.avro.columns.passing import pass_over
from schemas.avro.projection import Project, Projection, projected
from schemas.avro.registered import FRAME_BYTES, MAGIC, Schemas
from schemas.avro.writer_schemas import WriterSchemaError
from schemas.codec.results import row_type
from schemas.records import Op
from schemas.table import Column


class RegisteredColumns:
    """Reads keys or values, each by the schema that it names, as structs of the type `kind`.

    Its fields are the columns of the projections, in any order, and for each part a struct of the part's in turn. What
    a writer's schema does not have is its fill, or null.
    """

    def __init__(self, schemas: Schemas, project: Project, kind: pa.StructType) -> None:
        self._schemas, self._project, self.kind = schemas, project, kind
        self._plans: dict[int, Projection | None] = {}

    def read(self, records: pa.BinaryArray) -> tuple[pa.StructArray, Flags]:
        """One for each, and flags for those that are marked, whose structs are arbitrary.

        Also marked are nulls, and records whose schema is not known or does not fit. Raises: as `Schemas.get`.
        """
        cursor = Cursor.of(records)
        ids = _ids(cursor)
        groups = []
        for schema_id in np.unique(ids[~cursor.marked]).tolist():
            if (plan := self._plan(schema_id)) is None:
                cursor.mark(ids == schema_id)
                continue
            rows = np.flatnonzero((ids == schema_id) & ~cursor.marked)
            own = cursor.among(rows)
            groups.append((rows, _rows(own, plan, self.kind)))
            own.check_read()
            cursor.follow(rows, own)
        if not groups:
            return pa.nulls(len(ids), self.kind), cursor.marked
        return in_order(groups, len(ids)), cursor.marked

    def _plan(self, schema_id: int) -> Projection | None:
        if schema_id not in self._plans:
            schema = self._schemas.get(schema_id)
            if schema is None:
                return None
            try:
                self._plans[schema_id] = projected(schema, self._project)
            except WriterSchemaError:
                self._plans[schema_id] = None
        return self._plans[schema_id]


def _ids(cursor: Cursor) -> Places:
    frames = cursor.fixed(FRAME_BYTES)
    cursor.check_within()
    cursor.mark(frames[:, 0] != MAGIC)
    return np.ascontiguousarray(frames[:, 1:]).view(">u4")[:, 0].astype(np.int64)


def _rows(cursor: Cursor, projection: Projection, kind: pa.StructType) -> pa.StructArray:
    """The next record of each, which is no union."""
    found = dict[str, pa.Array]()
    for name, schema, plan in projection.fields:
        match plan:
            case Cell():
                found[name] = read_cell(cursor, schema, plan)
            case Projection():
                part = partial(_rows, projection=plan, kind=kind.field(name).type)
                found[name] = optional(cursor, schema, part)
            case None:
                pass_over(cursor, schema)
    count = len(cursor.at)
    for column, fill in projection.fills.items():
        found[column] = pa.repeat(pa.scalar(fill, kind.field(column).type), count)
    arrays = [
        found[each.name].cast(each.type) if each.name in found else pa.nulls(count, each.type)
        for each in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


class ReadChanges(NamedTuple):
    """The ops of n `Change` records, and their images: structs of the columns, null where the op has none.

    All are arbitrary for a record that is `marked`.
    """

    ops: pa.Int8Array
    before: pa.StructArray
    after: pa.StructArray
    marked: Flags


def read_changes(columns: Sequence[Column], values: pa.BinaryArray) -> ReadChanges:
    """Reads n `Change` records."""
    cursor = Cursor.of(values)
    codes = cursor.byte()
    cursor.check_within()
    cursor.mark((codes & 1 == 1) | (codes > 2 * max(Op)))
    ops = (codes >> 1).astype(np.int8)
    before, after = (_read_image(cursor, columns, ops != lacking) for lacking in (Op.INSERT, Op.DELETE))
    cursor.check_read()
    return ReadChanges(pa.array(ops), before, after, cursor.marked)


def read_change_keys(key_columns: Sequence[Column], keys: pa.BinaryArray) -> tuple[pa.StructArray, Flags]:
    """The columns of n `Key` records as structs, and flags for those that are marked."""
    cursor = Cursor.of(keys)
    arrays = [cursor.column(column) for column in key_columns]
    cursor.check_read()
    return pa.StructArray.from_arrays(arrays, fields=list(row_type(key_columns))), cursor.marked


def _read_image(cursor: Cursor, columns: Sequence[Column], is_due: Flags) -> pa.StructArray:
    rows, is_there = cursor.branches()
    cursor.mark(is_there != is_due)
    fields = list(row_type(columns))
    if rows is None:
        return pa.StructArray.from_arrays([cursor.column(column) for column in columns], fields=fields)
    own = cursor.among(rows)
    arrays = [spread(own.column(column), is_there) for column in columns]
    cursor.follow(rows, own)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(~is_there))
