"""Keys or values that name their schemas, columnar: what `schemas.avro.by_id` reads one by one."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from schemas.avro.columns.cells import optional, read_cell
from schemas.avro.columns.cursor import Cursor, Places
from schemas.avro.columns.passing import pass_over
from schemas.avro.projection import Project, Projection, plain_name, projected
from schemas.avro.registered import FRAME_BYTES, MAGIC, Schemas
from schemas.avro.writers.meanings import MisfitError, Schema
from schemas.by_op import in_order
from schemas.records import OddRecordError, refuse


class RegisteredColumns:
    """Reads keys or values, each by the schema that it names, as structs of the type `kind`.

    Its fields are the columns of the projections, in any order, and for each part a struct of the part's in turn. What
    a writer's schema does not have is null.
    """

    def __init__(self, schemas: Schemas, project: Project, kind: pa.StructType) -> None:
        self._schemas, self._project, self._kind = schemas, project, kind
        self._projections: dict[int, Projection] = {}

    def read(self, records: pa.BinaryArray) -> pa.StructArray:
        """One for each. Raises: OddRecordError, also for a null and for a schema that is not known or does not fit."""
        cursor = Cursor.of(records)
        ids = _ids(cursor)
        groups = []
        for schema_id in np.unique(ids).tolist():
            rows = np.flatnonzero(ids == schema_id)
            groups.append((rows, self._read(cursor.among(rows), self._projection(schema_id))))
        if not groups:
            return pa.array([], self._kind)
        return in_order(groups, len(ids))

    def _read(self, cursor: Cursor, projection: Projection) -> pa.StructArray:
        rows = _rows(cursor, projection, self._kind)
        cursor.check_read()
        return rows

    def _projection(self, schema_id: int) -> Projection:
        if schema_id not in self._projections:
            schema = self._schemas.get(schema_id)
            if schema is None:
                raise OddRecordError
            try:
                self._projections[schema_id] = projected(schema, self._project)
            except MisfitError:
                raise OddRecordError from None
        return self._projections[schema_id]


def _ids(cursor: Cursor) -> Places:
    frames = cursor.fixed(FRAME_BYTES)
    cursor.check_within()
    refuse((frames[:, 0] != MAGIC).any())
    return np.ascontiguousarray(frames[:, 1:]).view(">u4")[:, 0].astype(np.int64)


def _rows(cursor: Cursor, projection: Projection, kind: pa.StructType) -> pa.StructArray:
    """The next record of each, which is no union."""
    cells = {plain_name(cell.column.name): cell for cell in projection.cells}
    found, named = dict[str, pa.Array](), dict[str, Schema]()
    for field in projection.writer["fields"]:
        name, schema = field["name"], field["type"]
        if name in cells:
            found[cells[name].column.name] = read_cell(cursor, cells[name])
        elif name in projection.parts:
            part = partial(_rows, projection=projection.parts[name], kind=kind.field(name).type)
            found[name] = optional(cursor, schema, part)
        else:
            pass_over(cursor, schema, named)
    count = len(cursor.at)
    arrays = [
        found[each.name].cast(each.type) if each.name in found else pa.nulls(count, each.type)
        for each in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))
