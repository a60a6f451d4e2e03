"""Whole columns of JSON objects, read: the reverse of `schemas.json.columnar`.

Arrow's reader takes the objects apart, a microsecond for one of four columns. It is more lenient than a format: so what
it has read is written again, and only objects that come out byte for byte are taken. Anything else among them (another
order of columns, a space, a number with a needless digit) is an `OddRecordError` for all: which one it is, and whether
it is sound, is for the twin that reads them one by one (`schemas.json.parsing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.json

from schemas.errors import InputError
from schemas.json.base64_columns import base64_values
from schemas.json.columnar import encode_objects
from schemas.json.pieces import join
from schemas.json.written import text
from schemas.records import OddRecordError, refuse
from schemas.table import Column
from schemas.types import TypeName

_NEWLINE, _OPENING, _CLOSING = b"\n", ord("{"), ord("}")
_MOST_BYTES = 512 << 20
"""Beyond that Arrow's offsets may not do for what is made of them."""
_TEXTS = TypeName.BINARY, TypeName.DATE, TypeName.TIMESTAMP
"""Types whose values are texts that Arrow's reader leaves as they are."""


def read_objects(columns: Sequence[Column], texts: pa.BinaryArray) -> list[pa.Array]:
    """The columns of objects that `encode_objects` would write just so, in the encoding `json`, spaced or not.

    Raises: OddRecordError.
    """
    found = struct_columns(columns, parsed(texts, _fields(columns)))
    refuse(not written(columns, found, spaced=are_spaced(columns, texts)).equals(texts))
    return found


def are_spaced(columns: Sequence[Column], texts: pa.BinaryArray) -> bool:
    """Whether the first of these objects has a space behind its first colon."""
    begin = b"{%s: " % text(columns[0].name).encode()
    return len(texts) > 0 and bool(texts[0].as_py().startswith(begin))


def written(columns: Sequence[Column], arrays: Sequence[pa.Array], *, spaced: bool = False) -> pa.BinaryArray:
    """As `encode_objects`. Raises: OddRecordError for values that no object has."""
    try:
        return encode_objects(columns, arrays, "json", spaced=spaced)
    except (InputError, ValueError):
        raise OddRecordError from None


def row_field(name: str, columns: Sequence[Column]) -> pa.Field:
    """A field whose values are such objects, for `parsed`."""
    return pa.field(name, pa.struct(_fields(columns)))


def _fields(columns: Sequence[Column]) -> list[pa.Field]:
    return [
        pa.field(each.name, pa.string() if each.type.name in _TEXTS else each.type.arrow) for each in columns
    ]


def struct_columns(columns: Sequence[Column], rows: pa.StructArray) -> list[pa.Array]:
    """The columns of objects, as `parsed` has read them, each of its exact type. Raises: OddRecordError."""
    try:
        pairs = zip(columns, rows.flatten(), strict=True)
        return [_of_text(column, array) if column.type.name in _TEXTS else array for column, array in pairs]
    except ValueError:
        raise OddRecordError from None


def _of_text(column: Column, texts: pa.StringArray) -> pa.Array:
    if column.type.name is TypeName.BINARY:
        return base64_values(texts.cast(pa.binary()))
    return texts.cast(column.type.arrow)


def parsed(
    texts: pa.BinaryArray, fields: Sequence[pa.Field], *, others: Literal["error", "ignore"] = "error"
) -> pa.StructArray:
    """These fields of JSON objects, and nulls for those that one lacks. `others`: what becomes of further fields.

    None of these fields comes twice in an object, and each text is UTF-8.

    Raises: OddRecordError.
    """
    refuse(texts.null_count or texts.nbytes > _MOST_BYTES)
    schema = pa.schema(list(fields))
    if not len(texts):
        return pa.StructArray.from_arrays([pa.array([], field.type) for field in fields], fields=list(fields))
    lines = join([texts, _NEWLINE])
    _check_lines(len(texts), lines)
    try:
        texts.cast(pa.string())
        table = pyarrow.json.read_json(
            pa.BufferReader(lines.buffers()[2]),
            pyarrow.json.ReadOptions(use_threads=False, block_size=lines.buffers()[2].size + 1),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):  # an error that quotes bytes which are no UTF-8
        raise OddRecordError from None
    refuse(table.num_rows != len(texts))
    return table.to_struct_array().combine_chunks()


def _check_lines(count: int, lines: pa.BinaryArray) -> None:
    """Each text is one line that begins and ends as an object does. Arrow's reader then takes none over two lines.

    What begins with a brace and follows a closing one is an object of its own, wherever that was closed. So each line
    gives a row at least, and as many rows as lines are one of each. (For `null` as the first text it ends the process.)
    """
    data, offsets = (
        np.frombuffer(lines.buffers()[place], kind) for place, kind in ((2, np.uint8), (1, np.int32))
    )
    refuse(np.count_nonzero(data == _NEWLINE[0]) != count)
    starts, newlines = offsets[:count], offsets[1 : count + 1] - 1
    refuse((data[starts] != _OPENING).any() or (data[newlines - 1] != _CLOSING).any())
