"""Avro schemas of outputs: the contract's own (docs/contract.md#records-on-the-upstream), and registered ones.

The contract's are of records without a schema in front: field order is the contract. Registered are rows, keys and
Debezium's envelope. Their text is registered as it is made here, so it has to be the same for the same columns and
topic for ever: another one is another schema, with another id. Columns have names that Avro takes as well
(`schemas.table`); what a topic may be called is made to fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.records import Op
from schemas.table import Column
from schemas.types import TypeName

Schema = dict[str, Any]

_CONNECT_NAMES = {TypeName.TIMESTAMP: "io.debezium.time.MicroTimestamp"}
"""Names for Kafka Connect, which has no timestamp of microseconds: its converters would give a plain number."""
SOURCE: Mapping[str, str] = {
    "version": "string",
    "connector": "string",
    "name": "string",
    "ts_ms": "long",
    "snapshot": "string",
    "db": "string",
    "table": "string",
    "epoch": "string",
    "vnode": "int",
}
"""The fields of an event's origin, with their types."""


def key_schema(key_columns: Sequence[Column]) -> Schema:
    """The key record: the primary key's columns in key order, none nullable."""
    return {"type": "record", "name": "Key", "fields": [_contract_field(column) for column in key_columns]}


def change_schema(columns: Sequence[Column]) -> Schema:
    """`Change` over a `Row` of these columns, in this order."""
    row = {"type": "record", "name": "Row", "fields": [_contract_field(column) for column in columns]}
    return {
        "type": "record",
        "name": "Change",
        "fields": [
            {"name": "op", "type": {"type": "enum", "name": "Op", "symbols": [op.name for op in Op]}},
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Row"]},
        ],
    }


def namespace_of(topic: str) -> str:
    """The names between a topic's dots, with `_` for what no name of Avro has, and in front of a digit."""
    parts = (re.sub(r"[^A-Za-z0-9_]", "_", part) for part in topic.split("."))
    return ".".join(part if part and not part[0].isdigit() else f"_{part}" for part in parts)


def row_record(name: str, columns: Sequence[Column], topic: str | None) -> Schema:
    """A record of columns, in the topic's namespace; in that of the record around it without a topic."""
    space = {} if topic is None else {"namespace": namespace_of(topic)}
    return {"type": "record", "name": name, **space, "fields": [_field(column) for column in columns]}


def envelope(columns: Sequence[Column], topic: str) -> Schema:
    """An event over rows of these columns."""
    source = [{"name": name, "type": kind} for name, kind in SOURCE.items()]
    fields = [
        {"name": "before", "type": ["null", row_record("Value", columns, None)], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    return {"type": "record", "name": "Envelope", "namespace": namespace_of(topic), "fields": fields}


def text_of(schema: Mapping[str, Any]) -> str:
    """The text under which a schema is registered; it must not change between versions."""
    return json.dumps(schema, separators=(",", ":"))


def _contract_field(column: Column) -> Schema:
    kind = ["null", column.type.avro] if column.nullable else column.type.avro
    return {"name": column.name, "type": kind}


def _field(column: Column) -> Schema:
    kind = column.type.avro
    if (name := _CONNECT_NAMES.get(column.type.name)) and isinstance(kind, dict):
        kind = {**kind, "connect.name": name}
    if column.nullable:
        return {"name": column.name, "type": ["null", kind], "default": None}
    return {"name": column.name, "type": kind}
