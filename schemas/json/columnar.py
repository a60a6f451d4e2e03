"""Whole Arrow columns to JSON objects: the path of every row that an output in JSON gets.

An object is its columns' values with constants between them. A column becomes pieces (`schemas.json.pieces`), which
joined give the value of each row; what a string column holds is not copied before that, unless a text has something to
escape. Arrow's element-wise join copies all of them, with the constants, into one buffer. Time is that of a few passes
over each column; nothing is done row by row in Python.

Values are in the two ways that outputs have them. Source of the second:
https://kafka.apache.org/documentation/#connect_schemas, and Debezium's semantic types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrays import check_array
from schemas.json.digits import decimals, quoted_days, quoted_instants
from schemas.json.pieces import Piece, join, null_where
from schemas.json.text_columns import base64_texts, unscaled_texts
from schemas.table import Column
from schemas.types import ColumnType, TypeName

Encoding = Literal["json", "json-schema"]
"""Plain values that say what they are; or Kafka Connect's, which the schema in their frame explains."""
_in_quotes = json.JSONEncoder(ensure_ascii=False).encode
_ESCAPES = {
    **{code: f"\\u{code:04x}" for code in range(0x20)},
    **{ord(char): f"\\{short}" for char, short in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)},
}
_BACKSLASH = ord("\\")
_STEP = 1 << 16


def cells(array: pa.Array, kind: ColumnType, encoding: Encoding) -> list[Piece]:
    """The texts of a column's values, at least one. A column with nulls is a single piece, null in the same rows."""
    pieces = _CELLS[encoding][kind.name](array)
    return [null_where(array, join(pieces))] if array.null_count else pieces


def text(value: str) -> str:
    """Quotes a text; UnicodeEncodeError for half a surrogate pair, which UTF-8 does not have."""
    value.encode()
    return _in_quotes(value)


def _quoted(*pieces: Piece) -> list[Piece]:
    return [b'"', *pieces, b'"']


def _numbers(array: pa.Array) -> list[Piece]:
    return [array.cast(pa.string()).cast(pa.binary())]


def _floats(array: pa.Array) -> list[Piece]:
    """The shortest text that reads back; a negative zero with a fraction, as `-0` is 0 to most readers."""
    texts = array.cast(pa.string()).cast(pa.binary())
    values = array.fill_null(0).to_numpy()
    odd = ~np.isfinite(values) | ((values == 0) & np.signbit(values))
    if odd.any():
        chosen = values[odd]
        written = np.select(
            [np.isnan(chosen), chosen > 0, chosen < 0], [b'"NaN"', b'"Infinity"', b'"-Infinity"'], b"-0.0"
        )
        texts = pc.replace_with_mask(texts, pa.array(odd), pa.array(written, pa.binary()))
    return [texts]


def _strings(array: pa.StringArray) -> list[Piece]:
    return _quoted(escaped(array).cast(pa.binary()))


def escaped(array: pa.StringArray) -> pa.StringArray:
    """Texts escaped for JSON, without quotes. Only rows that hold something to escape are copied."""
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
    first, end = int(offsets[0]), int(offsets[-1])
    if first == end:
        return array
    data = np.frombuffer(array.buffers()[2], np.uint8, end - first, first)
    if not _has_special(data):
        return array
    places = np.flatnonzero((data < 0x20) | (data == ord('"')) | (data == _BACKSLASH))
    rows = np.zeros(len(array), np.bool_)
    rows[np.searchsorted(offsets, places + first, side="right") - 1] = True
    present = np.flatnonzero(np.bincount(data[places], minlength=1)).tolist()
    chosen = array.filter(pa.array(rows))
    for code in sorted(present, key=lambda code: code != _BACKSLASH):  # first what escapes are made of
        chosen = pc.replace_substring(chosen, chr(code), _ESCAPES[code])
    return pc.replace_with_mask(array, pa.array(rows), chosen)


def _has_special(data: npt.NDArray[np.uint8]) -> bool:
    """True if any byte has to be escaped; by vectorised minimum and search, in steps that fit the CPU's cache."""
    for start in range(0, len(data), _STEP):
        step = data[start : start + _STEP]
        text = step.tobytes()
        if step.min() < 0x20 or b'"' in text or b"\\" in text:
            return True
    return False


def _binaries(array: pa.BinaryArray) -> list[Piece]:
    return _quoted(base64_texts(array))


_JSON: dict[TypeName, Callable[[pa.Array], list[Piece]]] = {
    TypeName.BOOLEAN: _numbers,
    TypeName.INT: _numbers,
    TypeName.BIGINT: _numbers,
    TypeName.FLOAT: _floats,
    TypeName.DOUBLE: _floats,
    TypeName.DECIMAL: lambda array: _quoted(*decimals(array)),
    TypeName.STRING: _strings,
    TypeName.BINARY: _binaries,
    TypeName.DATE: lambda array: [quoted_days(array)],
    TypeName.TIMESTAMP: lambda array: [quoted_instants(array)],
}
_CONNECT = _JSON | {
    TypeName.DECIMAL: lambda array: _quoted(unscaled_texts(array)),
    TypeName.DATE: lambda array: _numbers(array.view(pa.int32())),
    TypeName.TIMESTAMP: lambda array: _numbers(array.view(pa.int64())),
}
"""NaN and the infinities stay text: that is what Connect's own converter writes. It reads each of them back as 0.0."""
_CELLS: dict[Encoding, dict[TypeName, Callable[[pa.Array], list[Piece]]]] = {
    "json": _JSON,
    "json-schema": _CONNECT,
}


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
        check_array(column, array, length)
        pieces.append(b"%s%s:%s" % (b"," + space if pieces else b"{", text(column.name).encode(), space))
        pieces += cells(array, column.type, encoding) if length else []
    return [*pieces, b"}"]


def joined(length: int, pieces: list[Piece]) -> pa.BinaryArray:
    """The pieces joined row by row, with `null` where a value is null."""
    return join(pieces, null=b"null") if length else pa.array([], pa.binary())
