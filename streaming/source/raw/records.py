"""Upstream records as they lie in the topic: raw columns, before anything is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

RAW_SCHEMA = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        "key": pa.binary(),
        "value": pa.binary(),
        "marked": pa.bool_(),
    }
)
"""`marked`: it has the header of a barrier; never null."""

RawRecord = tuple[int, int, bytes | None, bytes | None, bool]
"""Partition, offset, key, value, and whether it has the header of a barrier."""


class Records(NamedTuple):
    """n raw records, by column as in `RAW_SCHEMA`; keys and values are null where a record has none."""

    partitions: pa.Int32Array
    offsets: pa.Int64Array
    keys: pa.BinaryArray
    values: pa.BinaryArray
    marked: pa.BooleanArray

    @classmethod
    def of(cls, records: Sequence[RawRecord]) -> Records:
        """Makes columns from one tuple for each record."""
        columns = zip(*records, strict=True) if records else ((),) * len(RAW_SCHEMA)
        return cls(*(pa.array(each, field.type) for each, field in zip(columns, RAW_SCHEMA, strict=True)))

    @classmethod
    def concatenated(cls, batches: Iterable[pa.RecordBatch]) -> Records:
        """Joins batches of the columns of `RAW_SCHEMA` in order; Spark may call some of them not null."""
        own = [pa.RecordBatch.from_arrays(each.columns, schema=RAW_SCHEMA) for each in batches]
        table = pa.Table.from_batches(own, RAW_SCHEMA).combine_chunks()
        return cls(*(_one_chunk(column) for column in table.columns))

    @property
    def batch(self) -> pa.RecordBatch:
        """These records as one batch of `RAW_SCHEMA`."""
        return pa.RecordBatch.from_arrays(list(self), schema=RAW_SCHEMA)

    def filter(self, wanted: pa.BooleanArray) -> Records:
        """The records where `wanted` is True."""
        return Records(*(column.filter(wanted) for column in self))

    @property
    def sizes(self) -> pa.Int32Array:
        """Bytes of key and value of each."""
        return pc.add(*(pc.binary_length(each).fill_null(0) for each in (self.keys, self.values)))


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.array([], column.type)
