"""One event with one value, read by both ways: what a test says of a value has to hold for each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from schemas.errors import Code, InputError
from schemas.formats.protocol import UpstreamFormat
from schemas.table import TableSchema, declare
from schemas.types import Value
from tests.kit.two_ways import NotColumnarError, fast, one_by_one

Record = tuple[bytes, bytes]
LEFT_OUT = "left out"
"""In place of a value."""
SOURCE = {"connector": "mysql", "snapshot": "false"}


def table_of(kind: str, **units: str) -> TableSchema:
    columns = {"id": "bigint", "c": {"type": kind, **units} if units else kind}
    return declare({"name": "t", "columns": columns, "primary_key": ["id"]})


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def event(cell: object, schema: dict[str, Any] | None = None, name: str = "c") -> Record:
    """Of the row 7; in a frame where there is a schema of its column."""
    key = {"id": 7}
    value = {"before": None, "after": {"id": 7, name: cell}, "source": SOURCE, "op": "c", "ts_ms": 1}
    if schema is None:
        return compact(key), compact(value)
    fields = [{"field": "id", "type": "int64"}, {"field": name, **schema}]
    after = {"type": "struct", "fields": fields, "field": "after"}
    frames = {"type": "struct", "fields": fields[:1]}, {"type": "struct", "fields": [after]}
    parts = (
        compact({"schema": frame, "payload": part}) for frame, part in zip(frames, (key, value), strict=True)
    )
    return next(parts), next(parts)


def read(format_: UpstreamFormat, table: TableSchema, record: Record) -> Value | Code:
    """The column's value or `LEFT_OUT`, or the code of the record's fault; by both ways of reading."""
    try:
        [found] = one_by_one(format_, table, [record])
    except InputError as error:
        result: Value | Code = error.code
    else:
        assert found.change is not None
        result = LEFT_OUT if found.unchanged == (1,) else found.change.row[1]
    by_columns(format_, table, [record], [result])
    return result


def by_columns(
    format_: UpstreamFormat, table: TableSchema, records: Sequence[Record], expected: Sequence[Value | Code]
) -> bool:
    """True if these are read by the fast way; then each is what is expected."""
    try:
        found = fast(format_, table, records)
    except NotColumnarError:
        return False
    values = [LEFT_OUT if each.unchanged == (1,) else each.change and each.change.row[1] for each in found]
    assert values == list(expected)
    return True
