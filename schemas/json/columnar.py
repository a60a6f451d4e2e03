"""Whole Arrow columns to JSON objects: the path of every row that an output in JSON gets.

An object is its columns' values with constants between them. Each column becomes an array of texts by itself
(`schemas.json.cells`), and Arrow's element-wise join copies all of them, with the constants, into one buffer. Time is
that of a few passes over each column; nothing is done row by row in Python.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from schemas.errors import Code, InputError
from schemas.json.cells import Encoding, cells, text
from schemas.json.pieces import Piece, join
from schemas.table import Column


def encode_objects(
    columns: Sequence[Column],
    arrays: Sequence[pa.Array],
    encoding: Encoding,
    before: bytes = b"",
    behind: bytes = b"",
    *,
    spaced: bool = False,
) -> pa.BinaryArray:
    """Objects of the columns in their order, one for each row, between constants. `spaced` as in `object_pieces`.

    `arrays` are of one length, each of its column's exact Arrow type; slices are fine, chunked arrays are not. The
    result has no nulls, offset 0 and 32-bit offsets.

    Raises:
        InputError: PK_NULL, a null in a column that is not nullable.
        TypeError: an array of another type.
        ValueError: arrays and columns do not match in number, or the arrays in length; a day that no year of four
            digits has.
        pa.ArrowException: 2 GiB of records or more; encode fewer rows at a time.
    """
    length = len(arrays[0])
    return joined(length, [before, *object_pieces(columns, arrays, encoding, length, spaced=spaced), behind])


def object_pieces(
    columns: Sequence[Column],
    arrays: Sequence[pa.Array],
    encoding: Encoding,
    length: int,
    *,
    spaced: bool = False,
) -> list[Piece]:
    """Objects as by `encode_objects`, in pieces that are to be joined with others.

    `spaced`: with a space behind each comma and colon, as many programs write JSON, and this service never does.
    """
    pieces: list[Piece] = []
    space = b" " if spaced else b""
    for column, array in zip(columns, arrays, strict=True):
        _check(column, array, length)
        pieces.append(b"%s%s:%s" % (b"," + space if pieces else b"{", text(column.name).encode(), space))
        pieces += cells(array, column.type, encoding) if length else []
    return [*pieces, b"}"]


def joined(length: int, pieces: list[Piece]) -> pa.BinaryArray:
    """The pieces joined row by row, with `null` where a value is null."""
    return join(pieces, null=b"null") if length else pa.array([], pa.binary())


def _check(column: Column, array: pa.Array, length: int) -> None:
    if not isinstance(array, pa.Array) or array.type != column.type.arrow:
        found = getattr(array, "type", type(array).__name__)
        raise TypeError(f"column {column.name} is {found}, not an array of {column.type.arrow}")
    if len(array) != length:
        raise ValueError(f"column {column.name} has {len(array)} rows, not {length}")
    if array.null_count and not column.nullable:
        raise InputError(
            Code.PK_NULL, found=f"{array.null_count} nulls in the primary key's column {column.name}"
        )
