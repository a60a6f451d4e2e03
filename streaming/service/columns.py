"""Columns and types that a table gets by itself, and those that a schema of the registry has lost.

From the schema of the first record that has them come new columns (`on_new_column: add`) and wider types
(`on_wider_type: widen`); a schema without a column, or with a retired one in another type, is refused
(`on_lost_column: stop`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, takewhile
from typing import TypeAlias

import structlog

from schemas.avro.registered import WriterSchema, framed_id
from schemas.errors import BackfillError, Code, ConfigError, InputError, StateError
from schemas.formats.upsert import UpsertFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.kinds.columns import lost_column_text
from schemas.kinds.table_changes import AddColumn, IgnoreField, TableChange, WidenColumn, changes_to_json
from schemas.records import record_at, record_from_text
from schemas.settings.config import ServiceConfig
from schemas.table import Column
from state.journal import Entry
from streaming.control.known_table import version_of
from streaming.inspect.declared import RowFields, fields_in_frame, fields_of_rows
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.lane.faults import Fault
from streaming.registry.client import Registry

log = structlog.get_logger(__name__)

Described: TypeAlias = tuple[RowFields, WriterSchema | None]
"""The fields of rows by a schema, and that schema if it is a registry's."""
_NEWEST = 200
"""Records at the end of a partition among which one with a schema is looked for."""
_OF_TYPES = (Code.SCHEMA_INCOMPATIBLE, Code.VALUE_OUT_OF_RANGE)
"""Codes of records whose schema may have a wider type."""
_EVENTS = {AddColumn: "column_added", IgnoreField: "field_ignored", WidenColumn: "column_widened"}


