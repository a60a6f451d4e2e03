"""Primary keys: their identity as bytes, their order, their vnode and their output partition.

A key is known by the canonical bytes of its record. The order is Spark's `<` on the key columns, column by
column; Python's order of the decoded values is the same, strings included, because code points and UTF-8
bytes order alike.
"""

from __future__ import annotations

from schemas.avro.codec import KeyCodec
from schemas.errors import InputError
from schemas.position import Key, position_from_text
from schemas.table import TableSchema
from schemas.types import TypeName
from streaming.verify.records.vnode import VnodeOf

_LOOSE = frozenset({TypeName.BOOLEAN, TypeName.DECIMAL})
"""Types with more than one encoding of a value: TRUE is any byte but 0, decimals can be padded."""


class KeySpace:
    """The keys of one table, seen from an output with `partitions` partitions."""

    @property
    def name(self) -> str:
        """What its parts are called."""
        return "partitions" if self.is_by_partition else "vnodes"

    def __init__(self, table: TableSchema, partitions: int) -> None:
        self.is_by_partition = table.by_partition
        self.vnode_count = partitions if table.by_partition else table.vnode_count
        self.partitions = partitions
        self._hashed = None if table.by_partition else VnodeOf(table)
        self._columns = table.key_columns
        self._codec = KeyCodec(table.key_columns)
        self._strict = not any(column.type.name in _LOOSE for column in table.key_columns)

    def vnode_of(self, values: Key, partition: int) -> int:
        """The vnode of a key, a change of which is in this partition of the upstream."""
        return partition if self._hashed is None else self._hashed(values)

    def values(self, key: bytes, where: str | None = None) -> Key:
        """The key's values; they compare as the contract orders keys. InputError if it is no key."""
        return self._codec.decode(key, where=where)

    def canonical(self, key: bytes, values: Key) -> bytes:
        """The key's identity, whatever bytes it came as."""
        # A varint with needless bytes ends in a zero byte, so most keys need no second look.
        return key if self._strict and b"\x00" not in key else self._codec.encode(values)

    def partition_of(self, vnode: int) -> int:
        """The output partition that holds the vnode."""
        return vnode * self.partitions // self.vnode_count

    def position(self, text: str) -> Key:
        """The bound that a published position means. ValueError if it isn't a value of its type a column."""
        try:
            return self._codec.decode(self._codec.encode(position_from_text(text, self._columns)))
        except (InputError, TypeError, ArithmeticError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}") from None
