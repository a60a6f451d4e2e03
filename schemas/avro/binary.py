"""The Avro schemas of the contract (docs/contract.md#records-on-the-upstream), generated from a table.

All records are schemaless Avro binary: no header, no schema id. Field order is the contract; a nullable
field is `[null, T]` in this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.table import Column

Schema = dict[str, Any]

OPS = ["INSERT", "UPDATE", "DELETE"]
BARRIER_KINDS = ["INITIAL", "BARRIER", "CHECKPOINT"]


def _field(column: Column) -> Schema:
    kind = ["null", column.type.avro] if column.nullable else column.type.avro
    return {"name": column.name, "type": kind}


def key_schema(key_columns: Sequence[Column]) -> Schema:
    """The key record: the primary key's columns in key order, none nullable."""
    return {"type": "record", "name": "Key", "fields": [_field(column) for column in key_columns]}


def change_schema(columns: Sequence[Column]) -> Schema:
    """`Change` over a `Row` of these columns, in this order."""
    row = {"type": "record", "name": "Row", "fields": [_field(column) for column in columns]}
    return {
        "type": "record",
        "name": "Change",
        "fields": [
            {"name": "op", "type": {"type": "enum", "name": "Op", "symbols": OPS}},
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Row"]},
        ],
    }


def _mutation(name: str, *fields: tuple[str, Any]) -> Schema:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


BARRIER_SCHEMA: Schema = {
    "type": "record",
    "name": "Barrier",
    "fields": [
        {"name": "curr", "type": "long"},
        {"name": "prev", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": BARRIER_KINDS}},
        {"name": "partitions", "type": "int"},
        {"name": "injected_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "mutation",
            "type": [
                "null",
                _mutation("Add", ("job", "string")),
                _mutation("Drop", ("job", "string")),
                _mutation("Pause", ("job", ["null", "string"])),
                _mutation("Resume", ("job", ["null", "string"])),
                _mutation("Throttle", ("job", "string"), ("rate_limit", ["null", "long"])),
                _mutation("Stop"),
                # The last branch for ever: later mutations go by their name.
                _mutation("Other", ("name", "string"), ("value", "string")),
            ],
        },
        {
            "name": "progress",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "VnodeProgress",
                    "fields": [
                        {"name": "vnode", "type": "int"},
                        {"name": "position", "type": ["null", "string"]},
                        {"name": "finished", "type": "boolean"},
                        {"name": "row_count", "type": "long"},
                    ],
                },
            },
        },
    ],
}
