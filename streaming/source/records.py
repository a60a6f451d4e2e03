"""The upstream's raw records by column, before anything is decoded: the ids of schemas that they name, and their lanes.

Routes are the one rule of the exchange and of lanes that read the topic themselves. A record's key holds the primary
key, which holds the distribution key, and so gives the vnode before any value is read: an invalid value is met by the
lane that the record would be for.

A record goes to the lane of its vnode. Where jobs read the upstream, it also goes to the lane of its partition, and
records from before the batch go to that lane alone. What has no vnode (a key that can't be read, a barrier's mark)
goes to lane 0; a key whose schema is not known goes to every lane: whose record it is, is not known either, and a lane
that has sent its part would never get it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.avro.registered import FRAME_BYTES, framed_id
from schemas.codec.results import null_where, row_type, with_names
from schemas.formats.protocol import Framed, UpstreamFormat
from schemas.table import TableSchema
from state.values.plan import BatchPlan
from state.vnode import row_hashes
from streaming.core.offset_ranges import readers

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
TIME_FIELD = pa.field("time", pa.int64())
"""A further column where the order of a key's partitions may depend on it: the timestamp, in milliseconds."""

RawRecord = tuple[int, int, bytes | None, bytes | None, bool] | tuple[Any, ...]
"""Partition, offset, key, value, whether it has the header of a barrier, and the further columns that are wanted."""
Bools = npt.NDArray[np.bool_]
Read = TypeVar("Read", pa.Int32Array, pa.RecordBatch)
NO_ID = -1


def raw_schema(*, headers: bool = False, times: bool = False) -> pa.Schema:
    """The columns of raw records, with further ones or without."""
    more = [field for field, wanted in ((HEADERS_FIELD, headers), (TIME_FIELD, times)) if wanted]
    return pa.schema([*RAW_SCHEMA, *more])


class Records(NamedTuple):
    """n raw records, by column as in `RAW_SCHEMA`; keys and values are null where a record has none."""

    partitions: pa.Int32Array
    offsets: pa.Int64Array
    keys: pa.BinaryArray
    values: pa.BinaryArray
    marked: pa.BooleanArray
    headers: pa.ListArray | None = None
    times: pa.Int64Array | None = None

    @classmethod
    def of(cls, records: Sequence[RawRecord], *, headers: bool = False, times: bool = False) -> Records:
        """Makes columns from one tuple for each record, in the order of `raw_schema`."""
        schema = raw_schema(headers=headers, times=times)
        columns = zip(*records, strict=True) if records else ((),) * len(schema)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
        return cls._of_schema(arrays, schema)

    @classmethod
    def _of_schema(cls, columns: Sequence[pa.Array], schema: pa.Schema) -> Records:
        own = dict(zip(schema.names, columns, strict=True))
        more = {"headers": own.get(HEADERS_FIELD.name), "times": own.get(TIME_FIELD.name)}
        return cls(*columns[: len(RAW_SCHEMA)], **more)

    @classmethod
    def concatenated(cls, batches: Iterable[pa.RecordBatch]) -> Records:
        """Joins batches of the columns of `raw_schema` in order; Spark may call some of them not null."""
        found = list(batches)
        names = {name for each in found for name in each.schema.names}
        schema = raw_schema(headers=HEADERS_FIELD.name in names, times=TIME_FIELD.name in names)
        own = [pa.RecordBatch.from_arrays(_columns_of(each, schema), schema=schema) for each in found]
        table = pa.Table.from_batches(own, schema).combine_chunks()
        return cls._of_schema([_one_chunk(column) for column in table.columns], schema)

    @property
    def batch(self) -> pa.RecordBatch:
        """These records as one batch of `raw_schema`."""
        columns = [column for column in self if column is not None]
        schema = raw_schema(headers=self.headers is not None, times=self.times is not None)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def filter(self, wanted: pa.BooleanArray) -> Records:
        """The records where `wanted` is True."""
        return Records(*(None if column is None else column.filter(wanted) for column in self))

    def named(self, framed: Framed) -> list[NamedSchemas]:
        """The schemas that keys and values name, of those that are framed."""
        halves = (self.keys, framed.key), (self.values, framed.value)
        return [NamedSchemas.of(half) for half, is_framed in halves if is_framed]

    @property
    def sizes(self) -> pa.Int32Array:
        """Bytes of key and value of each."""
        return pc.add(*(pc.binary_length(each).fill_null(0) for each in (self.keys, self.values)))


