"""Which test events an upstream of a format takes, and the forms that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from schemas.errors import Code, ConfigError
from schemas.formats.append import AppendFormat
from schemas.formats.change import ChangeFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.outputs.upsert import UpsertOutput
from schemas.formats.protocol import Format
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema
from schemas.types import TypeName
from streaming.events.formats.append import AppendEvents, numbered
from streaming.events.formats.change import ChangeEvents
from streaming.events.formats.debezium import JsonDebeziumEvents
from streaming.events.formats.debezium_avro import AvroDebeziumEvents, ConnectorSchemas
from streaming.events.formats.protocol import Events
from streaming.events.formats.registered import Register
from streaming.events.formats.upsert import AvroUpsertEvents, JsonUpsertEvents


class Form(StrEnum):
    """Of test events whose topic has no configuration."""

    CHANGE = "change"
    UPSERT_JSON = "upsert-json"
    DEBEZIUM_JSON = "debezium-json"
    DEBEZIUM_JSON_SCHEMA = "debezium-json-schema"
    APPEND_JSON = "append-json"


FORMATS: dict[Form, Format] = {
    Form.CHANGE: ChangeFormat(),
    Form.UPSERT_JSON: UpsertFormat(),
    Form.DEBEZIUM_JSON: DebeziumFormat(time="microseconds", decimal="precise"),
    Form.DEBEZIUM_JSON_SCHEMA: DebeziumFormat(time="adaptive", decimal="precise"),
    Form.APPEND_JSON: AppendFormat(),
}
"""How a service has to declare an upstream of these events."""


def _change(_: ChangeFormat, table: TableSchema, register: Register | None) -> Events:
    return ChangeEvents(table)


def _upsert(format_: UpsertFormat, table: TableSchema, register: Register | None) -> Events:
    if format_.encoding == "json":
        return JsonUpsertEvents(table, format_.key)
    if format_.key != "record":
        raise _unwritten(f"keys as {format_.key!r} with encoding 'avro-registry'", "key 'record'")
    return AvroUpsertEvents(table, _known(register)(UpsertOutput(encoding="avro-registry"), table))


def _debezium(format_: DebeziumFormat, table: TableSchema, register: Register | None) -> Events:
    if format_.encoding != "json":
        return AvroDebeziumEvents(table, _known(register)(ConnectorSchemas(), table))
    if format_.time == "connect" and any(each.type.name is TypeName.TIMESTAMP for each in table.key_columns):
        raise _unwritten("milliseconds for a timestamp of the primary key", "another time than `connect`")
    return JsonDebeziumEvents(table, format_)


def _append(format_: AppendFormat, table: TableSchema, register: Register | None) -> Events:
    if format_.encoding != "json":
        raise _unwritten(f"rows in {format_.encoding!r}", "encoding 'json', which is what test rows have")
    return AppendEvents(table)


_EVENTS: dict[type[Format], Callable[[Any, TableSchema, Register | None], Events]] = {
    ChangeFormat: _change,
    UpsertFormat: _upsert,
    DebeziumFormat: _debezium,
    AppendFormat: _append,
}


def invented(table: TableSchema) -> TableSchema:
    """The table whose changes are invented for this one: itself, or one that knows rows without identity apart."""
    return table if table.has_key else numbered(table)


def events_of(format_: Format, table: TableSchema, register: Register | None = None) -> Events:
    """Of an `invented` table. `register` gives the ids of the schemas, of a format whose records name schemas.

    Raises: ConfigError(USAGE) for a format of which there are no test events.
    """
    return _EVENTS[type(format_)](format_, table, register)


def form_of(format_: Format) -> Form | None:
    """The form of the format's test events, None if it has none."""
    if isinstance(format_, DebeziumFormat) and format_.encoding == "json":
        return Form.DEBEZIUM_JSON_SCHEMA if format_.time == "adaptive" else Form.DEBEZIUM_JSON
    if isinstance(format_, UpsertFormat) and format_.encoding == "json":
        return Form.UPSERT_JSON
    if isinstance(format_, AppendFormat) and format_.encoding == "json":
        return Form.APPEND_JSON
    return Form.CHANGE if isinstance(format_, ChangeFormat) else None


def _known(register: Register | None) -> Register:
    if register is None:
        raise _unwritten("encoding 'avro-registry' without a registry", "registry.url")
    return register


def _unwritten(found: str, expected: str) -> ConfigError:
    return ConfigError(
        Code.USAGE, where="upstream", found=found, expected=expected, next_step="correct the configuration"
    )
