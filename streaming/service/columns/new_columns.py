"""Columns and types that a table gets by itself, from the schema of the first record that has them.

`on_new_column: add` and `on_wider_type: widen` ask for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import structlog

from schemas.avro.registered import WriterSchema, framed_id
from schemas.avro.writers.meanings import MisfitError
from schemas.errors import BackfillError, Code, ConfigError, StateError
from schemas.formats.upsert import UpsertFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.kinds.table_changes import AddColumn, IgnoreField, TableChange, WidenColumn, changes_to_json
from schemas.records import record_at, record_from_text
from schemas.settings.config import ServiceConfig
from state.journal import Entry
from streaming.control.known_table import version_of
from streaming.inspect.new_fields import RowFields, fields_by_registry, fields_in_frame
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.lane.faults import Fault
from streaming.registry.client import Registry

log = structlog.get_logger(__name__)

_OF_TYPES = (Code.SCHEMA_INCOMPATIBLE, Code.VALUE_OUT_OF_RANGE)
"""Codes of records whose schema may have a wider type."""
_OF_OTHER_RECORDS = (MisfitError, LookupError, TypeError)
"""Errors of schemas of a subject that no row has."""
_EVENTS = {AddColumn: "column_added", IgnoreField: "field_ignored", WidenColumn: "column_widened"}


@dataclass(frozen=True)
class NewColumns:
    """The changes of a table that a record with another schema asks for. `config` has the table by now."""

    config: ServiceConfig
    kafka: KafkaSettings

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
        if value is None or (described := self._described(value, format_)) is None:
            return ()
        return self._further(*described, format_) if is_new else self._wider(described[0], format_)

    def _value(self, partition: int, offset: int) -> bytes | None:
        with RangeReader(self.kafka) as reader:
            for chunk in reader.read(self.config.upstream, {partition: (offset, offset + 1)}):
                return next((message.value() for message in chunk), None)
        return None

    def _described(
        self, value: bytes, format_: RegistryFormat
    ) -> tuple[RowFields, WriterSchema | None] | None:
        """The fields by the record's schema, and that of a registry; None without one that rows can have."""
        if not format_.framed.value:
            fields = fields_in_frame(value, format_)
            return None if fields is None else (fields, None)
        schema_id = framed_id(value)
        own = None if schema_id is None else Registry(self.config.registry).schema(schema_id)
        try:
            return None if own is None else (fields_by_registry(own, format_), own)
        except _OF_OTHER_RECORDS:
            return None

    def _further(
        self, fields: RowFields, own: WriterSchema | None, format_: RegistryFormat
    ) -> Iterator[TableChange]:
        """The fields that are no columns, by the schemas alone."""
        left = self._new(fields, format_)
        if own is None:
            yield from self._changes(fields, left, format_)
            return
        for schema in _oldest_first(Registry(self.config.registry), own, f"{self.config.upstream}-value"):
            try:
                fields = fields_by_registry(schema, format_)
            except _OF_OTHER_RECORDS:
                continue
            names = [name for name in fields.by_name if name in left]
            yield from self._changes(fields, names, format_)
            left = [name for name in left if name not in names]
            if not left:
                return

    def _wider(self, fields: RowFields, format_: RegistryFormat) -> Iterator[TableChange]:
        """The columns that the record's schema has in a wider type."""
        for column in self.config.table.columns:
            name = next((name for name in column.names_in_records if name in fields.by_name), None)
            kind = None if name is None else fields.kind(name, format_)
            if kind is not None and column.type.widens_to(kind):
                yield WidenColumn(column.name, str(kind))

    def _new(self, fields: RowFields, format_: RegistryFormat) -> list[str]:
        columns = self.config.table.columns
        beside = format_.deleted_field_beside(columns) if isinstance(format_, UpsertFormat) else None
        known = format_.names_of(columns, beside) or frozenset()
        return [name for name in fields.by_name if name not in known]

    def _changes(self, fields: RowFields, names: list[str], format_: RegistryFormat) -> Iterator[TableChange]:
        for name in names:
            if (change := fields.change(name, format_)) is not None:
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


def _oldest_first(registry: Registry, own: WriterSchema, subject: str) -> Iterator[WriterSchema]:
    yield from registry.versions(own.id, subject)
    yield own
