"""Masks of an output's columns, a value at a time, written down from docs/outputs.md#columns."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from functools import lru_cache

from schemas.kinds.projection import OutputColumn
from schemas.table import Column
from schemas.types import TypeName
from streaming.reading.records.written import cell_text
from streaming.reading.values.avro_bytes import RowCodec

_MOST_REMEMBERED = 65_536


def cell_of(shown: OutputColumn, column: Column, hash_key: bytes) -> Callable[[bytes], bytes] | None:
    """Gives the bytes of an output's cell for those of the table's; None where they are the same."""
    if shown.mask is None:
        return None
    if shown.mask == "null":
        return lambda cell: b"\x00"
    read, write = RowCodec([column]), RowCodec([shown.of(column)])

    @lru_cache(maxsize=_MOST_REMEMBERED)
    def cell_bytes(cell: bytes) -> bytes:
        (value,) = read.row(cell)
        if value is None:
            return cell
        if shown.mask == "prefix":
            return write.row_bytes((value[: shown.length],))
        text = value if column.type.name is TypeName.STRING else cell_text(column, value).strip('"')
        return write.row_bytes((hmac.new(hash_key, text.encode(), hashlib.sha256).hexdigest(),))

    return cell_bytes
