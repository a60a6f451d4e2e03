"""The one form of keys and rows in outputs, written down from docs/outputs.md to compare it with what is there."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

from schemas.table import Column
from schemas.types import ColumnType, TypeName
from streaming.reading.values.avro_bytes import MICROSECOND, twos_complement, unscaled_of
from streaming.reading.values.json_values import EPOCH

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
SOURCE = tuple(
    Column(name, ColumnType.parse(kind), nullable=False)
    for name, kind in {
        **dict.fromkeys(("version", "connector", "name"), "string"),
        "ts_ms": "bigint",
        **dict.fromkeys(("snapshot", "db", "table", "epoch"), "string"),
        "vnode": "int",
    }.items()
)
"""The fields of an event's source."""


class RowText:
    """Writes rows of some columns in JSON, in their order. `connect`: values as Kafka Connect has them."""

    def __init__(self, columns: Sequence[Column], *, connect: bool) -> None:
        self._cells = [
            (f"{encode_basestring(each.name)}:", _text_writer(each.type, connect=connect)) for each in columns
        ]

    def __call__(self, row: Sequence[Any] | None) -> str:
        """An object; null for None."""
        if row is None:
            return "null"
        cells = [
            name + ("null" if value is None else write(value))
            for (name, write), value in zip(self._cells, row, strict=True)
        ]
        return "{" + ",".join(cells) + "}"


def cell_text(column: Column, value: Any) -> str:
    """One value, null for None."""
    return "null" if value is None else _TEXTS[column.type.name](value)


def _single(value: float) -> str:
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


_TEXTS: dict[TypeName, Callable[[Any], str]] = {
    TypeName.BOOLEAN: lambda value: "true" if value else "false",
    TypeName.INT: str,
    TypeName.BIGINT: str,
    TypeName.FLOAT: _single,
    TypeName.DOUBLE: lambda value: _number(value, repr(value)),
    TypeName.DECIMAL: lambda value: f'"{value:f}"',
    TypeName.STRING: encode_basestring,
    TypeName.BINARY: _base64,
    TypeName.DATE: lambda value: f'"{value.isoformat()}"',
    TypeName.TIMESTAMP: lambda value: f'"{value.isoformat(timespec="microseconds")[:-6]}Z"',
}
_CONNECT_TEXTS = _TEXTS | {
    TypeName.DATE: lambda value: str((value - EPOCH.date()).days),
    TypeName.TIMESTAMP: lambda value: str((value - EPOCH) // MICROSECOND),
}


def _text_writer(kind: ColumnType, *, connect: bool) -> Callable[[Any], str]:
    if connect and kind.name is TypeName.DECIMAL:
        return lambda value: _base64(twos_complement(unscaled_of(value, kind)))
    return (_CONNECT_TEXTS if connect else _TEXTS)[kind.name]


# Kafka Connect's frame, which has the schema in each record.


def frame_of(schema: dict[str, Any]) -> tuple[str, str]:
    """The text before a payload and behind it."""
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return f'{{"schema":{text},"payload":', "}"


def row_schema_of(name: str, columns: Sequence[Column], *, optional: bool = False) -> dict[str, Any]:
    """Connect's schema of a row, a key or a value."""
    return _struct(name, [_field(each.name, _kind(each.type), each.nullable) for each in columns], optional)


def event_schema_of(columns: Sequence[Column]) -> dict[str, Any]:
    """Connect's schema of an event."""
    row = row_schema_of("Value", columns, optional=True)
    source = row_schema_of("Source", SOURCE)
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
