"""Tables in pieces that fit: by rows and by bytes, for a row may have a megabyte as well as sixty bytes.

Arrow's strings have 32-bit offsets, and everything that encodes or copies a piece needs its size a few times over.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

CHUNK_ROWS = 65_536
"""Rows that are encoded at a time."""
CHUNK_BYTES = 32 << 20
"""Arrow bytes of them."""


def chunks(rows: pa.Table, most_rows: int = CHUNK_ROWS, most_bytes: int = CHUNK_BYTES) -> Iterator[pa.Table]:
    """The rows in order, in pieces of limited rows and bytes; a row that is larger is a piece of its own.

    Nothing is copied. No piece is empty.
    """
    for first in range(0, rows.num_rows, most_rows):
        yield from _halves(rows.slice(first, most_rows), most_bytes)


def _halves(rows: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    if rows.num_rows <= 1 or rows.nbytes <= most_bytes:
        yield rows
        return
    middle = rows.num_rows // 2
    yield from _halves(rows.slice(0, middle), most_bytes)
    yield from _halves(rows.slice(middle), most_bytes)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, which is not copied where it is one already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def rows_within(rows: int, size: int, most_rows: int, most_bytes: int) -> int:
    """The number of rows, 1 to `most_rows`, that have about `most_bytes`, if `rows` of them have `size` bytes."""
    return most_rows if size <= 0 else max(1, min(most_rows, most_bytes * rows // size))
