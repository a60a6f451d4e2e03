"""Columns that a schema of the registry has lost (`on_lost_column: stop`), and those that come back as another type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from schemas.avro.registered import WriterSchema
from schemas.errors import Code, InputError
from schemas.formats.with_registry import RegistryFormat
from schemas.kinds.columns import lost_column_text
from schemas.settings.config import ServiceConfig
from schemas.table import Column
from streaming.inspect.new_fields import fields_of_rows
from streaming.registry.client import Registry


@dataclass(frozen=True)
class LostColumns:
    """The judgement of schemas, each before a record of it is read. `config` has the table by now."""

    config: ServiceConfig

    def refuse(self, schema: WriterSchema) -> None:
        """Raise for a schema by which no record is to be read.

        One that is older than the first with a column has not lost it. Raises: InputError: SCHEMA_INCOMPATIBLE for a
        schema without a column that an earlier version of its subject has, COLUMN_RETYPED for a retired column in
        another type; EnvironmentProblem when the registry does not answer.
        """
        format_ = self.config.upstream_format
        if not isinstance(format_, RegistryFormat) or (own := _names(schema, format_)) is None:
            return
        columns, where = self.config.table.columns, f"{self.config.upstream}, schema {schema.id}"
        for column in columns:
            if column.is_retired and (reason := self._incompatible(schema, column, format_)):
                found = f"retired column {column.name} in another type: {reason}"
                raise InputError(Code.COLUMN_RETYPED, where=where, found=found)
        lacking = [each for each in columns if not each.is_retired and own.isdisjoint(each.names_in_records)]
        if format_.on_lost_column == "stop" and (lost := self._lost(schema, lacking, format_)):
            raise InputError(
                Code.SCHEMA_INCOMPATIBLE,
                where=where,
                found=lost_column_text(lost.name),
                next_step=f"`backfill alter --retire {lost.name}` if it was dropped; else correct the schema",
            )

    def _lost(
        self, schema: WriterSchema, lacking: Sequence[Column], format_: RegistryFormat
    ) -> Column | None:
        """The first of these columns that an earlier version of the schema's subject has."""
        if not lacking:
            return None
        versions = list(Registry(self.config.registry).versions(schema.id, f"{self.config.upstream}-value"))
        if all(version.id != schema.id for version in versions):  # those of another subject, as of keys
            return None
        for version in takewhile(lambda version: version.id != schema.id, versions):
            names = _names(version, format_) or frozenset()
            for column in lacking:
                if not names.isdisjoint(column.names_in_records):
                    return column
        return None

    def _incompatible(self, schema: WriterSchema, column: Column, format_: RegistryFormat) -> str | None:
        alone = replace(self.config.table, columns=(*self.config.table.key_columns, column))
        return format_.misfit_of("value", schema, alone)


def _names(schema: WriterSchema, format_: RegistryFormat) -> frozenset[str] | None:
    """The names of the fields of rows; None for a schema that no row has, as that of keys."""
    fields = fields_of_rows(schema, format_)
    return None if fields is None else frozenset(fields.by_name) or None
