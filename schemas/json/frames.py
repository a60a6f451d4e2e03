"""The schemas of outputs in JSON for readers, and Kafka Connect's frame, which has the schema in each record.

The frame is `{"schema": ..., "payload": ...}`; names in a schema say what a number or bytes mean. Source:
https://kafka.apache.org/documentation/#connect_schemas, and for timestamps
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-temporal-types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.table import Column
from schemas.types import ColumnType, TypeName

Schema = dict[str, Any]

_NAMES = "arrangement_backfill"
"""Before the names of structs. Debezium's transformations know an envelope by `.Envelope` at the end of its name."""
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_CONNECT: dict[TypeName, Schema] = {
    TypeName.BOOLEAN: {"type": "boolean"},
    TypeName.INT: {"type": "int32"},
    TypeName.BIGINT: {"type": "int64"},
    TypeName.FLOAT: {"type": "float"},
    TypeName.DOUBLE: {"type": "double"},
    TypeName.STRING: {"type": "string"},
    TypeName.BINARY: {"type": "bytes"},
    TypeName.DATE: {"type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1},
    TypeName.TIMESTAMP: {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
}
_NOT_FINITE: Schema = {"enum": ["NaN", "Infinity", "-Infinity"]}
_JSON: dict[TypeName, Schema] = {
    TypeName.BOOLEAN: {"type": "boolean"},
    TypeName.INT: {"type": "integer"},
    TypeName.BIGINT: {"type": "integer"},
    TypeName.FLOAT: {"anyOf": [{"type": "number"}, _NOT_FINITE]},
    TypeName.DOUBLE: {"anyOf": [{"type": "number"}, _NOT_FINITE]},
    TypeName.STRING: {"type": "string"},
    TypeName.BINARY: {"type": "string", "contentEncoding": "base64"},
    TypeName.DATE: {"type": "string", "format": "date"},
    TypeName.TIMESTAMP: {"type": "string", "format": "date-time"},
}


def framed(schema: Schema) -> tuple[bytes, bytes]:
    """The constant bytes before a payload and behind it."""
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return f'{{"schema":{text},"payload":'.encode(), b"}"


def connect_struct(name: str, fields: Sequence[Schema], *, optional: bool = False) -> Schema:
    """Connect's schema of an object with these fields."""
    return {"type": "struct", "fields": list(fields), "optional": optional, "name": f"{_NAMES}.{name}"}


def connect_field(name: str, schema: Mapping[str, Any], *, optional: bool = False) -> Schema:
    """Connect's schema of a field of an object."""
    return {"type": schema["type"], "optional": optional, **schema, "field": name}


def connect_row(name: str, columns: Sequence[Column], *, optional: bool = False) -> Schema:
    """Connect's schema of an object of these columns."""
    fields = [connect_field(each.name, _connect(each.type), optional=each.nullable) for each in columns]
    return connect_struct(name, fields, optional=optional)


def _connect(kind: ColumnType) -> Schema:
    if kind.name is not TypeName.DECIMAL:
        return _CONNECT[kind.name]
    parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
    return {"type": "bytes", "name": _DECIMAL, "version": 1, "parameters": parameters}


def json_object(fields: Mapping[str, Schema]) -> Schema:
    """JSON Schema of an object that has all of these fields and no other."""
    return {
        "type": "object",
        "properties": dict(fields),
        "required": list(fields),
        "additionalProperties": False,
    }


def json_row(columns: Sequence[Column]) -> Schema:
    """JSON Schema of an object of these columns."""
    return json_object(
        {each.name: or_null(_json(each.type)) if each.nullable else _json(each.type) for each in columns}
    )


def or_null(schema: Schema) -> Schema:
    """JSON Schema of the same value, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def _json(kind: ColumnType) -> Schema:
    if kind.name is not TypeName.DECIMAL:
        return _JSON[kind.name]
    fraction = rf"\.[0-9]{{{kind.scale}}}" if kind.scale else ""
    return {"type": "string", "pattern": f"^-?[0-9]+{fraction}$"}
