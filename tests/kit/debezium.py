"""Change events as Debezium's PostgreSQL connector writes them: recorded ones, and an upstream that writes its own."""

from __future__ import annotations

import base64
import datetime as dt
import json
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from schemas.json.debezium_values import UNAVAILABLE
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import declare
from tests.kit.real import RealUpstream

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
"""The table that `tests/records` is of. The unit of `at_ms` is told by frames alone."""

_FOLDER = Path(__file__).parents[1] / "records"


class Recorded(NamedTuple):
    """A record of a real connector, with its topic's name behind the prefix."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None


def recorded(name: str) -> list[Recorded]:
    """`plain` or `schemas`, whose records have frames."""
    lines = (_FOLDER / f"debezium-postgres-{name}.jsonl").read_text(encoding="utf-8").splitlines()
    found = map(json.loads, lines)
    return [
        Recorded(each["topic"], each["partition"], *(_bytes(each[part]) for part in ("key", "value")))
        for each in found
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


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
        """The same, whether there is such a row or not."""
        after = {**self._cells(row), self._NOTE: UNAVAILABLE}
        self._event(self.table.key_of(row), "u", after)

    def again(self, events: int) -> None:
        """Start once more, so many events back."""
        for event in self._events[-events:]:
            self._send(event)

    def envelope(self, op: str, after: dict[str, Any] | None) -> bytes:
        """As the connector writes it now."""
        place = {"sequence": json.dumps([str(self._lsn - 100), str(self._lsn)]), "lsn": self._lsn}
        source = {
            "connector": "postgresql",
            "name": "up",
            "snapshot": "false",
            "table": self.table.name,
            **place,
        }
        return _json({"before": None, "after": after, "source": source, "op": op, "ts_ms": 1})

    def _append(self, key: Key, change: Change) -> None:
        op = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d"}[change.op]
        self._event(key, op, None if change.after is None else self._cells(change.after))

    def _event(self, key: Key, op: str, after: dict[str, Any] | None) -> None:
        self._lsn += 8
        data = _json({name: _cell(value) for name, value in zip(self.table.primary_key, key, strict=True)})
        event: list[tuple[bytes, bytes | None]] = [(data, self.envelope(op, after))]
        if op == "d":
            event.append((data, None))
        self._events.append(event)
        self._send(event)

    def _send(self, event: list[tuple[bytes, bytes | None]]) -> None:
        for data, value in event:
            self._producer.produce(self.name, value, data, zlib.crc32(data) % self.partitions)
        self._producer.poll(0)

    def _cells(self, row: Row) -> dict[str, Any]:
        return {name: _cell(value) for name, value in zip(self.table.column_names, row, strict=True)}


def _cell(value: object) -> object:
    match value:
        case Decimal():
            unscaled = int(value.scaleb(-int(value.as_tuple().exponent)))
            return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, signed=True)).decode()
        case dt.datetime():
            return int(value.timestamp() * 1_000_000)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
