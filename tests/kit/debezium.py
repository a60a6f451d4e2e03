"""Change events as Debezium's PostgreSQL connector writes them: recorded ones, and an upstream that writes its own."""

from __future__ import annotations

import base64
import datetime as dt
import json
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from schemas.avro.registered import KnownSchemas, WriterSchema, frame
from schemas.json.placeholder import UNAVAILABLE
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column, declare
from tests.kit.avro_records import encoded
from tests.kit.real_upstream import RealUpstream
from tests.kit.registry import FakeRegistry

RECORDED = declare(
    {
        "name": "orders",
        "columns": {
            "id": "bigint",
            "region": "string",
            "amount": "decimal(18,2)",
            "free": "decimal(38,20)",
            "price": "double",
            "at": "timestamp",
            "at_plain": "timestamp",
            "at_ms": "timestamp",
            "day": "date",
            "tm": "bigint",
            "note": "string",
            "body": "string",
            "doc": "string",
            "ref": "string",
            "ok": "boolean",
            "raw": "binary",
            "mood": "string",
            "tags": "string",
        },
        "primary_key": ["region", "id"],
    }
)
"""The table that `tests/records` is of. The unit of `at_ms` is in frames alone."""

RECORDS = Path(__file__).parents[1] / "records"


UNLISTED = declare(
    {
        "name": RECORDED.name,
        "columns": {each.name: str(each.type) for each in RECORDED.columns if each.name != "tags"},
        "primary_key": list(RECORDED.primary_key),
    }
)
"""This table without its list of integers, which is text in JSON, and in Avro nothing that a column has."""


class Recorded(NamedTuple):
    """A record of a real connector, with its topic's name behind the prefix."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None


def recorded(name: str, server: str = "postgres") -> list[Recorded]:
    """`plain`, `schemas`, whose records have frames, or `avro`, by `recorded_schemas`.

    Of `mariadb` and `mysql`, whose topics begin with the connector's name, `settings` as well: see `tests.kit.servers`.
    """
    lines = (RECORDS / f"debezium-{server}-{name}.jsonl").read_text(encoding="utf-8").splitlines()
    found = map(json.loads, lines)
    return [
        Recorded(each["topic"], each["partition"], *(_bytes(each[part], name) for part in ("key", "value")))
        for each in found
    ]


def recorded_schemas(server: str = "postgres") -> KnownSchemas:
    """Schemas of the registry of the recording `avro`."""
    found = json.loads((RECORDS / f"debezium-{server}-avro-schemas.json").read_text(encoding="utf-8"))
    return KnownSchemas(
        tuple(WriterSchema(int(number), json.dumps(schema)) for number, schema in found.items())
    )


def _bytes(text: str | None, name: str) -> bytes | None:
    if text is None:
        return None
    return bytes.fromhex(text) if name == "avro" else text.encode()


class DebeziumUpstream(RealUpstream):
    """A connector for one table, whose rows have a text column `note` that may be too large for the database's log."""

    form: ClassVar[dict[str, str]] = {
        "format": "debezium",
        "time": "microseconds",
        "decimal": "precise",
    }
    _NOTE: ClassVar[str] = "note"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lsn = 1_000
        self._events: list[list[tuple[bytes, bytes | None]]] = []

    def put_without_note(self, row: Row) -> None:
        """UPDATE the row with this key; its note stays what it is."""
        key, names = self.table.key_of(row), self.table.column_names
        note = self.rows[key][names.index(self._NOTE)]
        self.rows[key] = tuple(
            note if name == self._NOTE else value for name, value in zip(names, row, strict=True)
        )
        self.say_without_note(row)

    def say_without_note(self, row: Row) -> None:
        """Send that UPDATE, whether there is such a row or not."""
        after = {**self._cells(row), self._NOTE: UNAVAILABLE}
        self._event(self.table.key_of(row), "u", after)

    def again(self, events: int) -> int:
        """Start once more, so many events back. Returns the number of their records."""
        for event in self._events[-events:]:
            self._send(event)
        return sum(map(len, self._events[-events:]))

    def envelope(self, op: str, after: dict[str, Any] | None) -> bytes:
        """The row as the connector writes it now."""
        return _json(self._event_of(op, after))

    def _event_of(self, op: str, after: dict[str, Any] | None) -> dict[str, Any]:
        place = {"sequence": f'["{self._lsn - 100}","{self._lsn}"]', "lsn": self._lsn}
        source = {
            "connector": "postgresql",
            "name": "up",
            "snapshot": "false",
            "table": self.table.name,
            **place,
        }
        return {"before": None, "after": after, "source": source, "op": op, "ts_ms": 1}

    def _append(self, key: Key, change: Change) -> None:
        op = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d"}[change.op]
        self._event(key, op, None if change.after is None else self._cells(change.after))

    def _event(self, key: Key, op: str, after: dict[str, Any] | None) -> None:
        self._lsn += 8
        data = self._written_key(dict(zip(self.table.primary_key, key, strict=True)))
        event: list[tuple[bytes, bytes | None]] = [(data, self.envelope(op, after))]
        if op == "d":
            event.append((data, None))
        self._events.append(event)
        self._send(event)

    def _send(self, event: list[tuple[bytes, bytes | None]]) -> None:
        for data, value in event:
            self._producer.produce(self.name, value, data, zlib.crc32(data) % self.partitions)
        self._producer.poll(0)

    def _written_key(self, key: dict[str, Any]) -> bytes:
        return _json({name: _cell(value) for name, value in key.items()})

    def _cells(self, row: Row) -> dict[str, Any]:
        return {name: _cell(value) for name, value in zip(self.table.column_names, row, strict=True)}


