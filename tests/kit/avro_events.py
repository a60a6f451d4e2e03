"""Change events by schemas of a registry for Hypothesis, sound and odd, with rows as `avro_records` has them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from schemas.avro.registered import WriterSchema, frame
from schemas.json.placeholder import UNAVAILABLE
from schemas.table import TableSchema
from schemas.types import TypeName
from tests.kit.avro_records import LONGS, Record, Writer, broken, encoded, key_writer, row_writer, without

_TEXT = ["null", "string"]
_SOURCES: list[Any] = [
    {
        "version": "string",
        "connector": "string",
        "snapshot": [{"type": "string", "connect.default": "false"}, "null"],
        "sequence": _TEXT,
        "lsn": ["null", "long"],
    },
    {"connector": "string", "lsn": "string", "snapshot": "boolean"},
    {"connector": "string", "sequence": _TEXT},
]
_ODD_TEXTS = [
    "postgresql",
    "mysql",
    "false",
    "first",
    '["5","7"]',
    '[null,"7"]',
    '["9223372036854775808","1"]',
    "\x00",
]
_LEFT_OUT: dict[tuple[TypeName, str], Any] = {
    (TypeName.STRING, "string"): UNAVAILABLE,
    (TypeName.BINARY, "bytes"): UNAVAILABLE.encode(),
}


def _envelope(number: int, row: Writer, source: Any, *, optional: bool) -> Any:
    """With the row's schema in `before`, and its name in `after`."""
    record = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": name, "type": kind} for name, kind in source.items()],
    }
    fields = [
        {"name": "before", "type": ["null", row.avro]},
        {"name": "after", "type": [f"{row.avro['namespace']}.{row.avro['name']}", "null"]},
        {"name": "source", "type": ["null", record] if optional else record},
        {"name": "op", "type": ["null", "string"] if optional else "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ]
    return {"type": "record", "name": f"Envelope{number}", "fields": fields}


def _source(draw: st.DrawFn, kinds: Any, *, odd: bool) -> Any:
    values = {
        "connector": st.sampled_from(["postgresql", "postgresql", "mysql"]),
        "snapshot": st.sampled_from(["false", "false", "first", *(["incremental"] if odd else [])]),
        "sequence": st.sampled_from(['["5","7"]', *_ODD_TEXTS]),
        "lsn": st.sampled_from([7, None]) | LONGS,
        "version": st.text(max_size=3),
    }
    other = {"string": st.sampled_from(_ODD_TEXTS), "boolean": st.booleans()}
    return {
        name: draw(
            other[kind] if isinstance(kind, str) and kind in other and name != "connector" else values[name]
        )
        for name, kind in kinds.items()
    }


@st.composite
def events(
    draw: st.DrawFn, table: TableSchema, *, odd: bool, whole: bool = False, count: int = 60
) -> tuple[tuple[WriterSchema, ...], list[Record]]:
    """Schemas of several writers, and events by them; `whole`: with the row before, as is fit for their op."""
    key = key_writer(draw, 10, table.key_columns, "record", odd)
    rows = [row_writer(draw, 20 + n, table.columns, odd=odd, whole=False) for n in range(3)]
    kept = 1 if odd else 0
    rows[kept:] = [without(each, table.primary_key) for each in rows[kept:]]
    sources = [draw(st.sampled_from(_SOURCES)) for _ in rows]
    envelopes = [
        _envelope(number, *each, optional=odd) for number, each in enumerate(zip(rows, sources, strict=True))
    ]
    schemas = [key.schema, *(WriterSchema(20 + n, json.dumps(each)) for n, each in enumerate(envelopes))]

    def row(writer: Writer) -> dict[str, Any]:
        found = {name: draw(values) for name, (_, values) in writer.fields.items()}
        for column in table.columns:
            avro = writer.fields.get(column.name, ("", None))[0]
            left_out = _LEFT_OUT.get((column.type.name, avro if isinstance(avro, str) else ""))
            if (
                left_out is not None
                and column.nullable
                and (odd or not whole)
                and not draw(st.integers(0, 5))
            ):
                found[column.name] = left_out
        return found

    found: list[Record] = []
    for _ in range(count):
        at = draw(st.integers(0, len(rows) - 1))
        op = draw(st.sampled_from(["c", "u", "r", "d"] + (["t", "x", "", None] if odd else [])))
        half = (op != "d") if not odd or draw(st.integers(0, 9)) else op == "d"
        has_before = (
            op in ("u", "d") if whole and (not odd or draw(st.integers(0, 9))) else draw(st.booleans())
        )
        event = {
            "before": row(rows[at]) if has_before else None,
            "after": row(rows[at]) if half else None,
            "source": _source(draw, sources[at], odd=odd) if not odd or draw(st.integers(0, 5)) else None,
            "op": op,
            "ts_ms": draw(st.none() | LONGS),
        }
        cells = {name: draw(values) for name, (_, values) in key.fields.items()}
        data = frame(10) + encoded(key.avro, cells)
        if odd and event["source"] is None and event["after"] is None and op is None:
            event["op"] = "x"  # else it is a heartbeat, which is no change
        value: bytes | None = frame(20 + at) + encoded(envelopes[at], event)
        if not whole and not draw(st.integers(0, 9)):
            value = draw(st.sampled_from([None, b""]))
        elif odd and value is not None:
            value = broken(draw, value) or b"\x00"
        if odd and not draw(st.integers(0, 3)):
            data = broken(draw, data)
        found.append((data, value))
    return tuple(schemas), found
