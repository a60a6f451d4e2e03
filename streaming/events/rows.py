"""Invented rows: every value is a function of (seed, column, key number, version), so none has to be kept.

A key is a *number* 0, 1, 2, …; its *version* counts the changes that the key has had. The two give the row, now and at
any version before, so a generator of millions of rows can write the row before an update with four bytes of memory for
each key. All functions work on whole columns.

Key numbers spread over the key space (multiplication by an odd number modulo a power of two permutes it), so
later inserts land between earlier keys and not only behind the last. In a composite key the widest column
takes most of the number and the others a few bits each: many keys share their first columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.table import Column, TableSchema
from schemas.types import ColumnType, TypeName

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_POOL = 1 << 12
_NULL_BITS = np.uint64(60)
"""A nullable column is null where the bits above this one are 0: one row in sixteen."""

_SECOND_US = 1_000_000
_DAY_2015, _DAY_SPAN = 16_436, 5_000
_START_2020_US, _SPAN_US = 1_577_836_800 * _SECOND_US, 200_000_000 * _SECOND_US
_KEY_BITS = {
    TypeName.BOOLEAN: 1,
    TypeName.DATE: 15,
    TypeName.INT: 31,
    TypeName.BIGINT: 40,
    TypeName.STRING: 40,
    TypeName.TIMESTAMP: 40,
}
_WIDE_ENOUGH_BITS, _MINOR_BITS = 31, 3

_TEXT = """
amber anchor basil birch cedar cinder clover copper coral cotton delta ember fennel flint garnet
hazel indigo iris juniper kelp linen maple nickel olive onyx pepper quartz saffron sage tin umber
willow Öl façade 東京 Ελλάδα Київ 🙂
"""
_WORDS = _TEXT.split()
_VOCABULARY = {
    "region": ("EU", "US", "APAC", "LATAM", "MEA"),
    "country": ("DE", "FR", "US", "BR", "JP", "IN", "ZA"),
    "currency": ("EUR", "USD", "JPY", "BRL"),
    "status": ("new", "paid", "sent", "done", "void"),
}
"""Columns of these names get these words; any other text column gets phrases."""


def _mixed(words: Words) -> Words:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): each bit in decides about each bit out."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class InventedRows:
    """The rows of a table, as functions. Key numbers go from 0 to `capacity` - 1."""

    def __init__(self, table: TableSchema, seed: int) -> None:
        self.table, self.seed = table, seed
        self._digits = _key_digits(table.key_columns)
        self.capacity = 1 << sum(bits for bits, _ in self._digits)
        self._pools = {
            index: _pool(column, np.random.default_rng([seed, index]))
            for index, column in enumerate(table.columns)
            if column.type.name in (TypeName.STRING, TypeName.BINARY) and column.name not in table.primary_key
        }

    def keys(self, numbers: Numbers) -> list[pa.Array]:
        """The primary keys of these numbers, a column each, in key order."""
        columns = []
        for column, (bits, shift) in zip(self.table.key_columns, self._digits, strict=True):
            digit = (numbers >> shift) & ((1 << bits) - 1)
            scattered = (digit * (_GOLDEN >> (64 - bits) | 1)) & ((1 << bits) - 1)
            columns.append(_key_values(column.type, scattered))
        return columns

    def rows(self, numbers: Numbers, versions: Numbers) -> list[pa.Array]:
        """The rows of these keys at these versions, a column each, in declared order."""
        keys = dict(zip(self.table.primary_key, self.keys(numbers), strict=True))
        with np.errstate(over="ignore"):
            rows = _mixed(numbers.astype(np.uint64) * np.uint64(_GOLDEN) ^ _mixed(versions.astype(np.uint64)))
        return [
            keys[column.name] if column.name in keys else self._values(index, column, rows)
            for index, column in enumerate(self.table.columns)
        ]

    def _values(self, index: int, column: Column, rows: Words) -> pa.Array:
        salt = np.random.SeedSequence([self.seed, index]).generate_state(1, np.uint64)[0]
        words = _mixed(rows ^ salt)
        null = (words >> _NULL_BITS) == 0 if column.nullable else None
        if index in self._pools:
            chosen = pa.array((words & np.uint64(_POOL - 1)).astype(np.int32), mask=null)
            return self._pools[index].take(chosen)
        return _fixed_width_values(column.type, words, null)


def _key_digits(columns: Sequence[Column]) -> list[tuple[int, int]]:
    """(bits, shift) of each key column's share in the key's number."""
    bits = [
        min(40, (10 ** (column.type.precision or 0)).bit_length() - 1)
        if column.type.name is TypeName.DECIMAL
        else _KEY_BITS[column.type.name]
        for column in columns
    ]
    widest = max(range(len(bits)), key=lambda index: (bits[index], index))
    if bits[widest] >= _WIDE_ENOUGH_BITS:
        bits = [width if index == widest else min(width, _MINOR_BITS) for index, width in enumerate(bits)]
        while sum(bits) > 60:  # numbers stay positive 64-bit integers
            bits[widest] -= 1
    digits, shift = [(0, 0)] * len(bits), 0
    for index in sorted(
        range(len(bits)), key=lambda index: index == widest
    ):  # the widest takes the upper bits
        digits[index] = (bits[index], shift)
        shift += bits[index]
    return digits


def _key_values(kind: ColumnType, digits: Numbers) -> pa.Array:
    match kind.name:
        case TypeName.BOOLEAN:
            return pa.array(digits == 1)
        case TypeName.DATE:
            return pa.array(digits.astype(np.int32), pa.int32()).cast(kind.arrow)
        case TypeName.TIMESTAMP:
            return pa.array(_START_2020_US + digits * 137, pa.int64()).cast(kind.arrow)
        case TypeName.DECIMAL:
            return _decimals(kind, digits, None)
        case TypeName.STRING:
            return pa.array(np.char.mod("k-%010x", digits), pa.string())
        case _:
            return pa.array(digits).cast(kind.arrow)


def _fixed_width_values(kind: ColumnType, words: Words, null: npt.NDArray[np.bool_] | None) -> pa.Array:
    match kind.name:
        case TypeName.BOOLEAN:
            return pa.array((words & np.uint64(1)) == 1, mask=null)
        case TypeName.DATE:
            return pa.array(_below(words, _DAY_SPAN).astype(np.int32) + _DAY_2015, mask=null).cast(kind.arrow)
        case TypeName.TIMESTAMP:
            return pa.array(_START_2020_US + _below(words, _SPAN_US), pa.int64(), mask=null).cast(kind.arrow)
        case TypeName.DECIMAL:
            span = 10 ** min(kind.precision or 0, (kind.scale or 0) + 4, 18)
            return _decimals(kind, _below(words, span) - span // 8, null)
        case TypeName.FLOAT:
            return pa.array((_below(words, 1 << 21) / 128.0 - 4096).astype(np.float32), mask=null)
        case TypeName.DOUBLE:
            return pa.array(_below(words, 10**9) / 1000.0 - 50_000, mask=null)
        case _:
            return pa.array(_below(words, 1_100_000) - 100_000, mask=null).cast(kind.arrow)


def _below(words: Words, bound: int) -> Numbers:
    return (words % np.uint64(bound)).astype(np.int64)


def _decimals(kind: ColumnType, unscaled: Numbers, null: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Decimals from their unscaled values: Arrow's 128-bit integers, low word first."""
    words = np.empty((len(unscaled), 2), dtype="<i8")
    words[:, 0], words[:, 1] = unscaled, unscaled >> 63
    validity = None if null is None else pa.array(~null).buffers()[1]
    return pa.Array.from_buffers(kind.arrow, len(unscaled), [validity, pa.py_buffer(words)])


def _pool(column: Column, rng: np.random.Generator) -> pa.Array:
    """The texts or byte strings that a column draws from, some of them empty."""
    if column.type.name is TypeName.BINARY:
        return pa.array([rng.bytes(int(size)) for size in rng.integers(0, 24, _POOL)], pa.binary())
    if words := _VOCABULARY.get(column.name.lower()):
        return pa.array([words[choice] for choice in rng.integers(0, len(words), _POOL)], pa.string())
    phrases = (
        " ".join(_WORDS[choice] for choice in rng.integers(0, len(_WORDS), length))
        for length in rng.integers(0, 7, _POOL)
    )
    return pa.array(phrases, pa.string())
