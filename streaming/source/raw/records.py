"""Upstream records as they lie in the topic: raw columns, before anything is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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
HEADERS_FIELD = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
"""A further column where jobs pass headers on: those with their names, in the record's order."""

RawRecord = tuple[int, int, bytes | None, bytes | None, bool] | tuple[Any, ...]
"""Partition, offset, key, value, whether it has the header of a barrier, and headers where jobs pass some on."""


def raw_schema(*, headers: bool) -> pa.Schema:
    """The columns of raw records, with or without headers."""
    return RAW_SCHEMA.append(HEADERS_FIELD) if headers else RAW_SCHEMA


class Records(NamedTuple):
    """n raw records, by column as in `RAW_SCHEMA`; keys and values are null where a record has none."""

    partitions: pa.Int32Array
    offsets: pa.Int64Array
    keys: pa.BinaryArray
    values: pa.BinaryArray
    marked: pa.BooleanArray
    headers: pa.ListArray | None = None

    @classmethod
    def of(cls, records: Sequence[RawRecord], *, headers: bool = False) -> Records:
        """Makes columns from one tuple for each record, which has its `headers` last."""
        schema = raw_schema(headers=headers)
        columns = zip(*records, strict=True) if records else ((),) * len(schema)
        return cls(*(pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)))

    @classmethod
    def concatenated(cls, batches: Iterable[pa.RecordBatch]) -> Records:
        """Joins batches of the columns of `raw_schema` in order; Spark may call some of them not null."""
        found = list(batches)
        schema = raw_schema(headers=any(each.num_columns > len(RAW_SCHEMA) for each in found))
        own = [pa.RecordBatch.from_arrays(_columns_of(each), schema=schema) for each in found]
        table = pa.Table.from_batches(own, schema).combine_chunks()
        return cls(*(_one_chunk(column) for column in table.columns))

    @property
    def batch(self) -> pa.RecordBatch:
        """These records as one batch of `raw_schema`."""
        columns = [column for column in self if column is not None]
        return pa.RecordBatch.from_arrays(columns, schema=raw_schema(headers=self.headers is not None))

    def filter(self, wanted: pa.BooleanArray) -> Records:
        """The records where `wanted` is True."""
        return Records(*(None if column is None else column.filter(wanted) for column in self))

    @property
    def sizes(self) -> pa.Int32Array:
        """Bytes of key and value of each."""
        return pc.add(*(pc.binary_length(each).fill_null(0) for each in (self.keys, self.values)))


def _columns_of(batch: pa.RecordBatch) -> list[pa.Array]:
    """The columns, headers as `HEADERS_FIELD` has them: Spark has other names for what is in them."""
    columns: list[pa.Array] = batch.columns
    return [
        *columns[: len(RAW_SCHEMA)],
        *(each.cast(HEADERS_FIELD.type) for each in columns[len(RAW_SCHEMA) :]),
    ]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.array([], column.type)
