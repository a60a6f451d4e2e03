"""The one form of keys and rows in outputs, written down from docs/outputs.md to compare it with what is there."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from schemas.records import Row
from schemas.table import Column
from schemas.types import ColumnType, TypeName
from streaming.reading.values.avro_bytes import twos_complement, unscaled_of
from streaming.reading.values.json_values import EPOCH

_QUOTED = json.JSONEncoder(ensure_ascii=False).encode
_LEAST_PLAIN, _LEAST_BIG = -6, 10
"""Powers of ten from which on, and up to which, a number has no exponent."""
_NAMES = "arrangement_backfill"
_CONNECT: dict[TypeName, dict[str, Any]] = {
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
_SOURCE = {
    "version": "string",
    "connector": "string",
    "name": "string",
    "ts_ms": "int64",
    "snapshot": "string",
} | {
    "db": "string",
    "table": "string",
    "epoch": "string",
    "vnode": "int32",
}
SOURCE_FIELDS = tuple(_SOURCE)


@cache
def _name(name: str) -> str:
    return quoted(name)


def quoted(text: str) -> str:
    """A text in JSON: what need not be escaped is not."""
    return _QUOTED(text)


def row_text(row: Row, columns: Sequence[Column], *, connect: bool) -> str:
    """An object of the columns in their order. `connect`: values as Kafka Connect has them."""
    cells = zip(columns, row, strict=True)
    return (
        "{"
        + ",".join(
            f"{_name(column.name)}:{cell_text(column, value, connect=connect)}" for column, value in cells
        )
        + "}"
    )


def cell_text(column: Column, value: Any, *, connect: bool = False) -> str:
    """One value, null for None."""
    if value is None:
        return "null"
    return (_CONNECT_TEXTS if connect else _TEXTS)[column.type.name](value, column.type)


def _single(value: float, _: ColumnType) -> str:
    import numpy as np  # most tables have no such column

    return _number(value, str(np.float32(value)))


def _number(value: float, shortest: str) -> str:
    """The fewest digits that distinguish a number, without a fraction or an exponent where they need none."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0"
    number = abs(Decimal(shortest)).normalize()
    figures, power, sign = "".join(map(str, number.as_tuple().digits)), number.adjusted(), value < 0
    if _LEAST_PLAIN <= power < _LEAST_BIG:
        text = format(number, "f")
    else:
        text = figures[0] + ("." + figures[1:] if figures[1:] else "") + f"e{power:+d}"
    return "-" + text if sign else text


def _base64(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


_TEXTS: dict[TypeName, Callable[[Any, ColumnType], str]] = {
    TypeName.BOOLEAN: lambda value, _: "true" if value else "false",
    TypeName.INT: lambda value, _: str(value),
    TypeName.BIGINT: lambda value, _: str(value),
    TypeName.FLOAT: _single,
    TypeName.DOUBLE: lambda value, _: _number(value, repr(value)),
    TypeName.DECIMAL: lambda value, _: f'"{value:f}"',
    TypeName.STRING: lambda value, _: quoted(value),
    TypeName.BINARY: lambda value, _: _base64(value),
    TypeName.DATE: lambda value, _: f'"{value.isoformat()}"',
    TypeName.TIMESTAMP: lambda value, _: (
        f'"{value.replace(tzinfo=None).isoformat(timespec="microseconds")}Z"'
    ),
}
_CONNECT_TEXTS = _TEXTS | {
    TypeName.DECIMAL: lambda value, kind: _base64(twos_complement(unscaled_of(value, kind))),
    TypeName.DATE: lambda value, _: str((value - EPOCH.date()).days),
    TypeName.TIMESTAMP: lambda value, _: str(_micros(value)),
}


def _micros(value: Any) -> int:
    since = value - EPOCH
    return int((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


# Kafka Connect's frame, which has the schema in each record.


def frame_of(schema: dict[str, Any]) -> tuple[bytes, bytes]:
    """The bytes before a payload and behind it."""
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return f'{{"schema":{text},"payload":'.encode(), b"}"


def row_schema_of(name: str, columns: Sequence[Column], *, optional: bool = False) -> dict[str, Any]:
    """Connect's schema of a row, a key or a value."""
    return _struct(name, [_field(each.name, _kind(each.type), each.nullable) for each in columns], optional)


def event_schema_of(columns: Sequence[Column]) -> dict[str, Any]:
    """Connect's schema of an event."""
    row = row_schema_of("Value", columns, optional=True)
    source = _struct("Source", [_field(name, {"type": kind}) for name, kind in _SOURCE.items()])
    rows = [{**row, "field": "before"}, {**row, "field": "after"}, {**source, "field": "source"}]
    return _struct(
        "Envelope", [*rows, _field("op", {"type": "string"}), _field("ts_ms", {"type": "int64"}, True)]
    )


def _struct(name: str, fields: list[dict[str, Any]], optional: bool = False) -> dict[str, Any]:
    return {"type": "struct", "fields": fields, "optional": optional, "name": f"{_NAMES}.{name}"}


def _field(name: str, kind: dict[str, Any], optional: bool = False) -> dict[str, Any]:
    return {"type": kind["type"], "optional": optional, **kind, "field": name}


def _kind(kind: ColumnType) -> dict[str, Any]:
    if kind.name is not TypeName.DECIMAL:
        return _CONNECT[kind.name]
    parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
    name = "org.apache.kafka.connect.data.Decimal"
    return {"type": "bytes", "name": name, "version": 1, "parameters": parameters}
