"""What lanes hand to a writer: whole columns of one output, each of which a sink may take as it is or have encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.formats.protocol import KeyEncoder, ValueEncoder
from schemas.job import JobDefinition
from schemas.table import Column, TableSchema


@dataclass(frozen=True)
class Output:
    """What a job writes, for the time of a lane's task."""

    definition: JobDefinition
    table: TableSchema

    @property
    def topic(self) -> str:
        """Its name in its sink."""
        return self.definition.output

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """In the job's order. They need not hold the primary key."""
        return self.table.select(self.definition.columns)

    @cached_property
    def keys(self) -> KeyEncoder:
        """For sinks of records: their keys."""
        return self.definition.format.keys(self.table.key_columns)

    @cached_property
    def values(self) -> ValueEncoder:
        """For sinks of records: their values, over `columns`."""
        return self.definition.format.values(self.columns)


@dataclass(frozen=True)
class Rows:
    """Rows of a snapshot read for one partition, each an INSERT. `arrays` has them by column, others than its own too.

    The arrays are of one length and of their columns' exact types, as encoders want them.
    """

    output: Output
    partition: int
    arrays: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def keys(self) -> list[pa.Array]:
        """The columns of the primary key, in key order."""
        return [self.arrays[name] for name in self.output.table.primary_key]

    @property
    def columns(self) -> list[pa.Array]:
        """The output's columns."""
        return [self.arrays[column.name] for column in self.output.columns]

    def encoded_keys(self) -> pa.BinaryArray:
        """As the output's format has them."""
        return self.output.keys(self.keys)

    def encoded_values(self) -> pa.BinaryArray:
        """As the output's format has them."""
        return self.output.values.inserts(self.columns)


class Decoded(Protocol):
    """Changes of the table, of which an output gets some: its columns and keys, and the keys in a form of records."""

    @property
    def before(self) -> Sequence[pa.Array]: ...

    @property
    def after(self) -> Sequence[pa.Array]: ...

    @property
    def keys(self) -> Sequence[pa.Array]: ...

    def encoded_keys(self, encoder: KeyEncoder) -> pa.Array:
        """Of all changes; what equal encoders give is shared."""


@dataclass(frozen=True)
class ChangeColumns:
    """The changes in `rows` of some decoded ones, for one output. Nothing of them is copied before a writer asks.

    `ops` are those that the output gets, which a filter can make others than the table's; with `partitions` they are
    of the length of `rows`.
    """

    output: Output
    decoded: Decoded
    rows: npt.NDArray[np.int64]
    ops: npt.NDArray[np.int8]
    partitions: npt.NDArray[np.int32]

    def runs(self, bounds: npt.NDArray[np.int64]) -> list[Run]:
        """Those between each two of these bounds, which are places in `rows`."""
        return [Run(self, low, high) for low, high in pairwise(bounds.tolist())]

    def taken(self, half: Sequence[pa.Array], low: int, high: int) -> list[pa.Array]:
        """The output's columns of one half of the changes from `low` to `high`."""
        names, rows = self.output.table.column_names, pa.array(self.rows[low:high])
        return [half[names.index(column.name)].take(rows) for column in self.output.columns]

    @cached_property
    def encoded_keys(self) -> pa.BinaryArray:
        """Of all of them, which takes less than run by run."""
        return self.decoded.encoded_keys(self.output.keys).take(pa.array(self.rows))

    @cached_property
    def encoded_values(self) -> pa.BinaryArray:
        """Likewise."""
        halves = (self.taken(half, 0, len(self.rows)) for half in (self.decoded.before, self.decoded.after))
        return self.output.values.changes(pa.array(self.ops, pa.int8()), *halves)


@dataclass(frozen=True)
class Run:
    """Changes without a barrier between them, in order.

    What `before` has of an INSERT, and `after` of a DELETE, means nothing.
    What an encoder gives is a part of what it makes of all the runs of a `ChangeColumns` together, kept with these.
    """

    whole: ChangeColumns
    low: int
    high: int

    def __len__(self) -> int:
        return self.high - self.low

    @property
    def output(self) -> Output:
        """Of all of them."""
        return self.whole.output

    @property
    def ops(self) -> npt.NDArray[np.int8]:
        """Of each change, a value of `records.Op`."""
        return self.whole.ops[self.low : self.high]

    @property
    def partitions(self) -> npt.NDArray[np.int32]:
        """Of each change, where it goes."""
        return self.whole.partitions[self.low : self.high]

    @property
    def keys(self) -> list[pa.Array]:
        """The columns of the primary key, in key order."""
        rows = pa.array(self.whole.rows[self.low : self.high])
        return [column.take(rows) for column in self.whole.decoded.keys]

    @property
    def before(self) -> list[pa.Array]:
        """The output's columns."""
        return self.whole.taken(self.whole.decoded.before, self.low, self.high)

    @property
    def after(self) -> list[pa.Array]:
        """The output's columns."""
        return self.whole.taken(self.whole.decoded.after, self.low, self.high)

    def encoded_keys(self) -> pa.BinaryArray:
        """As the output's format has them."""
        return self.whole.encoded_keys.slice(self.low, len(self))

    def encoded_values(self) -> pa.BinaryArray:
        """As the output's format has them."""
        return self.whole.encoded_values.slice(self.low, len(self))
