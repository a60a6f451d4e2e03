"""The output of a job as lanes know it: its topics, its columns, and what they show of the table's."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats.protocol import KeyEncoder, Origins, ValueEncoder
from schemas.job import JobDefinition
from schemas.kinds.projection import OutputColumn
from schemas.records import Barrier
from schemas.settings.security import hash_key_of
from schemas.table import Column, TableSchema
from schemas.types import Value, json_literal


class SinkPartition(NamedTuple):
    """A partition of an output. `barriers` is the separate topic of its barriers, None where they are in the data."""

    topic: str
    partition: int
    barriers: str | None = None

    @property
    def logs(self) -> list[tuple[str, int]]:
        """Topic and partition of its data and, where there is a barrier topic, of its barriers."""
        return [(topic, self.partition) for topic in (self.topic, self.barriers) if topic is not None]


@dataclass(frozen=True)
class Output:
    """The output of a job, for the time of a lane's task."""

    definition: JobDefinition
    table: TableSchema

    @property
    def topic(self) -> str:
        return self.definition.output

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The output's columns, in the job's order. They need not include the primary key."""
        return self.definition.columns_of(self.table)

    @cached_property
    def hash_key(self) -> bytes:
        """The key of hashes, read once in a task. Raises: ConfigError."""
        return hash_key_of(self.definition)

    @cached_property
    def in_key(self) -> tuple[OutputColumn, ...]:
        """The columns of the keys of its records."""
        return self.definition.in_key(self.table)

    def shown(
        self, columns: Sequence[OutputColumn], arrays: Callable[[str], pa.Array], count: int
    ) -> list[pa.Array]:
        """The values of these columns in so many rows, of which `arrays` gives the table's columns by name."""
        return [
            pa.nulls(count, self.table.by_name[each.source].type.arrow)
            if each.mask == "null"
            else _masked(each, arrays(each.source), self.hash_key)
            for each in columns
        ]

    @cached_property
    def keys(self) -> KeyEncoder | None:
        """The encoder of keys, for sinks of records. None where records keep the keys that they came with."""
        return self.definition.format.keys(self.definition.key_columns_of(self.table))

    @cached_property
    def values(self) -> ValueEncoder:
        """The encoder of values, over `columns`, for sinks of records."""
        return self.definition.format.values(self.columns)

    def partition(self, partition: int) -> SinkPartition:
        """The partition of this number."""
        return SinkPartition(self.topic, partition, self.definition.barrier_topic)

    def partitions_of(self, parts: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """The output partition of each of these parts, see `JobDefinition.partition_of`."""
        job = self.definition
        return (parts.astype(np.int64) * job.output_partitions // job.part_count).astype(np.int32)

    def origins(
        self, parts: npt.NDArray[np.int32], intervals: npt.NDArray[np.int64], barriers: Sequence[Barrier]
    ) -> Origins:
        """For encoders: the origin of each row. `parts` and `intervals` are per row; intervals index `barriers`."""
        return Origins(self.definition.name, self.table.name, parts, intervals, barriers)


def _masked(column: OutputColumn, array: pa.Array, hash_key: bytes) -> pa.Array:
    """The values that an output's column has of the table's; a null stays null."""
    match column.mask:
        case "prefix":
            return pc.utf8_slice_codeunits(array, 0, column.length)
        case "hash":
            # Each value is hashed once, however often it is there.
            values = array.dictionary_encode()
            hashes = [_hash(value, hash_key) for value in values.dictionary.to_pylist()]
            return pa.array(hashes, pa.string()).take(values.indices)
    return array


def _hash(value: Value, key: bytes) -> str:
    literal = json_literal(value)
    text = str(literal).lower() if isinstance(literal, bool) else str(literal)
    return hmac.digest(key, text.encode(), "sha256").hex()
