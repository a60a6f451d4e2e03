"""Columns read by Spark from Avro records that name their schemas: a branch for each known schema.

What a branch reads, and as what, says `schemas.avro.projection`; what it stands for, `schemas.avro.cells`, whose forms
have their Spark half here. `from_avro` ignores bytes behind the record, so the record is read as if one more field
followed, a mark that no record is likely to hold. Only at its true end is the mark found whole; where the record itself
holds those bytes, it is in doubt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from schemas.avro.cells import Cell, Form, MisfitError
from schemas.avro.projection import Project, Projection, projected
from schemas.avro.registered import FRAME_BYTES, MAGIC, KnownSchemas, frame
from schemas.table import Column as TableColumn
from schemas.types import FIRST_DAY, LAST_DAY, TypeName
from streaming.source.formats.json_columns import Cells, is_plain, read_text

_END = bytes.fromhex("e1a75c0d93b62f48")
_END_FIELD = "_bf_end"
_REST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Branch:
    name: str
    ids: tuple[int, ...]
    projection: Projection

    def is_of(self, data: Column) -> Column:
        return F.substring(data, 1, FRAME_BYTES).isin([F.lit(frame(schema_id)) for schema_id in self.ids])

    def read(self, data: Column) -> Column:
        writer, reader = (
            _with_end(half) for half in (self.projection.writer, _with_decimals(self.projection))
        )
        marked = F.concat(F.substring(data, FRAME_BYTES + 1, _REST), F.lit(_END))
        found = from_avro(marked, writer, {"avroSchema": reader, "mode": "PERMISSIVE"})
        return F.when(self.is_of(data), found).alias(self.name)


def _with_end(record: Any) -> str:
    end = {"type": "fixed", "name": "backfill.End", "size": len(_END)}
    return json.dumps({**record, "fields": [*record["fields"], {"name": _END_FIELD, "type": end}]})


def _with_decimals(projection: Projection) -> Any:
    """The reader's half, in which decimals are such: with 38 digits Spark reads them exactly, or not at all."""
    decimals = {cell.column.name: cell for cell in projection.cells if cell.form is Form.DECIMAL}

    def typed(schema: Any, cell: Cell) -> Any:
        logical = {"logicalType": "decimal", "precision": cell.digits, "scale": cell.scale}
        match schema:
            case list():
                return [typed(branch, cell) for branch in schema]
            case "bytes":
                return {"type": "bytes", **logical}
            case {"type": "fixed"}:
                return {**schema, **logical}
        return schema

    fields = [
        {**field, "type": typed(field["type"], decimals[field["name"]])}
        if field["name"] in decimals
        else field
        for field in projection.reader["fields"]
    ]
    return {**projection.reader, "fields": fields}


class AvroColumns:
    """Of some columns of a table, which are fields of records that name their schemas."""

    def __init__(self, columns: Sequence[TableColumn], schemas: KnownSchemas, project: Project) -> None:
        self._columns, self._known = tuple(columns), [schema.id for schema in schemas.schemas]
        self._branches = _branches(schemas, project)

    def waits(self, data: Column) -> Column:
        """Whether a record names a schema that is not known. Never null."""
        prefix = F.substring(data, 1, FRAME_BYTES)
        named = (F.length(prefix) == FRAME_BYTES) & (F.substring(data, 1, 1) == F.lit(bytes([MAGIC])))
        known = prefix.isin([F.lit(frame(schema_id)) for schema_id in self._known])
        return F.coalesce(named & ~known if self._known else named, F.lit(False))

    def parsed(self, data: Column) -> Column:
        """The costly part. `data` may be anything, or null."""
        return F.struct(F.lit(0).alias("none"), *(branch.read(data) for branch in self._branches))

    def cells(self, parsed: Column, data: Column) -> Cells:
        """What becomes of it."""
        values = {column.name: F.lit(None).cast(column.type.spark_ddl) for column in self._columns}
        sound, doubt = F.lit(False), F.contains(data, F.lit(_END))
        for branch in self._branches:
            read, is_mine = parsed.getField(branch.name), parsed.getField(branch.name).isNotNull()
            found = {cell.column.name: read.getField(cell.column.name) for cell in branch.projection.cells}
            own = {
                cell.column.name: _value(cell, found[cell.column.name]) for cell in branch.projection.cells
            }
            for name, value in own.items():
                values[name] = F.when(is_mine, value).otherwise(values[name])
            fits = [found[name].isNull() | own[name].isNotNull() for name in own]
            whole = read.getField(_END_FIELD) == F.lit(_END)
            sound = F.when(is_mine, F.coalesce(reduce(and_, [whole, *fits]), F.lit(False))).otherwise(sound)
            unsure = [
                ~is_plain(found[cell.column.name], cell.column)
                for cell in branch.projection.cells
                if cell.form is Form.TEXT
            ]
            doubt |= F.coalesce(reduce(or_, unsure, F.lit(False)) & is_mine, F.lit(False))
        return Cells(values, sound, F.coalesce(doubt, F.lit(False)))


def _branches(schemas: KnownSchemas, project: Project) -> list[_Branch]:
    """One for all schemas that are read alike. One that does not fit has none: the strict twin says why."""
    alike: dict[str, tuple[list[int], Projection]] = {}
    for schema in schemas.schemas:
        try:
            projection = projected(schema, project)
        except MisfitError:
            continue
        same = json.dumps([projection.writer, [repr(cell) for cell in projection.cells]])
        alike.setdefault(same, ([], projection))[0].append(schema.id)
    return [
        _Branch(f"by{number}", tuple(ids), projection)
        for number, (ids, projection) in enumerate(alike.values())
    ]


def _value(cell: Cell, raw: Column) -> Column:
    """What a plain value stands for; null where it is none of the column, as `Cell.value` refuses it."""
    kind = cell.column.type
    match cell.form:
        case Form.BOOLEAN:
            return F.when(raw == F.lit(b"\x01"), True).when(raw == F.lit(b"\x00"), False)
        case Form.NUMBER if kind.name is TypeName.INT:
            return F.when(raw.between(-(2**31), 2**31 - 1), raw.cast("int"))
        case Form.REAL:
            return raw.cast(kind.spark_ddl)
        case Form.SYMBOL:
            symbols = F.array(*map(F.lit, cell.symbols))
            known = raw.between(0, len(cell.symbols) - 1)
            return F.when(known, F.element_at(symbols, raw.cast("int") + 1))
        case Form.DECIMAL:
            fitting = raw.try_cast(kind.spark_ddl)
            return F.when(fitting.try_cast(f"decimal({cell.digits},{cell.scale})") == raw, fitting)
        case Form.DAYS:
            return F.when(raw.between(FIRST_DAY, LAST_DAY), F.date_from_unix_date(raw.cast("int")))
        case Form.TIME:
            return F.when(
                raw.between(*cell.ticks) & _is_whole(raw, cell), F.timestamp_micros(_micros(raw, cell))
            )
        case Form.TEXT:
            return read_text(raw, cell.column)
        case _:
            return raw.cast(kind.spark_ddl)


def _is_whole(raw: Column, cell: Cell) -> Column:
    return raw % 1_000 == 0 if cell.unit == 1 else F.lit(True)


def _micros(raw: Column, cell: Cell) -> Column:
    return F.call_function("div", raw, F.lit(1_000)) if cell.unit == 1 else raw * (cell.unit // 1_000)
