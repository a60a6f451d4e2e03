"""Masks of an output's columns, by whole columns."""

from __future__ import annotations

import hmac

import pyarrow as pa
import pyarrow.compute as pc

from schemas.kinds.projection import OutputColumn
from schemas.types import Value, json_literal


def masked(column: OutputColumn, array: pa.Array, hash_key: bytes) -> pa.Array:
    """The values that an output's column has of the table's; a null stays null."""
    match column.mask:
        case "prefix":
            return pc.utf8_slice_codeunits(array, 0, column.length)
        case "hash":
            # Each value is hashed once, however often it is there.
            values = array.dictionary_encode()
            hashes = [_hash(value, hash_key) for value in values.dictionary.to_pylist()]
            return pa.array(hashes, pa.string()).take(values.indices)
    return array


def _hash(value: Value, key: bytes) -> str:
    literal = json_literal(value)
    text = str(literal).lower() if isinstance(literal, bool) else str(literal)
    return hmac.digest(key, text.encode(), "sha256").hex()
