"""Rows and encoders of the format `change` in Avro: `codec` and `columnar` of `schemas.avro` behind the door."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.avro.codec import ChangeCodec, KeyCodec
from schemas.avro.columnar import encode_changes, encode_inserts, encode_keys
from schemas.errors import Code, InputError
from schemas.formats.protocol import Origin, Origins, OutputRows
from schemas.position import Key
from schemas.records import Change, Op, Row
from schemas.table import Column
from schemas.types import TypeName


class AvroRows(OutputRows):
    """Changes and keys, one by one, see `formats.protocol.Rows`."""

    def __init__(self, columns: Sequence[Column], key_columns: Sequence[Column]) -> None:
        self._changes, self._keys = ChangeCodec(columns), KeyCodec(key_columns)
        self._has_decimal_key = any(column.type.name is TypeName.DECIMAL for column in key_columns)

    def read_key(self, data: bytes, *, where: str | None = None) -> Key:
        """Raises: InputError as `KeyCodec.decode`."""
        return self._keys.decode(data, where=where)

    def read_change(self, key: bytes | None, value: bytes | None, *, where: str | None = None) -> Change:
        """Raises: InputError as `ChangeCodec.decode`, and EMPTY_RECORD."""
        if not value:
            raise InputError(Code.EMPTY_RECORD, where=where, found="a value of 0 bytes")
        return self._changes.decode(value, where=where)

    def is_key(self, data: bytes, key: Key) -> bool:
        """A decimal has several Avro forms (leading sign bytes); everything else has one that is legal in a key."""
        if not self._has_decimal_key:
            return False
        try:
            return bool(self._keys.decode(data) == key)
        except InputError:
            return False

    def write_key(self, key: Key) -> bytes:
        return self._keys.encode(key)

    def write_insert(self, row: Row, origin: Origin) -> bytes:
        return self.write_change(Change(Op.INSERT, None, row), origin)

    def write_change(self, change: Change, origin: Origin) -> bytes:
        return self._changes.encode(change)


@dataclass(frozen=True, slots=True)
class AvroKeys:
    """`Key` records."""

    key_columns: tuple[Column, ...]

    def __call__(self, arrays: Sequence[pa.Array]) -> pa.BinaryArray:
        return encode_keys(self.key_columns, arrays)


@dataclass(frozen=True, slots=True)
class AvroChanges:
    """`Change` records."""

    columns: tuple[Column, ...]

    def inserts(self, arrays: Sequence[pa.Array], origins: Origins) -> pa.BinaryArray:
        return encode_inserts(self.columns, arrays)

    def changes(
        self, ops: pa.Int8Array, before: Sequence[pa.Array], after: Sequence[pa.Array], origins: Origins
    ) -> pa.BinaryArray:
        return encode_changes(self.columns, ops, before, after)
