"""Reference of vnodes (docs/contract.md#tables-and-vnodes): row by row in Python, and as a Spark expression."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import xxhash

from schemas.table import Column, TableSchema
from schemas.types import MAX_DECIMAL_PRECISION, ColumnType, TypeName

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

SEED = 42
_UNIX_ZERO_DATE = dt.date(1970, 1, 1).toordinal()
_UNIX_ZERO = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MAX_LONG_PRECISION = 18
_EXACT = Context(prec=2 * MAX_DECIMAL_PRECISION)  # the default context rounds to 28 digits


def hash_input(value: Any, kind: ColumnType) -> bytes:
    """The bytes that Spark hashes for a value that is not null: integers little-endian, 4 or 8 wide.

    Raises: TypeError for float and double.
    """
    match kind.name:
        case TypeName.BOOLEAN | TypeName.INT:
            return int(value).to_bytes(4, "little", signed=True)
        case TypeName.DATE:
            return int(value.toordinal() - _UNIX_ZERO_DATE).to_bytes(4, "little", signed=True)
        case TypeName.BIGINT:
            return int(value).to_bytes(8, "little", signed=True)
        case TypeName.TIMESTAMP:
            micros = (value - _UNIX_ZERO) // dt.timedelta(microseconds=1)
            return int(micros).to_bytes(8, "little", signed=True)
        case TypeName.STRING:
            return str(value).encode()
        case TypeName.BINARY:
            return bytes(value)
        case TypeName.DECIMAL:
            return _decimal_input(value, kind)
        case _:
            raise TypeError(f"{kind} has no bytes that all readers agree on")


def _decimal_input(value: Decimal, kind: ColumnType) -> bytes:
    unscaled = int(value.scaleb(kind.scale or 0, _EXACT))
    if (kind.precision or 0) <= MAX_LONG_PRECISION:
        return unscaled.to_bytes(8, "little", signed=True)
    magnitude_bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(magnitude_bits // 8 + 1, "big", signed=True)  # BigInteger.toByteArray


def compute_vnode(values: Sequence[Any], columns: Sequence[Column], vnode_count: int) -> int:
    """The vnode of a row, from its distribution key's values in distribution-key order (never null)."""
    seed = SEED
    for value, column in zip(values, columns, strict=True):
        seed = xxhash.xxh64_intdigest(hash_input(value, column.type), seed)
    signed = seed - (1 << 64) if seed >> 63 else seed
    return signed % vnode_count  # Python's % is pmod for a positive divisor


def vnode_expression(table: TableSchema, row: SparkColumn) -> SparkColumn:
    """`compute_vnode` as a Spark expression over a struct column that holds the table's columns."""
    from pyspark.sql import functions as F

    keys = [row.getField(name) for name in table.distribution_key]
    return F.pmod(F.xxhash64(*keys), F.lit(table.vnode_count)).cast("int")
