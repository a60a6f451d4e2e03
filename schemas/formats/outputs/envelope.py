"""The envelope of a change event in JSON: the text around its rows, and its schema."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from schemas.avro.output_schemas import SOURCE
from schemas.json.cells import Encoding, text
from schemas.json.frames import (
    connect_field,
    connect_row,
    connect_struct,
    framed,
    json_object,
    json_row,
    or_null,
)
from schemas.records import Barrier, Op
from schemas.table import Column

CONNECTOR = "arrangement-backfill"
READ = "r"
"""A row of the snapshot read."""
LETTERS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d"}
OPS = {READ: Op.INSERT} | {letter: op for op, letter in LETTERS.items()}


@cache
def own_version() -> str:
    """The version of this package, which events name as their writer."""
    return version("arrangement-backfill")


def source(job: str, table: str, letter: str, barrier: Barrier, written_by: str) -> str:
    """The text between the row after and the number of the part."""
    snapshot = "true" if letter == READ else "false"
    return (
        f',"source":{{"version":{text(written_by)},"connector":"{CONNECTOR}","name":{text(job)}'
        f',"ts_ms":{barrier.injected_at_ms},"snapshot":"{snapshot}","db":"","table":{text(table)}'
        f',"epoch":"{barrier.curr}","vnode":'
    )


def tail(letter: str, barrier: Barrier) -> str:
    """The text behind the number of the part."""
    return f'}},"op":"{letter}","ts_ms":{barrier.injected_at_ms}}}'


@cache
def event_frame(columns: tuple[Column, ...], encoding: Encoding) -> tuple[bytes, bytes]:
    """The constant bytes before an envelope and behind it."""
    return framed(_connect_event(columns)) if encoding == "json-schema" else (b"", b"")


def event_schema(columns: Sequence[Column], encoding: Encoding) -> dict[str, Any]:
    """The schema of an envelope, for readers."""
    if encoding == "json-schema":
        return _connect_event(columns)
    row, string, integer = or_null(json_row(columns)), {"type": "string"}, {"type": "integer"}
    source = {name: integer if kind != "string" else string for name, kind in SOURCE.items()}
    fields = {
        "before": row,
        "after": row,
        "source": json_object(source),
        "op": {"enum": list(OPS)},
        "ts_ms": integer,
    }
    return json_object(fields)


_CONNECT_TYPES = {"string": "string", "long": "int64", "int": "int32"}


def _connect_event(columns: Sequence[Column]) -> dict[str, Any]:
    row = connect_row("Value", columns, optional=True)
    source = connect_struct(
        "Source", [connect_field(name, {"type": _CONNECT_TYPES[kind]}) for name, kind in SOURCE.items()]
    )
    fields = [
        *({**row, "field": "before"}, {**row, "field": "after"}, {**source, "field": "source"}),
        connect_field("op", {"type": "string"}),
        connect_field("ts_ms", {"type": "int64"}, optional=True),
    ]
    return connect_struct("Envelope", fields)
