"""Columns that a table gets by itself, from the schema of the first record that has them (`on_new_column: add`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import structlog

from schemas.avro.registered import WriterSchema, framed_id
from schemas.avro.writers.meanings import MisfitError
from schemas.errors import BackfillError, Code, ConfigError, StateError
from schemas.formats.upsert import UpsertFormat
from schemas.formats.with_registry import RegistryFormat
from schemas.kinds.table_changes import AddColumn, TableChange, changes_to_json
from schemas.records import record_at, record_from_text
from schemas.settings.config import ServiceConfig
from state.journal import Entry
from streaming.control.known_table import version_of
from streaming.inspect.new_fields import RowFields, fields_by_registry, fields_in_frame
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.registry.client import Registry

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class NewColumns:
    """The changes of a table that a record with further fields asks for. `config` has the table by now."""

    config: ServiceConfig
    kafka: KafkaSettings

    def changes(self, fault: BackfillError, entry: Entry | None) -> tuple[TableChange, ...]:
        """The changes, in the order of their schemas; none where the table has to wait for an operator.

        What a column is follows from the first schema that has it: with a registry the lowest version of the subject,
        else that of this record, which is the first one. So it is the same whichever record is met first. Raises:
        EnvironmentProblem when the broker or the registry does not answer.
        """
        format_ = self.config.upstream_format
        if fault.code is not Code.SCHEMA_WAITS or not isinstance(format_, RegistryFormat):
            return ()
        record = record_at(fault.where)
        value = None if format_.on_new_column != "add" or record is None else self._value(record)
        if value is None:
            return ()
        return tuple(self._able(list(self._wanted(value, format_)), entry))

    def _value(self, record: str) -> bytes | None:
        partition, offset = record_from_text(record)
        with RangeReader(self.kafka) as reader:
            for chunk in reader.read(self.config.upstream, {partition: (offset, offset + 1)}):
                return next((message.value() for message in chunk), None)
        return None

    def _wanted(self, value: bytes, format_: RegistryFormat) -> Iterator[TableChange]:
        """The changes by the schemas alone."""
        if not format_.framed.value:
            fields = fields_in_frame(value, format_)
            if fields is not None:
                yield from self._changes(fields, self._new(fields, format_), format_)
            return
        registry, schema_id = Registry(self.config.registry), framed_id(value)
        own = None if schema_id is None else registry.schema(schema_id)
        if own is None:
            return
        left = self._new(fields_by_registry(own, format_), format_)
        for schema in _oldest_first(registry, own, f"{self.config.upstream}-value"):
            try:
                fields = fields_by_registry(schema, format_)
            except (MisfitError, LookupError, TypeError):  # of other records
                continue
            names = [name for name in fields.by_name if name in left]
            yield from self._changes(fields, names, format_)
            left = [name for name in left if name not in names]
            if not left:
                return

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
            what = "column_added" if isinstance(change, AddColumn) else "field_ignored"
            log.info(what, change=changes_to_json([change])[0])
        yield from able


def _oldest_first(registry: Registry, own: WriterSchema, subject: str) -> Iterator[WriterSchema]:
    yield from registry.versions(own.id, subject)
    yield own