def _columns_of(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """The columns, headers as `HEADERS_FIELD` has them: Spark has other names for what is in them."""
    columns = list(zip(batch.columns, schema, strict=True))
    return [each.cast(field.type) if field == HEADERS_FIELD else each for each, field in columns]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.array([], column.type)


def read_where(wanted: Bools, read: Callable[..., Read], *columns: pa.Array) -> Read:
    """The result of `read` for those of n records that are wanted, with nulls at the others."""
    if wanted.all():
        return read(*columns)
    own = pa.array(wanted)
    return read(*(each.filter(own) for each in columns)).take(pa.array(np.cumsum(wanted) - 1, mask=~wanted))


@dataclass(frozen=True)
class NamedSchemas:
    """The id that each record names, `NO_ID` for none: it is null, or has no frame."""

    ids: npt.NDArray[np.int64]

    @classmethod
    def of(cls, halves: pa.BinaryArray) -> NamedSchemas:
        """The ids of n keys, or n values."""
        prefixes = pc.binary_slice(halves, 0, FRAME_BYTES).fill_null(b"").dictionary_encode()
        found = [framed_id(prefix) for prefix in prefixes.dictionary.to_pylist()]
        ids = np.array([NO_ID if each is None else each for each in found], np.int64)
        return cls(ids[prefixes.indices.to_numpy()])

    def within(self, wanted: Collection[int]) -> Bools:
        """True where the id is one of these."""
        found: Bools = np.isin(self.ids, list(wanted))
        return found

    def outside(self, known: Collection[int]) -> Bools:
        """True where there is an id, and it is none of these."""
        found: Bools = (self.ids != NO_ID) & ~self.within(known)
        return found

    @property
    def distinct(self) -> list[int]:
        """The ids that occur."""
        return [int(each) for each in np.unique(self.ids) if each != NO_ID]


Numbers = npt.NDArray[np.int64]


class Vnodes(NamedTuple):
    """The vnodes of n records.

    `numbers` are null where a key can't be read, and where a record is marked as a barrier. `are_unknown`: the key
    names a schema that is not known, so any lane may be the one that the record is for.
    """

    numbers: pa.Int32Array
    are_unknown: Bools


@dataclass
class RecordVnodes:
    """Reads keys of one table and format. Rows without identity, and tables by partition, have partitions as vnodes."""

    format: UpstreamFormat
    table: TableSchema

    def __post_init__(self) -> None:
        table = self.table
        self._is_hashed = table.has_key and not table.by_partition
        self._kind = row_type(table.key_columns)
        self._decoder = self.format.decoder(table.columns, table.key_columns)

    def of(self, records: Records) -> Vnodes:
        """The vnodes of records. Raises nothing: what can't be read has none."""
        plain = ~records.marked.to_numpy(zero_copy_only=False)
        if not self._is_hashed:
            return Vnodes(pc.if_else(pa.array(plain), records.partitions, None), np.zeros_like(plain))
        are_unknown = self._unknown(records.keys) & plain
        read = plain & ~are_unknown & records.keys.is_valid().to_numpy(zero_copy_only=False)
        return Vnodes(read_where(read, self._numbers, records.keys), are_unknown)

    def _unknown(self, keys: pa.BinaryArray) -> Bools:
        if not self.format.framed.key:
            return np.zeros(len(keys), np.bool_)
        return NamedSchemas.of(keys).outside({schema.id for schema in self.format.known.schemas})

    def _numbers(self, keys: pa.BinaryArray) -> pa.Int32Array:
        read = self._decoder.decode_keys(keys)
        is_wrong = np.zeros(len(keys), np.bool_)
        is_wrong[[*read.errors, *read.late]] = True
        return self._hashed(null_where(with_names(read.structs, self._kind), is_wrong))

    def _hashed(self, rows: pa.StructArray) -> pa.Int32Array:
        table = self.table
        columns = [pc.struct_field(rows, name) for name in table.distribution_key]
        hashes = row_hashes(columns, [table.by_name[name] for name in table.distribution_key])
        numbers = (hashes % table.vnode_count).astype(np.int32)
        return pa.array(numbers, mask=~rows.is_valid().to_numpy(zero_copy_only=False))


@lru_cache(maxsize=1)
def vnodes_of(format_: UpstreamFormat, table: TableSchema) -> RecordVnodes:
    """The reader of a format and table; that of the last call is kept."""
    return RecordVnodes(format_, table)


@dataclass(frozen=True)
class Routes:
    """Routes to `lanes` lanes by `vnodes` vnodes.

    `partitions`, if not 0, are those of the upstream, and jobs read it. The batch's own records begin at the offsets
    `first`.
    """

    lanes: int
    vnodes: int
    partitions: int = 0
    first: tuple[int, ...] = ()

    @classmethod
    def of(cls, plan: BatchPlan, table: TableSchema) -> Routes:
        """The routes of a batch whose records are exchanged or read by the lanes themselves."""
        count = len(plan.first_offsets)
        partitions = count if readers(plan) else 0
        vnodes = table.vnode_count if table.has_key and not table.by_partition else count
        return cls(plan.lanes, vnodes, partitions, tuple(plan.first_offsets))

    def placed(self, records: Records, vnodes: Vnodes) -> Placed:
        """The lanes of records."""
        numbers = vnodes.numbers.fill_null(-1).to_numpy().astype(np.int64)
        has_vnode = numbers >= 0
        own = np.where(has_vnode, numbers * self.lanes // self.vnodes, 0)
        if not self.partitions:
            return Placed(own, own, vnodes.are_unknown)
        partitions = records.partitions.to_numpy()
        of_partition = np.where(has_vnode, partitions.astype(np.int64) * self.lanes // self.partitions, own)
        is_early = records.offsets.to_numpy() < np.asarray(self.first)[partitions]
        return Placed(np.where(is_early, of_partition, own), of_partition, vnodes.are_unknown)


@dataclass(frozen=True)
class Placed:
    """Routes of n records: the lane of the vnode, that of the partition, and True if all lanes get it."""

    own: Numbers
    of_partition: Numbers
    everywhere: Bools

    def among(self, lane: int) -> Bools:
        """Flags: True for a record that the lane gets."""
        found: Bools = (self.own == lane) | (self.of_partition == lane) | self.everywhere
        return found