@dataclass(frozen=True)
class NewColumns:
    """The changes of a table that a record with another schema asks for. `config` has the table by now."""

    config: ServiceConfig
    kafka: KafkaSettings

    @property
    def _format(self) -> RegistryFormat:
        """The upstream's format, of which only records with schemas come here."""
        format_ = self.config.upstream_format
        assert isinstance(format_, RegistryFormat)
        return format_

    @cached_property
    def _registry(self) -> Registry:
        return Registry(self.config.registry)

    def changes(self, fault: BackfillError, entry: Entry | None) -> tuple[TableChange, ...]:
        """The changes, in the order of their schemas; none where the table has to wait for an operator.

        What a new column is follows from the first schema that has it: with a registry the lowest version of the
        subject, else that of this record, which is the first one. So it is the same whichever record is met first. A
        wider type is that of the record's schema. Raises: EnvironmentProblem when the broker or the registry does not
        answer.
        """
        record = record_at(fault.where)
        wanted = () if record is None else self._wanted(fault.code, *record_from_text(record))
        return tuple(self._able(list(wanted), entry))

    def is_wider(self, fault: Fault) -> bool:
        """True for a record whose schema has wider types, which the table gets. Raises: as `changes`."""
        return fault.code in _OF_TYPES and any(self._wanted(fault.code, fault.partition, fault.offset))

    def _wanted(self, code: Code, partition: int, offset: int) -> Iterable[TableChange]:
        """The changes by the schemas alone."""
        format_ = self.config.upstream_format
        if not isinstance(format_, RegistryFormat):
            return ()
        is_new = code is Code.SCHEMA_WAITS and format_.on_new_column == "add"
        is_wider = code in _OF_TYPES and format_.on_wider_type == "widen"
        value = self._value(partition, offset) if is_new or is_wider else None
        if value is None or (described := self._described(value)) is None:
            return ()
        return self.further(*described) if is_new else self._wider(described[0])

    def newest(self) -> Described | None:
        """The fields of rows by the newest schema, of the registry, or of the last record of a partition that has one.

        None where there is no schema. Raises: EnvironmentProblem; TopicError without the topic.
        """
        if self._format.framed.value:
            return self._by(self._registry.newest(f"{self.config.upstream}-value"))
        found = (self._described(value) for value in self._last_values())
        return next((each for each in found if each is not None), None)

    def _last_values(self) -> Iterator[bytes]:
        """The values at the end of the first partition that has records, the last one first."""
        with RangeReader(self.kafka) as reader:
            for partition, mark in enumerate(reader.watermarks(self.config.upstream)):
                if mark.stable > mark.earliest:
                    ranges = {partition: (max(mark.earliest, mark.stable - _NEWEST), mark.stable)}
                    messages = [each for chunk in reader.read(self.config.upstream, ranges) for each in chunk]
                    yield from filter(None, (message.value() for message in reversed(messages)))
                    return

    def key_kinds(self, fields: RowFields, own: WriterSchema | None) -> Iterator[tuple[str, str]]:
        """The key's columns with their types, by the schema of rows, or else by that of keys in the registry.

        Raises: ConfigError(TABLE_INVALID) for a column that neither has.
        """
        table, sources = self.config.table, [fields]
        if own is not None and not fields.by_name.keys() >= set(table.primary_key):
            of_keys = self._by(self._registry.newest(f"{self.config.upstream}-key"))
            sources += [] if of_keys is None else [of_keys[0]]
        for name in table.primary_key:
            source = next((each for each in sources if name in each.by_name), None)
            kind = None if source is None else source.kind(name, self._format)
            if kind is None:
                found = f"no 'columns', and no type of primary_key column {name} in the newest schema"
                raise ConfigError(Code.TABLE_INVALID, where=table.name, found=found)
            yield name, str(kind)

    def _value(self, partition: int, offset: int) -> bytes | None:
        with RangeReader(self.kafka) as reader:
            for chunk in reader.read(self.config.upstream, {partition: (offset, offset + 1)}):
                return next((message.value() for message in chunk), None)
        return None

    def _described(self, value: bytes) -> Described | None:
        """The fields by the record's schema, and that of a registry; None without one that rows can have."""
        if not self._format.framed.value:
            fields = fields_in_frame(value, self._format)
            return None if fields is None else (fields, None)
        schema_id = framed_id(value)
        return None if schema_id is None else self._by(self._registry.schema(schema_id))

    def _by(self, schema: WriterSchema | None) -> Described | None:
        """The fields by a schema of the registry; None where there is none, or none that rows can have."""
        fields = None if schema is None else fields_of_rows(schema, self._format)
        return None if fields is None else (fields, schema)

    def further(self, fields: RowFields, own: WriterSchema | None) -> Iterator[TableChange]:
        """The fields that are no columns, by the schemas alone."""
        left = self._new(fields)
        if own is None:
            yield from self._changes(fields, left)
            return
        for schema in chain(self._registry.versions(own.id, f"{self.config.upstream}-value"), [own]):
            if (older := fields_of_rows(schema, self._format)) is None:
                continue
            names = [name for name in older.by_name if name in left]
            yield from self._changes(older, names)
            left = [name for name in left if name not in names]
            if not left:
                return

    def _wider(self, fields: RowFields) -> Iterator[TableChange]:
        """The columns that the record's schema has in a wider type."""
        for column in self.config.table.columns:
            name = next((name for name in column.names_in_records if name in fields.by_name), None)
            kind = None if name is None else fields.kind(name, self._format)
            if kind is not None and column.type.widens_to(kind):
                yield WidenColumn(column.name, str(kind))

    def _new(self, fields: RowFields) -> list[str]:
        columns, format_ = self.config.table.columns, self._format
        beside = format_.deleted_field_beside(columns) if isinstance(format_, UpsertFormat) else None
        known = format_.names_of(columns, beside) or frozenset()
        return [name for name in fields.by_name if name not in known]

    def _changes(self, fields: RowFields, names: list[str]) -> Iterator[TableChange]:
        for name in names:
            if (change := fields.change(name, self._format)) is not None:
                yield change

    def _able(self, wanted: list[TableChange], entry: Entry | None) -> Iterator[TableChange]:
        """Changes that the table can take, one after another; the others wait."""
        able = list[TableChange]()
        for change in wanted:
            try:
                version_of(self.config, entry, (*able, change), state=self.config.state)
            except (ConfigError, StateError) as reason:
                log.warning("column_waits", code=reason.code, found=reason.found)
                continue
            able.append(change)
            log.info(_EVENTS[type(change)], change=changes_to_json([change])[0])
        yield from able


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
        return format_.incompatibility_of_schema("value", schema, alone)


def _names(schema: WriterSchema, format_: RegistryFormat) -> frozenset[str] | None:
    """The names of the fields of rows; None for a schema that no row has, as that of keys."""
    fields = fields_of_rows(schema, format_)
    return None if fields is None else frozenset(fields.by_name) or None
