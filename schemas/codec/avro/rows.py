"""Rows and keys of `upsert` in Avro: what is read of a writer's schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from schemas.avro.projection import Project, Projection, branches_of, fields_of, of_record, of_value
from schemas.avro.writers.meanings import Schema
from schemas.json.values import SubMicros
from schemas.kinds.columns import Column
from schemas.types import ColumnType, TypeName

KeyForm = Literal["record", "json", "text", "avro"]


def projects(
    key: KeyForm,
    columns: Sequence[Column],
    key_columns: Sequence[Column],
    sub_micros: SubMicros = "refuse",
    deleted_field: str | None = None,
    names: frozenset[str] | None = None,
) -> dict[str, Project]:
    """Projections, by the writer's schema, of a `value`, and of a `key` that is in Avro.

    Of a value the `deleted_field` is read as well, as a text or a boolean; `names` as in `of_record`.
    """
    row = partial(of_record, sub_micros=sub_micros, names=names)
    found: dict[str, Project] = {"value": partial(row, columns=columns)}
    if deleted_field is not None and deleted_field not in {column.name for column in columns}:
        found["value"] = partial(_of_row, columns=columns, deleted_field=deleted_field, of_columns=row)
    if key == "record":
        found["key"] = partial(of_record, columns=key_columns, exact=True, sub_micros=sub_micros)
    elif key == "avro":
        found["key"] = partial(of_value, column=key_columns[0])
    return found


def _of_row(
    schema: Schema, columns: Sequence[Column], deleted_field: str, of_columns: Callable[..., Projection]
) -> Projection:
    kinds = {each["type"] for each in branches_of(fields_of(schema).get(deleted_field, "null"))}
    name = TypeName.BOOLEAN if "boolean" in kinds else TypeName.STRING
    deleted = Column(deleted_field, ColumnType(name), nullable=True)
    return of_columns(schema, columns=[*columns, deleted])
