"""Primary keys: their identity as bytes, their order, their vnode and their output partition.

A key is known by the canonical bytes of its record. The order is Spark's `<` on the key columns, column by
column; Python's order of the decoded values is the same, strings included, because code points and UTF-8
bytes order alike.

The vnode is `pmod(xxhash64(distribution key columns in order), vnode_count)`, as Spark says it. Its `xxhash64`
(org.apache.spark.sql.catalyst.expressions.XxHash64Function) is XXH64 over one column's bytes with the hash of the
columns before it as the seed, 42 at first. What a column's bytes are depends on its type:

    boolean, int, date              4 bytes, little endian (TRUE is 1, a date its days since 1970)
    bigint, timestamp               8 bytes, little endian (a timestamp its microseconds since 1970)
    decimal(p <= 18)                8 bytes, little endian, of the unscaled value
    decimal(p > 18)                 the unscaled value as Java's `BigInteger.toByteArray`: the fewest
                                    two's complement bytes, big endian
    string                          its UTF-8 bytes

Written without a look at the service's own hash, on purpose: where the two differ, one of them is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import xxhash

from schemas.position import Key
from schemas.table import TableSchema
from schemas.types import ColumnType, TypeName
from streaming.reading.records.written import cell_text
from streaming.reading.values.avro_bytes import MICROSECOND, RowCodec, twos_complement, unscaled_of
from streaming.reading.values.json_text import parsed, text_of
from streaming.reading.values.json_values import EPOCH, plain_reader, read_value

SPARK_SEED = 42
_LONG_DECIMAL_DIGITS = 18
_four = struct.Struct("<i").pack
_eight = struct.Struct("<q").pack


def _bytes_of(kind: ColumnType) -> Callable[[Any], bytes]:
    match kind.name:
        case TypeName.BOOLEAN | TypeName.INT:
            return _four
        case TypeName.DATE:
            return lambda day: _four((day - EPOCH.date()).days)
        case TypeName.BIGINT:
            return _eight
        case TypeName.TIMESTAMP:
            return lambda instant: _eight((instant - EPOCH) // MICROSECOND)
        case TypeName.STRING:
            return str.encode
        case TypeName.DECIMAL:
            if (kind.precision or 0) <= _LONG_DECIMAL_DIGITS:
                return lambda number: _eight(unscaled_of(number, kind))
            return lambda number: twos_complement(unscaled_of(number, kind))
        case _:
            raise ValueError(f"{kind} can't be in a key")


class VnodeOf:
    """The vnode function of one table."""

    def __init__(self, table: TableSchema) -> None:
        self._count = table.vnode_count
        self._columns: Sequence[tuple[int, Callable[[Any], bytes]]] = [
            (table.primary_key.index(name), _bytes_of(table.by_name[name].type))
            for name in table.distribution_key
        ]

    def __call__(self, key: Key) -> int:
        """The vnode of a primary key's values, given in key order."""
        seed = SPARK_SEED
        for index, as_bytes in self._columns:
            seed = xxhash.xxh64_intdigest(as_bytes(key[index]), seed)
        signed = seed - (1 << 64) if seed >> 63 else seed
        return signed % self._count


class KeySpace:
    """The keys of one table, seen from an output with `partitions` partitions."""

    @property
    def name(self) -> str:
        """The name of its parts, in the plural."""
        return "partitions" if self.is_by_partition else "vnodes"

    def __init__(self, table: TableSchema, partitions: int) -> None:
        self.is_by_partition = table.by_partition
        self.vnode_count = partitions if table.by_partition else table.vnode_count
        self.partitions = partitions
        self._hashed = None if table.by_partition else VnodeOf(table)
        self._columns = table.key_columns
        self._codec = RowCodec(table.key_columns)

    def vnode_of(self, values: Key, partition: int) -> int:
        """The vnode of a key, a change of which is in this partition of the upstream."""
        return partition if self._hashed is None else self._hashed(values)

    def values(self, key: bytes) -> Key:
        """The values of a key in canonical form; they compare as the contract orders keys."""
        return self._codec.row(key)

    def partition_of(self, vnode: int) -> int:
        """The output partition that holds the vnode."""
        return vnode * self.partitions // self.vnode_count

    def position(self, text: str) -> Key:
        """The bound that a published position means: a JSON array of the key's values, each in its type's one form.

        Raises: ValueError for another text.
        """
        values = parsed(text_of(text.encode()))
        if not isinstance(values, list) or len(values) != len(self._columns):
            raise ValueError("no value for each key column")
        pairs = list(zip(self._columns, values, strict=True))
        key = tuple(read_value(plain_reader(column), value, column) for column, value in pairs)
        forms = (cell_text(column, value) for column, value in zip(self._columns, key, strict=True))
        if None in key or text != f"[{','.join(forms)}]":
            raise ValueError("a value in another form than its type's")
        return key
