"""Vnodes: the hash partitions of a table, fixed for the life of a replica (docs/contract.md#tables-and-vnodes).

    vnode = pmod(xxhash64(distribution key columns in order), vnode_count)

Spark's `xxhash64` with its seed 42, so that a user can recompute it in SQL. Spark chains the columns: the hash of one
is the seed of the next, and a null leaves the seed as it is. Columns of a fixed width are hashed as arrays; texts,
bytes and wide decimals one by one, in C. (Spark: catalyst/expressions/hash.scala, XxHash64Function;
common/unsafe, XXH64.hashInt and hashLong.)
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from schemas.table import Column
from schemas.types import MAX_DECIMAL_PRECISION, ColumnType, TypeName

_SEED = 42
_MAX_LONG_PRECISION = 18
_EXACT = Context(prec=2 * MAX_DECIMAL_PRECISION)  # the default context rounds to 28 digits

Hashes = npt.NDArray[np.uint64]

_P1, _P2, _P3, _P4, _P5 = map(
    np.uint64,
    (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    ),
)


def row_hashes(columns: Sequence[pa.Array], declared: Sequence[Column]) -> npt.NDArray[np.int64]:
    """The hash of each of n rows; `columns` are the values of the declared ones, n each."""
    seeds: Hashes = np.full(len(columns[0]), _SEED, dtype=np.uint64)
    for column, each in zip(columns, declared, strict=True):
        hashed = _hashed(column, each.type, seeds)
        if column.null_count:
            hashed = np.where(pc.is_null(column).to_numpy(zero_copy_only=False), seeds, hashed)
        seeds = hashed
    return seeds.view(np.int64)


def _hashed(column: pa.Array, kind: ColumnType, seeds: Hashes) -> Hashes:
    """The hash of each value; arbitrary where the value is null."""
    match kind.name:
        case TypeName.BOOLEAN:
            return _of_ints(_numbers(column.cast(pa.uint8())).astype(np.uint64), seeds)
        case TypeName.INT | TypeName.DATE:
            return _of_ints(_numbers(column.cast(pa.int32())).view(np.uint32).astype(np.uint64), seeds)
        case TypeName.FLOAT:
            return _of_ints(_bits(_numbers(column), np.uint32), seeds)
        case TypeName.BIGINT | TypeName.TIMESTAMP:
            return _of_longs(_numbers(column.cast(pa.int64())).view(np.uint64), seeds)
        case TypeName.DOUBLE:
            return _of_longs(_bits(_numbers(column), np.uint64), seeds)
        case TypeName.DECIMAL if (kind.precision or 0) <= _MAX_LONG_PRECISION:
            return _of_longs(_unscaled(column), seeds)
        case _:
            return _one_by_one(column, kind, seeds)


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    filled = column.fill_null(0) if column.null_count else column
    found: npt.NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return found


def _bits(values: npt.NDArray[Any], width: type[np.unsignedinteger]) -> Hashes:
    """The bits of Java's doubleToLongBits, with one NaN; and with one zero, as Spark has it."""
    canonical = np.where(np.isnan(values), values.dtype.type("nan"), values + values.dtype.type(0))
    bits: Hashes = canonical.astype(values.dtype).view(width).astype(np.uint64)
    return bits


def _unscaled(column: pa.Array) -> Hashes:
    """The lower 64 bits of each 128-bit integer: all of it, with at most 18 digits."""
    halves = np.frombuffer(column.buffers()[1], dtype=np.uint64)
    return halves[2 * column.offset : 2 * (column.offset + len(column)) : 2]


def _of_ints(values: Hashes, seeds: Hashes) -> Hashes:
    mixed = (seeds + _P5 + np.uint64(4)) ^ (values * _P1)
    return _finished(_rotated(mixed, 23) * _P2 + _P3)


def _of_longs(values: Hashes, seeds: Hashes) -> Hashes:
    mixed = (seeds + _P5 + np.uint64(8)) ^ (_rotated(values * _P2, 31) * _P1)
    return _finished(_rotated(mixed, 27) * _P1 + _P4)


def _rotated(values: Hashes, by: int) -> Hashes:
    return (values << np.uint64(by)) | (values >> np.uint64(64 - by))


def _finished(mixed: Hashes) -> Hashes:
    mixed = (mixed ^ (mixed >> np.uint64(33))) * _P2
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _P3
    return mixed ^ (mixed >> np.uint64(32))


def _one_by_one(column: pa.Array, kind: ColumnType, seeds: Hashes) -> Hashes:
    if kind.name in (TypeName.STRING, TypeName.BINARY):  # bytes need no conversion
        values = column.cast(pa.binary()).fill_null(b"").to_pylist()
        return np.fromiter(map(xxhash.xxh64_intdigest, values, seeds.tolist()), np.uint64, len(column))
    hashed = (
        seed if value is None else xxhash.xxh64_intdigest(_decimal_bytes(value, kind.scale or 0), seed)
        for value, seed in zip(column.to_pylist(), seeds.tolist(), strict=True)
    )
    return np.fromiter(hashed, dtype=np.uint64, count=len(column))


def _decimal_bytes(value: Decimal, scale: int) -> bytes:
    """The bytes of Java's BigInteger.toByteArray of a decimal's unscaled value."""
    unscaled = int(value.scaleb(scale, _EXACT))
    magnitude_bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(magnitude_bits // 8 + 1, "big", signed=True)
