"""Columns read by Spark from Avro records that name their schemas: a branch for each known schema.

What a branch reads, and as what, says `schemas.avro.projection`; what it stands for, `schemas.avro.cells`, whose forms
have their Spark half here. `from_avro` ignores bytes behind the record, so the record is read as if one more field
followed, a mark that no record is likely to hold. Only at its true end is the mark found whole; where the record itself
holds those bytes, it is in doubt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from schemas.avro.cells import MOST_SCALE, Cell, Form, MisfitError
from schemas.avro.projection import Project, Projection, projected
from schemas.avro.registered import FRAME_BYTES, MAGIC, KnownSchemas, frame
from schemas.table import Column as TableColumn
from schemas.types import FIRST_DAY, LAST_DAY, ColumnType, TypeName
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
            _with_end(half)
            for half in (
                self.projection.writer,
                _with_decimals(self.projection.reader, self.projection),
            )
        )
        marked = F.concat(F.substring(data, FRAME_BYTES + 1, _REST), F.lit(_END))
        found = from_avro(marked, writer, {"avroSchema": reader, "mode": "PERMISSIVE"})
        return F.when(self.is_of(data), found).alias(self.name)


def _with_end(record: Any) -> str:
    end = {"type": "fixed", "name": "backfill.End", "size": len(_END)}
    return json.dumps({**record, "fields": [*record["fields"], {"name": _END_FIELD, "type": end}]})


def _with_decimals(reader: Any, projection: Projection) -> Any:
    """The reader's schema with decimals as a logical type: with 38 digits Spark reads them exactly, or not at all.

    A type that came before is a name, and is what it was there.
    """
    cells = {cell.column.name: cell for cell in projection.cells if cell.form in _DECIMALS}

    def typed(name: str, schema: Any) -> Any:
        match schema:
            case list():
                return [typed(name, branch) for branch in schema]
            case {"type": "record"} if name in projection.parts:
                return _with_decimals(schema, projection.parts[name])
        return _with_decimal(schema, cells[name]) if name in cells else schema

    return {
        **reader,
        "fields": [{**each, "type": typed(each["name"], each["type"])} for each in reader["fields"]],
    }


_DECIMALS = (Form.DECIMAL, Form.OWN_SCALE)


def _with_decimal(schema: Any, cell: Cell) -> Any:
    logical = {"logicalType": "decimal", "precision": cell.digits, "scale": cell.scale}
    match schema:
        case "bytes":
            return {"type": "bytes", **logical}
        case {"type": "fixed"}:
            return {**schema, **logical}
        case {"type": "record", "fields": fields}:
            inner = [{**each, "type": _with_decimal(each["type"], cell)} for each in fields]
            return {**schema, "fields": inner}
    return schema


class AvroColumns:
    """Reads columns of a table that are fields of records which name their schemas.

    `parts` are the columns of fields that are records in turn.
    """

    def __init__(
        self,
        columns: Sequence[TableColumn],
        schemas: KnownSchemas,
        project: Project,
        parts: Mapping[str, Sequence[TableColumn]] | None = None,
    ) -> None:
        self._columns, self._known = tuple(columns), [schema.id for schema in schemas.schemas]
        self._parts = dict(parts or {})
        self._branches = _branches(schemas, project)

    def waits(self, data: Column) -> Column:
        """Whether a record names a schema that is not known. Never null."""
        prefix = F.substring(data, 1, FRAME_BYTES)
        named = (F.length(prefix) == FRAME_BYTES) & (F.substring(data, 1, 1) == F.lit(bytes([MAGIC])))
        known = prefix.isin([F.lit(frame(schema_id)) for schema_id in self._known])
        return F.coalesce(named & ~known if self._known else named, F.lit(False))

    def parsed(self, data: Column) -> Column:
        """The expensive part, to be evaluated once a record. `data` may be any bytes, or null."""
        return F.struct(F.lit(0).alias("none"), *(branch.read(data) for branch in self._branches))

    def cells(self, parsed: Column, data: Column, part: str | None = None) -> Cells:
        """The columns of what `parsed` gave, or of its part `part`."""
        columns = self._columns if part is None else self._parts[part]
        values = {column.name: F.lit(None).cast(column.type.spark_ddl) for column in columns}
        sound, doubt = F.lit(False), F.contains(data, F.lit(_END))
        for branch, read, cells in self._in(part, parsed):
            record = parsed.getField(branch.name)
            is_mine = record.isNotNull()
            found = {cell.column.name: read.getField(cell.column.name) for cell in cells}
            own = {cell.column.name: _value(cell, found[cell.column.name]) for cell in cells}
            for name, value in own.items():
                values[name] = F.when(is_mine, value).otherwise(values[name])
            fits = [found[name].isNull() | own[name].isNotNull() for name in own]
            whole = record.getField(_END_FIELD) == F.lit(_END)
            sound = F.when(is_mine, F.coalesce(reduce(and_, [whole, *fits]), F.lit(False))).otherwise(sound)
            unsure = [
                ~is_plain(found[cell.column.name], cell.column) for cell in cells if cell.form is Form.TEXT
            ]
            doubt |= F.coalesce(reduce(or_, unsure, F.lit(False)) & is_mine, F.lit(False))
        return Cells(values, sound, F.coalesce(doubt, F.lit(False)))

    def has(self, parsed: Column, part: str) -> Column:
        """Whether a part is there. Never null."""
        there = [
            read.isNotNull() for branch, read, _ in self._in(part, parsed) if part in branch.projection.parts
        ]
        return F.coalesce(reduce(or_, there, F.lit(False)), F.lit(False))

    def _in(self, part: str | None, parsed: Column) -> Iterator[tuple[_Branch, Column, tuple[Cell, ...]]]:
        """For each branch what it has read of a part, and the cells in it."""
        for branch in self._branches:
            record, projection = parsed.getField(branch.name), branch.projection
            if part is None:
                yield branch, record, projection.cells
            elif part in projection.parts:
                yield branch, record.getField(part), projection.parts[part].cells
            else:
                yield branch, record, ()


class AvroKeys(AvroColumns):
    """Reads keys that name their schemas."""

    def cells(self, parsed: Column, data: Column, part: str | None = None) -> Cells:
        """The columns of what `parsed` gave; `sound` only if every column is set."""
        cells = super().cells(parsed, data, part)
        return replace(
            cells, sound=reduce(and_, [each.isNotNull() for each in cells.values.values()], cells.sound)
        )


def _branches(schemas: KnownSchemas, project: Project) -> list[_Branch]:
    """One branch for all schemas that are read alike. A misfit has none: the strict twin finds its reason."""
    alike: dict[str, tuple[list[int], Projection]] = {}
    for schema in schemas.schemas:
        try:
            projection = projected(schema, project)
        except MisfitError:
            continue
        same = json.dumps([projection.writer, repr(projection)])
        alike.setdefault(same, ([], projection))[0].append(schema.id)
    return [
        _Branch(f"by{number}", tuple(ids), projection)
        for number, (ids, projection) in enumerate(alike.values())
    ]


def _value(cell: Cell, raw: Column) -> Column:
    """The column's value of a plain value; null where `Cell.value` would refuse it."""
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
        case Form.OWN_SCALE:
            return _by_own_scale(raw, kind)
        case Form.DAYS:
            return F.when(raw.between(FIRST_DAY, LAST_DAY), F.date_from_unix_date(raw.cast("int")))
        case Form.TIME:
            return F.when(
                raw.between(*cell.ticks) & _is_whole(raw, cell), F.timestamp_micros(_micros(raw, cell))
            )
        case Form.TEXT if kind.name is TypeName.DATE:
            return read_text(F.regexp_replace(raw, r"^(.{10})Z\z", "$1"), cell.column)
        case Form.TEXT:
            return read_text(raw, cell.column)
        case _:
            return raw.cast(kind.spark_ddl)


def _by_own_scale(raw: Column, kind: ColumnType) -> Column:
    """Null where the column would round."""
    number, scale = raw.getField("value").cast("string"), raw.getField("scale")
    zeros = F.length(number) - F.length(F.rtrim(number, F.lit("0")))
    fits = scale.between(0, MOST_SCALE) & ((number == "0") | (scale - (kind.scale or 0) <= zeros))
    return F.when(fits, F.concat(number, F.lit("E-"), scale.cast("string")).try_cast(kind.spark_ddl))


def _is_whole(raw: Column, cell: Cell) -> Column:
    return raw % 1_000 == 0 if cell.unit == 1 else F.lit(True)


def _micros(raw: Column, cell: Cell) -> Column:
    return F.call_function("div", raw, F.lit(1_000)) if cell.unit == 1 else raw * (cell.unit // 1_000)
