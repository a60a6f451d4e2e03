"""Primary keys: their identity as bytes, their order, their vnode and their output partition.

A key is known by the canonical bytes of its record. The order is Spark's `<` on the key columns, column by
column; Python's order of the decoded values is the same, strings included, because code points and UTF-8
bytes order alike.
"""

from __future__ import annotations

from schemas.errors import Code
from schemas.position import Key
from schemas.table import TableSchema
from schemas.types import TypeName
from streaming.reading.records.written import cell_text
from streaming.reading.values.avro_bytes import RowCodec
from streaming.reading.values.invalid import InvalidRecordError
from streaming.reading.values.json_text import parsed, text_of
from streaming.reading.values.json_values import plain_reader, read_value
from streaming.verify.records.vnode import VnodeOf

_LOOSE = frozenset({TypeName.BOOLEAN, TypeName.DECIMAL})
"""Types with more than one encoding of a value: TRUE is any byte but 0, decimals can be padded."""


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
        self._strict = not any(column.type.name in _LOOSE for column in table.key_columns)

    def vnode_of(self, values: Key, partition: int) -> int:
        """The vnode of a key, a change of which is in this partition of the upstream."""
        return partition if self._hashed is None else self._hashed(values)

    def values(self, key: bytes, where: str | None = None) -> Key:
        """The key's values; they compare as the contract orders keys. InputError if it is no key."""
        try:
            return self._codec.row(key)
        except InvalidRecordError as reason:
            raise reason.as_input(Code.KEY_MISMATCH, f"a key of {len(key)} bytes", where) from None

    def canonical(self, key: bytes, values: Key) -> bytes:
        """The key's identity, whatever bytes it came as."""
        # A varint with needless bytes ends in a zero byte, so most keys need no second look.
        return key if self._strict and b"\x00" not in key else self._codec.row_bytes(values)

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
