"""Encoders of test events: changes of one table as records of one format.

A reader needs nothing of theirs but the format's declaration.
`OutputEvents` writes them by the encoders of an output; `streaming.events.debezium` has what no output writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats.append import AppendOutput
from schemas.formats.change import ChangeFormat
from schemas.formats.outputs.formats import UpsertOutput
from schemas.formats.protocol import Images, Origins, OutputFormat
from schemas.formats.upsert import KeyForm
from schemas.json.columnar import cells
from schemas.json.pieces import join
from schemas.records import Op
from schemas.table import RESERVED_PREFIX, Column, TableSchema
from schemas.types import ColumnType, TypeName

Ops = npt.NDArray[np.int8]
Columns = Sequence[pa.Array]
EncodeKeys = Callable[[Columns], pa.BinaryArray]

_NUMBER = Column(f"{RESERVED_PREFIX}number", ColumnType(TypeName.BIGINT), nullable=False)
_OPS_BY_FIRST_BYTE = {2 * op: op for op in Op}
"""A record of the format `change` begins with the Avro index of its op, a zigzag varint."""
# Formats whose values depend on their rows alone leave it unread.
_NO_ORIGINS = Origins("", "", np.zeros(0, np.int32), np.zeros(0, np.int64), ())


class EventRecords(NamedTuple):
    """Keys and values of the same length, in the order in which they are sent."""

    keys: pa.BinaryArray
    values: pa.BinaryArray


class RecordContent(NamedTuple):
    """A record read back. `op` is INSERT where it may be UPDATE as well; `value` is what `EventEncoder.values` gave."""

    op: Op
    value: bytes


class EventEncoder(ABC):
    """Encodes changes of one table. All arrays have at least one change."""

    @property
    def needs_before(self) -> bool:
        """True if `values` reads the rows before."""
        return False

    @abstractmethod
    def keys(self, arrays: Columns) -> pa.BinaryArray:
        """Record keys from the key columns in key order, one for each row."""

    @abstractmethod
    def values(self, ops: Ops, before: Columns, after: Columns) -> pa.BinaryArray:
        """The part of a value that depends on the change alone, one for each; null for a record without a value.

        Both images have full length. `before` of an INSERT and `after` of a DELETE hold arbitrary values, but for the
        key columns of `after`, which are the change's.
        """

    def records(self, keys: pa.BinaryArray, values: pa.BinaryArray, ops: Ops, first: int) -> EventRecords:
        """The records of changes with these `values`. The first change is number `first` in its topic."""
        return EventRecords(keys, values)

    def read_back(self, value: bytes | None) -> RecordContent | None:
        """The content of a record of `records`, None for a tombstone. Raises: ValueError for any other value."""
        return RecordContent(Op.DELETE, b"") if value is None else RecordContent(Op.INSERT, value)


@dataclass(frozen=True)
class OutputEvents(EventEncoder):
    """One record for each change, by an output's encoder. The first `hidden` columns of rows are left out of values."""

    output: OutputFormat
    columns: tuple[Column, ...]
    encode_keys: EncodeKeys
    hidden: int = 0

    @property
    def needs_before(self) -> bool:
        return self.output.images is Images.FULL

    def keys(self, arrays: Columns) -> pa.BinaryArray:
        return self.encode_keys(arrays)

    def values(self, ops: Ops, before: Columns, after: Columns) -> pa.BinaryArray:
        encoder, hidden = self.output.values(self.columns[self.hidden :]), self.hidden
        return encoder.changes(pa.array(ops), before[hidden:], after[hidden:], _NO_ORIGINS)

    def read_back(self, value: bytes | None) -> RecordContent | None:
        if self.output.images is not Images.FULL:
            return super().read_back(value)
        if not value or value[0] not in _OPS_BY_FIRST_BYTE:
            raise ValueError("no change")
        return RecordContent(_OPS_BY_FIRST_BYTE[value[0]], value)


def change_events(table: TableSchema) -> OutputEvents:
    """Records of the format `change`."""
    return OutputEvents(ChangeFormat(), table.columns, ChangeFormat().keys(table.key_columns))


def upsert_events(table: TableSchema, output: UpsertOutput, key: KeyForm = "record") -> OutputEvents:
    """Records of the format `upsert`. Keys that are no record are texts, or JSON values, of the one key column."""
    encode_keys: EncodeKeys = output.keys(table.key_columns)
    if key != "record":
        [column] = table.key_columns

        def encode_keys(arrays: Columns) -> pa.BinaryArray:
            return _single_keys(arrays[0], column, key)

    return OutputEvents(output, table.columns, encode_keys)


def _single_keys(array: pa.Array, column: Column, key: KeyForm) -> pa.BinaryArray:
    if key == "text" and column.type.name is TypeName.STRING:
        return array.cast(pa.binary())
    texts = join(cells(array, column.type, "json"))
    return texts if key == "json" else pc.utf8_trim(texts.cast(pa.string()), '"').cast(pa.binary())


def append_events(table: TableSchema) -> OutputEvents:
    """Records of the format `append` in JSON, of a table that is `numbered`: the number is the key, and no column.

    An update is one more row with the key of the one before, a delete a null value.
    """
    return OutputEvents(
        AppendOutput(), table.columns, lambda arrays: join(cells(arrays[0], _NUMBER.type, "json")), 1
    )


def numbered(table: TableSchema) -> TableSchema:
    """The table with a number in front of its columns, by which a generator can address rows without identity."""
    key = (_NUMBER.name,)
    return replace(table, columns=(_NUMBER, *table.columns), primary_key=key, distribution_key=key)
