"""Single records of an output as it sends them, and the checker's reader of them, which shares no code with that."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from schemas.formats.protocol import Origins, OutputFormat
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column
from streaming.reading.records.forms import RecordForm
from streaming.reading.records.reader import reader_of
from streaming.reading.records.upstreams import UpstreamReader
from tests.kit.columns import origins

ORIGIN = origins(1)


def sent_reader(
    format_: OutputFormat, columns: Sequence[Column], key_columns: Sequence[Column]
) -> UpstreamReader:
    """Reads records that have the one form of this output, and refuses all others."""
    return reader_of(RecordForm.of(format_), columns, key_columns)


def sent_key(format_: OutputFormat, key_columns: Sequence[Column], key: Key) -> bytes:
    encode = format_.keys(key_columns)
    assert encode is not None
    return _one(encode(_columns(key_columns, key))) or b""


def sent_row(
    format_: OutputFormat, columns: Sequence[Column], row: Row, origin: Origins = ORIGIN
) -> bytes | None:
    """A row of the snapshot read."""
    return _one(format_.values(columns).inserts(_columns(columns, row), origin))


def sent_change(
    format_: OutputFormat, columns: Sequence[Column], change: Change, origin: Origins = ORIGIN
) -> bytes | None:
    ops = pa.array([change.op], pa.int8())
    before = change.row if change.op is Op.INSERT else change.before
    after = change.row if change.op is Op.DELETE else change.after
    images = [_columns(columns, row or ()) for row in (before, after)]
    return _one(format_.values(columns).changes(ops, images[0], images[1], origin))


def _columns(columns: Sequence[Column], row: Row) -> list[pa.Array]:
    return [pa.array([value], each.type.arrow) for each, value in zip(columns, row, strict=True)]


def _one(encoded: pa.BinaryArray) -> bytes | None:
    [found] = encoded.to_pylist()
    return None if found is None else bytes(found)
