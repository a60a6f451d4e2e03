"""Choice of the encoder of test events for an upstream's format, and the forms that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

from schemas.avro.output_schemas import text_of
from schemas.avro.registered import SchemaIds
from schemas.errors import Code, ConfigError
from schemas.formats.append import AppendFormat
from schemas.formats.change import ChangeFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.outputs.formats import UpsertOutput
from schemas.formats.protocol import Format, Framed, Half, UpstreamFormat
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema
from schemas.types import TypeName
from streaming.events.debezium import AvroDebeziumEvents, JsonDebeziumEvents, connector_schemas
from streaming.events.encoders import EventEncoder, append_events, change_events, numbered, upsert_events
from streaming.registry.client import Registry, subjects


class EventForm(StrEnum):
    """Forms of test events for a topic without a configuration."""

    CHANGE = "change"
    UPSERT_JSON = "upsert-json"
    DEBEZIUM_JSON = "debezium-json"
    DEBEZIUM_JSON_SCHEMA = "debezium-json-schema"
    APPEND_JSON = "append-json"


FORMATS: dict[EventForm, UpstreamFormat] = {
    EventForm.CHANGE: ChangeFormat(),
    EventForm.UPSERT_JSON: UpsertFormat(),
    EventForm.DEBEZIUM_JSON: DebeziumFormat(time="microseconds", decimal="precise"),
    EventForm.DEBEZIUM_JSON_SCHEMA: DebeziumFormat(time="adaptive", decimal="precise"),
    EventForm.APPEND_JSON: AppendFormat(),
}
"""The declaration that a service needs for an upstream of these events."""

SchemasOf: TypeAlias = Callable[[str], dict[Half, dict[str, object]]]
"""The schemas of keys and values of a topic, by its name."""
Register: TypeAlias = Callable[[SchemasOf], SchemaIds]
"""Registers such schemas."""


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """Registers a topic's schemas under the default subjects of producers. Equal schemas get equal ids."""

    registry: Registry
    topic: str

    def __call__(self, schemas_of: SchemasOf) -> SchemaIds:
        """Raises: as `Registry.register`."""
        named = subjects(self.topic, Framed(key=True, value=True))
        schemas = schemas_of(self.topic)
        key, value = (
            self.registry.register(named[half], text_of(schemas[half])) for half in ("key", "value")
        )
        return SchemaIds(key, value)


def _change(_: ChangeFormat, table: TableSchema, register: Register | None) -> EventEncoder:
    return change_events(table)


def _upsert(format_: UpsertFormat, table: TableSchema, register: Register | None) -> EventEncoder:
    if format_.encoding == "json":
        return upsert_events(table, UpsertOutput(), format_.key)
    if format_.key != "record":
        raise _unwritten(f"keys as {format_.key!r} with encoding 'avro-registry'", "key 'record'")
    output = UpsertOutput(encoding="avro-registry")
    ids = _known(register)(partial(output.schemas, table.columns, table.key_columns))
    return upsert_events(table, output.with_ids(ids))


def _debezium(format_: DebeziumFormat, table: TableSchema, register: Register | None) -> EventEncoder:
    if format_.encoding != "json":
        ids = _known(register)(partial(connector_schemas, table.columns, table.key_columns))
        return AvroDebeziumEvents(table, ids)
    if format_.time == "connect" and any(each.type.name is TypeName.TIMESTAMP for each in table.key_columns):
        raise _unwritten("milliseconds for a timestamp of the primary key", "another time than `connect`")
    return JsonDebeziumEvents(table, format_)


def _append(format_: AppendFormat, table: TableSchema, register: Register | None) -> EventEncoder:
    if format_.encoding != "json":
        raise _unwritten(f"rows in {format_.encoding!r}", "encoding 'json', which is what test rows have")
    return append_events(table)


_ENCODERS: dict[type[Format], Callable[[Any, TableSchema, Register | None], EventEncoder]] = {
    ChangeFormat: _change,
    UpsertFormat: _upsert,
    DebeziumFormat: _debezium,
    AppendFormat: _append,
}


def invented(table: TableSchema) -> TableSchema:
    """The table that a generator makes changes of: itself, or a `numbered` one for rows without identity."""
    return table if table.has_key else numbered(table)


def events_of(format_: Format, table: TableSchema, register: Register | None = None) -> EventEncoder:
    """The encoder for an `invented` table. `register` is needed for formats whose records name schemas by id.

    Raises: ConfigError(USAGE) for a format of which there are no test events.
    """
    return _ENCODERS[type(format_)](format_, table, register)


def form_of(format_: Format) -> EventForm | None:
    """The form of the format's test events, None if it has none."""
    if isinstance(format_, DebeziumFormat) and format_.encoding == "json":
        return EventForm.DEBEZIUM_JSON_SCHEMA if format_.time == "adaptive" else EventForm.DEBEZIUM_JSON
    if isinstance(format_, UpsertFormat) and format_.encoding == "json":
        return EventForm.UPSERT_JSON
    if isinstance(format_, AppendFormat) and format_.encoding == "json":
        return EventForm.APPEND_JSON
    return EventForm.CHANGE if isinstance(format_, ChangeFormat) else None


def _known(register: Register | None) -> Register:
    if register is None:
        raise _unwritten("encoding 'avro-registry' without a registry", "registry.url")
    return register


def _unwritten(found: str, expected: str) -> ConfigError:
    return ConfigError(
        Code.USAGE, where="upstream", found=found, expected=expected, next_step="correct the configuration"
    )
