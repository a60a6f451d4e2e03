"""Keys or values that name their schemas, columnar."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from schemas.avro.columns.cells import optional, read_cell
from schemas.avro.columns.cursor import Cursor, Flags, Places
from schemas.avro.columns.passing import named_types, pass_over
from schemas.avro.projection import Project, Projection, plain_name, projected
from schemas.avro.registered import FRAME_BYTES, MAGIC, Schemas
from schemas.avro.writers.meanings import MisfitError, Schema
from schemas.by_op import in_order


class _Plan(NamedTuple):
    """The projection by which the records of one schema are read, and the types that it defines."""

    projection: Projection
    named: dict[str, Schema]


class RegisteredColumns:
    """Reads keys or values, each by the schema that it names, as structs of the type `kind`.

    Its fields are the columns of the projections, in any order, and for each part a struct of the part's in turn. What
    a writer's schema does not have is its fill, or null.
    """

    def __init__(self, schemas: Schemas, project: Project, kind: pa.StructType) -> None:
        self._schemas, self._project, self.kind = schemas, project, kind
        self._plans: dict[int, _Plan | None] = {}

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
            groups.append((rows, _rows(own, plan.projection, self.kind, plan.named)))
            own.check_read()
            cursor.follow(rows, own)
        if not groups:
            return pa.nulls(len(ids), self.kind), cursor.marked
        return in_order(groups, len(ids)), cursor.marked

    def _plan(self, schema_id: int) -> _Plan | None:
        if schema_id not in self._plans:
            schema = self._schemas.get(schema_id)
            if schema is None:
                return None
            try:
                projection = projected(schema, self._project)
                self._plans[schema_id] = _Plan(projection, named_types(projection.writer))
            except MisfitError:
                self._plans[schema_id] = None
        return self._plans[schema_id]


def _ids(cursor: Cursor) -> Places:
    frames = cursor.fixed(FRAME_BYTES)
    cursor.check_within()
    cursor.mark(frames[:, 0] != MAGIC)
    return np.ascontiguousarray(frames[:, 1:]).view(">u4")[:, 0].astype(np.int64)


def _rows(
    cursor: Cursor, projection: Projection, kind: pa.StructType, named: Mapping[str, Schema]
) -> pa.StructArray:
    """The next record of each, which is no union."""
    cells = {plain_name(cell.column.name): cell for cell in projection.cells}
    found = dict[str, pa.Array]()
    for field in projection.writer["fields"]:
        name, schema = field["name"], field["type"]
        if name in cells:
            found[cells[name].column.name] = read_cell(cursor, cells[name])
        elif name in projection.parts:
            part = partial(_rows, projection=projection.parts[name], kind=kind.field(name).type, named=named)
            found[name] = optional(cursor, schema, part)
        else:
            pass_over(cursor, schema, named)
    count = len(cursor.at)
    for column, fill in projection.fills.items():
        found[column] = pa.repeat(pa.scalar(fill, kind.field(column).type), count)
    arrays = [
        found[each.name].cast(each.type) if each.name in found else pa.nulls(count, each.type)
        for each in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))
