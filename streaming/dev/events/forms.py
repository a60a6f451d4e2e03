"""Which test events an upstream of a format takes, and the forms that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from schemas.errors import Code, ConfigError
from schemas.formats.change import ChangeFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Format
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema
from schemas.types import TypeName
from streaming.dev.events.change import ChangeEvents
from streaming.dev.events.debezium import DebeziumEvents
from streaming.dev.events.protocol import Events
from streaming.dev.events.upsert import JsonUpsertEvents


class Form(StrEnum):
    """Of test events whose topic has no configuration."""

    CHANGE = "change"
    UPSERT_JSON = "upsert-json"
    DEBEZIUM_JSON = "debezium-json"
    DEBEZIUM_JSON_SCHEMA = "debezium-json-schema"


FORMATS: dict[Form, Format] = {
    Form.CHANGE: ChangeFormat(),
    Form.UPSERT_JSON: UpsertFormat(),
    Form.DEBEZIUM_JSON: DebeziumFormat(time="microseconds", decimal="precise"),
    Form.DEBEZIUM_JSON_SCHEMA: DebeziumFormat(time="adaptive", decimal="precise"),
}
"""How a service has to declare an upstream of these events."""


def _change(_: ChangeFormat, table: TableSchema) -> Events:
    return ChangeEvents(table)


def _upsert(format_: UpsertFormat, table: TableSchema) -> Events:
    _only_json(format_.encoding)
    return JsonUpsertEvents(table, format_.key)


def _debezium(format_: DebeziumFormat, table: TableSchema) -> Events:
    _only_json(format_.encoding)
    if format_.time == "connect" and any(each.type.name is TypeName.TIMESTAMP for each in table.key_columns):
        raise _unwritten("milliseconds for a timestamp of the primary key", "another time than `connect`")
    return DebeziumEvents(table, format_)


_EVENTS: dict[type[Format], Callable[[Any, TableSchema], Events]] = {
    ChangeFormat: _change,
    UpsertFormat: _upsert,
    DebeziumFormat: _debezium,
}


def events_of(format_: Format, table: TableSchema) -> Events:
    """Raises: ConfigError(USAGE) for a format of which there are no test events."""
    return _EVENTS[type(format_)](format_, table)


def form_of(format_: Format) -> Form | None:
    """The form of the format's test events, None if it has none."""
    if isinstance(format_, DebeziumFormat) and format_.encoding == "json":
        return Form.DEBEZIUM_JSON_SCHEMA if format_.time == "adaptive" else Form.DEBEZIUM_JSON
    if isinstance(format_, UpsertFormat) and format_.encoding == "json":
        return Form.UPSERT_JSON
    return Form.CHANGE if isinstance(format_, ChangeFormat) else None


def _only_json(encoding: str) -> None:
    if encoding != "json":
        raise _unwritten(f"encoding {encoding!r}", "encoding 'json', which is what test events have")


def _unwritten(found: str, expected: str) -> ConfigError:
    return ConfigError(
        Code.USAGE, where="upstream", found=found, expected=expected, next_step="correct the configuration"
    )
