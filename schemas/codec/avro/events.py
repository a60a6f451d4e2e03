"""Debezium's events in Avro: what is read of a writer's schema.

A value is the envelope, a record of `op`, `after`, `source` and more, as Kafka Connect's converters write it; a key is
a record of the key columns. What days, times and decimals mean is in the writer's schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

from schemas.avro.cells import cell_of
from schemas.avro.projection import Project, Projection, fields_of, of_record
from schemas.avro.writers.meanings import MisfitError, Schema
from schemas.codec.debezium import images
from schemas.codec.logs import NUMBERS, TEXTS
from schemas.json.values import SubMicros
from schemas.table import Column
from schemas.types import ColumnType, TypeName

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
    names: frozenset[str] | None = None,
) -> dict[Literal["key", "value"], Project]:
    """Projections of a `value` and a `key`. `whole` adds the row before; `transactions` adds the transaction's id.

    `names` as in `of_record`, for rows.
    """
    parts: dict[str, Project] = {
        "source": partial(_of_source, columns=source_columns(transactions=transactions))
    }
    for image in images(whole=whole):
        parts[image] = partial(
            of_record,
            columns=columns,
            name=f"backfill.{image.title()}",
            sub_micros=sub_micros,
            names=names,
        )
    return {
        "value": partial(_of_event, parts=parts),
        "key": partial(of_record, columns=key_columns, exact=True, sub_micros=sub_micros),
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
