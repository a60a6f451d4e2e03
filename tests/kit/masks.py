"""The plain model of docs/outputs.md#columns: the columns of a row as a job shows them, a value at a time."""

from __future__ import annotations

import atexit
import base64
import datetime as dt
import hashlib
import hmac
import os
import random
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from schemas.kinds.projection import OutputColumn, plain
from schemas.table import TableSchema
from schemas.types import TypeName

HASH_KEY = b"\x00a key\xff"
MASKED = 0.3


@cache
def hash_key_file() -> str:
    """A file with the key and a line end, for the time of the process."""
    number, path = tempfile.mkstemp(prefix="backfill-hash-key-")
    with os.fdopen(number, "wb") as file:
        file.write(HASH_KEY + b"\n")
    atexit.register(os.remove, path)
    return path


def keys_of(columns: Sequence[OutputColumn]) -> dict[str, Any]:
    """The keys of a job with these columns."""
    file = hash_key_file() if any(column.mask == "hash" for column in columns) else None
    return {"columns": [column.declared for column in columns], "hash_key_file": file}


def shown(column: OutputColumn, value: Any, key: bytes = HASH_KEY) -> Any:
    """The value of an output's column."""
    if column.mask is None or value is None:
        return value
    if column.mask == "null":
        return None
    if column.mask == "prefix":
        return "".join(list(value)[: column.length])
    return hmac.new(key, text_of(value).encode(), hashlib.sha256).hexdigest()


def text_of(value: Any) -> str:
    """The text of a value in an output in JSON, without its quotes and escapes."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case dt.datetime():
            date, time = value.date(), value.time()
            return f"{date.isoformat()}T{time.isoformat('microseconds')}Z"
        case dt.date():
            return value.isoformat()
    return str(value)


def projected(names: Sequence[str], table: TableSchema, rng: random.Random) -> tuple[OutputColumn, ...]:
    """The columns, some under another name, some masked."""
    return tuple(_drawn(each, table, rng) for each in plain(names))


def another_key(columns: Sequence[OutputColumn], table: TableSchema, rng: random.Random) -> tuple[str, ...]:
    """The primary key with further columns, as far as they may be in a key."""
    key = list(table.primary_key)
    for column in table.columns:
        shown = {each.mask for each in columns if each.source == column.name}
        may_be = shown == {"hash"} or (shown <= {None} and column.type.allowed_in_key)
        if column.name not in key and may_be and rng.random() < 0.7:
            key.insert(rng.randint(0, len(key)), column.name)
    return tuple(key) if tuple(key) != table.primary_key else ()


def _drawn(column: OutputColumn, table: TableSchema, rng: random.Random) -> OutputColumn:
    name = column.source if rng.random() < 0.7 else f"as_{column.source}"
    if column.source in table.primary_key or rng.random() > MASKED:
        return OutputColumn(name, column.source)
    kind = table.by_name[column.source].type.name
    choices = [OutputColumn(column.source, column.source, "null")]
    if kind not in (TypeName.FLOAT, TypeName.DOUBLE):
        choices.append(OutputColumn(name, column.source, "hash"))
    if kind is TypeName.STRING:
        choices.append(OutputColumn(name, column.source, "prefix", rng.choice([1, 2])))
    return rng.choice(choices)