class WholeDebeziumUpstream(DebeziumUpstream):
    """Events of a table under REPLICA IDENTITY FULL, of which nothing is left out."""

    form: ClassVar[dict[str, str]] = {**DebeziumUpstream.form, "before": "full"}

    def _append(self, key: Key, change: Change) -> None:
        self._before = None if change.before is None else self._cells(change.before)
        super()._append(key, change)

    def _event_of(self, op: str, after: dict[str, Any] | None) -> dict[str, Any]:
        return {**super()._event_of(op, after), "before": self._before}


class AvroDebeziumUpstream(DebeziumUpstream):
    """Events by the schemas of a registry; `more` are further fields of a row's schema from now on."""

    form: ClassVar[dict[str, str]] = {"format": "debezium", "encoding": "avro-registry"}
    more: tuple[str, ...] = ()

    def attach(self, registry: FakeRegistry) -> None:
        """Have schemas registered there from now on."""
        self.sections, self._registry = {"registry": {"url": registry.url}}, registry

    def envelope(self, op: str, after: dict[str, Any] | None) -> bytes:
        """An envelope as `DebeziumUpstream.envelope` writes it."""
        fields = [
            *_fields(self.table.columns),
            *({"name": name, "type": ["null", "int"]} for name in self.more),
        ]
        row = None if after is None else dict.fromkeys(self.more) | after
        source = [
            {"name": name, "type": "string"}
            for name in ("connector", "name", "snapshot", "table", "sequence")
        ]
        schema = {
            "type": "record",
            "name": "shop.Envelope",
            "fields": [
                {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": fields}]},
                {"name": "after", "type": ["null", "Value"]},
                {
                    "name": "source",
                    "type": _record("Source", [*source, {"name": "lsn", "type": ["null", "long"]}]),
                },
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": ["null", "long"]},
            ],
        }
        return self._written("value", schema, self._event_of(op, row))

    def _written_key(self, key: dict[str, Any]) -> bytes:
        return self._written("key", _record("shop.Key", _fields(self.table.key_columns)), key)

    def _written(self, half: str, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
        return frame(self._registry.register(f"{self.name}-{half}", schema)) + encoded(schema, value)

    def _cells(self, row: Row) -> dict[str, Any]:
        cells = zip(self.table.column_names, row, strict=True)
        return {name: _unscaled(cell) if isinstance(cell, Decimal) else cell for name, cell in cells}


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def _fields(columns: Sequence[Column]) -> list[dict[str, Any]]:
    return [
        {"name": column.name, "type": ["null", column.type.avro] if column.nullable else column.type.avro}
        for column in columns
    ]


def _unscaled(number: Decimal) -> bytes:
    unscaled = int(number.scaleb(-int(number.as_tuple().exponent)))
    return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, signed=True)


def _cell(value: object) -> object:
    match value:
        case Decimal():
            return base64.b64encode(_unscaled(value)).decode()
        case dt.datetime():
            return int(value.timestamp() * 1_000_000)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
