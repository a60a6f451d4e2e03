"""Faults within the service's own decoder and encoder, which a checker that shares them would not see.

`INSIDE` is the one place that knows where rows pass through the two. A fault is a wrong value there: what the service
reads or writes then is wrong in the same way in every record.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from schemas.avro import columnar as avro_encoder
from schemas.avro.registered import KnownSchemas, SchemaIds, WriterSchema, frame
from schemas.codec.debezium import DebeziumDecoder
from schemas.codec.envelopes import AppendDecoder, UpsertDecoder
from schemas.formats.change import ChangeFormat
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.outputs.formats import DebeziumOutput, UpsertOutput
from schemas.formats.protocol import OutputFormat, UpstreamFormat
from schemas.formats.upsert import UpsertFormat
from schemas.json import columnar as json_encoder
from schemas.records import VnodeProgress
from schemas.table import declare
from schemas.types import ColumnType, TypeName
from streaming.reading.records.forms import RecordForm
from streaming.verify.checker import Checker
from streaming.verify.findings import Report
from streaming.verify.history import TopicEntry
from streaming.verify.records.canonical import canonical
from streaming.verify.records.rows import OutputView
from tests.kit.avro_records import encoded
from tests.kit.columns import origins
from tests.kit.encoded_histories import barrier, numbered

TABLE = declare(
    {
        "name": "t",
        "columns": {
            "id": "int",
            "amount": "decimal(18,2)",
            "count": "bigint",
            "note": "string",
            "at": "timestamp",
            "day": "date",
            "ok": "boolean",
            "ratio": "double",
            "raw": "binary",
        },
        "primary_key": ["id"],
        "vnode_count": 2,
    }
)
_MICROS, _DAYS = 1_769_860_800_123_456, 20_484

# Each row in three forms, by hand: to make them from values would need an encoder again.
ROWS_IN_JSON = (
    '{"id":1,"amount":"-12.34","count":-7,"note":"größe","at":"2026-01-31T12:00:00.123456Z","day":"2026-01-31",'
    '"ok":true,"ratio":-0.5,"raw":"AP8="}',
    '{"id":2,"amount":null,"count":null,"note":null,"at":null,"day":null,"ok":null,"ratio":null,"raw":null}',
)
ROWS_OF_CONNECT = (
    f'{{"id":1,"amount":"+y4=","count":-7,"note":"größe","at":{_MICROS},"day":{_DAYS},"ok":true,"ratio":-0.5,'
    '"raw":"AP8="}',
    ROWS_IN_JSON[1],
)
_TYPES: dict[str, Any] = {
    "amount": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2},
    "count": "long",
    "note": "string",
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "ok": "boolean",
    "ratio": "double",
    "raw": "bytes",
}
ROW_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        *({"name": name, "type": ["null", kind]} for name, kind in _TYPES.items()),
    ],
}
ROWS_IN_AVRO = (
    {
        "id": 1,
        "amount": b"\xfb\x2e",
        "count": -7,
        "note": "größe",
        "at": _MICROS,
        "day": _DAYS,
        "ok": True,
        "ratio": -0.5,
        "raw": b"\x00\xff",
    },
    {"id": 2, **dict.fromkeys(_TYPES)},
)
KEY_SCHEMA = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
_REGISTRY = KnownSchemas((WriterSchema(1, json.dumps(KEY_SCHEMA)), WriterSchema(2, json.dumps(ROW_SCHEMA))))


def _in_json(rows: Sequence[str]) -> list[TopicEntry]:
    return [TopicEntry(0, b'{"id":%d}' % number, row.encode()) for number, row in enumerate(rows, 1)]


_SOURCE = '"source":{"connector":"postgresql","name":"s","db":"d","snapshot":"true"}'
UPSTREAMS: dict[str, tuple[UpstreamFormat, list[TopicEntry]]] = {
    "upsert json": (UpsertFormat(), _in_json(ROWS_IN_JSON)),
    "debezium json": (
        DebeziumFormat(time="microseconds", decimal="precise"),
        _in_json([f'{{"op":"r","after":{row},{_SOURCE}}}' for row in ROWS_OF_CONNECT]),
    ),
    "upsert avro": (
        UpsertFormat(encoding="avro-registry").with_schemas(_REGISTRY),
        [
            TopicEntry(
                0, frame(1) + encoded(KEY_SCHEMA, {"id": row["id"]}), frame(2) + encoded(ROW_SCHEMA, row)
            )
            for row in ROWS_IN_AVRO
        ],
    ),
}
_IDS = SchemaIds(11, 12)
OUTPUTS: dict[str, OutputFormat] = {
    "change": ChangeFormat(),
    **{
        f"{kind.__name__} {encoding}": kind(encoding=encoding).with_ids(_IDS)
        for kind in (UpsertOutput, DebeziumOutput)
        for encoding in ("json", "json-schema", "avro-registry")
    },
}

# Faults: a wrong value in place of each value of a type.

_ZERO: dict[TypeName, Any] = {
    TypeName.DECIMAL: Decimal("0.00"),
    TypeName.BIGINT: 0,
    TypeName.STRING: "",
    TypeName.TIMESTAMP: dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    TypeName.DATE: dt.date(1970, 1, 1),
    TypeName.BOOLEAN: False,
    TypeName.DOUBLE: 0.0,
    TypeName.BINARY: b"",
}
Fault = Callable[[Any, ColumnType], Any]


def _scale(value: Any, kind: ColumnType) -> Any:
    return value * 10 if isinstance(value, Decimal) else value


def _sign(value: Any, kind: ColumnType) -> Any:
    return abs(value) if type(value) in (int, float, Decimal) else value


def _text(value: Any, kind: ColumnType) -> Any:
    return value[:-1] if isinstance(value, str | bytes) else value


def _unit(value: Any, kind: ColumnType) -> Any:
    zero = _ZERO[TypeName.TIMESTAMP]
    return zero + (value - zero) / 1_000 if isinstance(value, dt.datetime) else value


def _day(value: Any, kind: ColumnType) -> Any:
    return value + dt.timedelta(days=1) if type(value) is dt.date else value


def _null(value: Any, kind: ColumnType) -> Any:
    return _ZERO[kind.name] if value is None else value


def _branch(value: Any, kind: ColumnType) -> Any:
    return None if value is not None else _ZERO[kind.name]


FAULTS: dict[str, Fault] = {
    "a wrong scale": _scale,
    "a lost sign": _sign,
    "a truncated text": _text,
    "another unit of time": _unit,
    "a day too late": _day,
    "a dropped null": _null,
    "a swapped branch": _branch,
}


def _wrong(array: pa.Array, kind: ColumnType, fault: Fault) -> pa.Array:
    return pa.array([fault(value, kind) for value in array.to_pylist()], array.type)


def _in_decoder(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    for decoder in (UpsertDecoder, DebeziumDecoder, AppendDecoder):
        decode: Any = decoder.decode

        def decode_wrongly(self: Any, keys: Any, values: Any, decode: Any = decode) -> Any:
            found = decode(self, keys, values)
            wrong = [
                array if not column.nullable else _wrong(array, column.type, fault)
                for column, array in zip(TABLE.columns, found.after.flatten(), strict=True)
            ]
            return found._replace(after=pa.StructArray.from_arrays(wrong, fields=list(found.after.type)))

        patch.setattr(decoder, "decode", decode_wrongly)


def _in_encoder(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    in_json, in_avro = json_encoder.__dict__["cells"], avro_encoder._Records.add_column

    def cells(array: Any, kind: Any, encoding: Any) -> Any:
        # The key is the only column of 32 bits.
        return in_json(array if kind.name is TypeName.INT else _wrong(array, kind, fault), kind, encoding)

    def add_column(self: Any, column: Any, array: Any) -> None:
        in_avro(self, column, _wrong(array, column.type, fault) if column.nullable else array)

    patch.setattr(json_encoder, "cells", cells)
    patch.setattr(avro_encoder._Records, "add_column", add_column)


INSIDE: dict[str, Callable[[pytest.MonkeyPatch, Fault], None]] = {
    "decoder": _in_decoder,
    "encoder": _in_encoder,
}


def sent(upstream: UpstreamFormat, output: OutputFormat, records: Sequence[TopicEntry]) -> list[TopicEntry]:
    """Records as the service's decoder and encoder make them."""
    found = upstream.decoder(TABLE.columns, TABLE.key_columns).decode(
        *(pa.array([getattr(entry, part) for entry in records], pa.binary()) for part in ("key", "value"))
    )
    assert not found.errors
    before, after = found.before.flatten(), found.after.flatten()
    values = output.values(TABLE.columns).changes(found.ops, before, after, origins(len(records)))
    encode = output.keys(TABLE.key_columns)
    assert encode is not None
    keys = encode([after[0]])
    return [
        TopicEntry(0, key, value) for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)
    ]


def judged(upstream: str, output: str) -> Report:
    """The report of `verify` on an output that the service made, with barriers of its own around the records."""
    format_, records = UPSTREAMS[upstream]
    target = OUTPUTS[output]
    start = barrier(1, *(VnodeProgress(number, None, True, 0) for number in range(TABLE.vnode_count)))
    topics = (
        (format_, [barrier(1), *records, barrier(2)]),
        (target, [start, *sent(format_, target, records), barrier(2)]),
    )
    sources = [
        canonical(numbered(entries), RecordForm.of(form), TABLE.columns, TABLE.key_columns)
        for form, entries in topics
    ]
    forms = [RecordForm.of(form) for form, _ in topics]
    view = OutputView(TABLE, rows_before=forms[1].rows_before)
    checker = Checker(TABLE, view, ("up", sources[0]), ("out", sources[1]), rows_before=forms[0].rows_before)
    return checker.run(require_complete=True)
