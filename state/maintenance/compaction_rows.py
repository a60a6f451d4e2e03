"""Rows of a part of a compaction: those of its vnodes in base and log, in bounded memory.

A small part is read whole. Of a larger one only the keys and the log's own columns are read first; values are read by
the rows' locations, some megabytes at a time, and only those of rows that are needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.position import Key
from schemas.table import TableSchema
from state.columns import EPOCH, LOG_OWN, as_inserts, log_schema, within_vnodes
from state.file_rows import LOCATION, FileRows, RowNumbers, files_of
from state.replica import BASE_PATH, LOG_PATH, BaseFile, ReplicaFiles, raw_bytes
from state.storage import DataFile, Storage
from state.values.arrays import arrays, key_at, within

BYTES_PER_PART = 64 << 20
"""Arrow bytes that a part should read, and that it holds at a time; it needs about four times as much."""


@dataclass(frozen=True)
class CompactionPart:
    """Some vnodes, and the files that they are in as of a version whose log ends at the barrier to compact to.

    Of a single vnode it may be the range (after, upto] of its keys alone, with the base files in it.
    """

    storage: Storage
    table: TableSchema
    vnodes: range
    files: ReplicaFiles
    after: Key | None = None
    upto: Key | None = None

    @property
    def size(self) -> int:
        """Bytes of its rows as Arrow columns, an estimate."""
        return self.files.base_bytes + self.files.log_bytes_of(frozenset(self.vnodes))


def rows_of(part: CompactionPart) -> PartRows:
    """The log's rows of a part. Raises: StateError when a file can't be read, here or later."""
    return HeldRows(part) if part.size <= BYTES_PER_PART else LocatedRows(part)


class PartRows(ABC):
    """The rows of a part: those of the log, then those of base files as INSERTs before them.

    `rows` has columns of the log, in no order.
    """

    rows: pa.Table

    def __init__(self, part: CompactionPart) -> None:
        self._part, self._schema = part, log_schema(part.table)

    def add_base(self, files: Sequence[BaseFile]) -> None:
        """Read base files of the part."""
        read = [as_inserts(self._base(file), file.vnode, 0, self._schema) for file in files]
        self.rows = pa.concat_tables([self.rows, *read]).combine_chunks()

    @abstractmethod
    def _base(self, file: BaseFile) -> pa.Table: ...

    @abstractmethod
    def values(self, numbers: RowNumbers) -> Iterator[pa.Table]:
        """The table's columns of these of the rows, in this order, in tables of about `BYTES_PER_PART` at most."""


class HeldRows(PartRows):
    """The rows of a small part, all in memory, with all columns of the log."""

    def __init__(self, part: CompactionPart) -> None:
        super().__init__(part)
        paths = [file.path for file in part.files.log]
        self.rows = _in_range(
            part,
            part.storage.read_parquet(
                LOG_PATH, paths, self._schema, wanted=_wanted(part), fills=part.table.fills
            ),
        )

    def _base(self, file: BaseFile) -> pa.Table:
        stored = pa.schema([self._schema.field(name) for name in self._part.table.column_names])
        fills = self._part.table.fills
        return self._part.storage.read_parquet(BASE_PATH, [file.path], stored, fills=fills)

    def values(self, numbers: RowNumbers) -> Iterator[pa.Table]:  # noqa: D102
        yield self.rows.select(self._part.table.column_names).take(pa.array(numbers))


class LocatedRows(PartRows):
    """The rows of a large part, with the log's own columns, the key and where each row is stored.

    Values are read from the files when they are needed.
    """

    def __init__(self, part: CompactionPart) -> None:
        super().__init__(part)
        schema = self._schema
        base = [file for files in part.files.base.values() for file in files]
        self._files: list[BaseFile | DataFile] = [*part.files.log, *base]
        paths = [
            *((LOG_PATH, file.path) for file in part.files.log),
            *((BASE_PATH, file.path) for file in base),
        ]
        self._stored = FileRows(part.storage, paths, schema, part.table.fills)
        self._row_bytes = np.array([raw_bytes(file) / max(file.rows, 1) for file in self._files])
        self._names = [*LOG_OWN, *part.table.primary_key]
        self._schema = pa.schema([*(schema.field(name) for name in self._names), (LOCATION, pa.int64())])
        wanted = _wanted(part)
        found = [self._stored.find(number, self._names, wanted) for number in range(len(part.files.log))]
        self.rows = _in_range(part, pa.concat_tables([self._schema.empty_table(), *found]))

    def _base(self, file: BaseFile) -> pa.Table:
        return self._stored.find(self._files.index(file), self._part.table.primary_key)

    def values(self, numbers: RowNumbers) -> Iterator[pa.Table]:  # noqa: D102
        locations = self.rows[LOCATION].to_numpy()[numbers]
        piece = np.cumsum(self._row_bytes[files_of(locations)]) // BYTES_PER_PART
        for some in np.split(locations, np.flatnonzero(np.diff(piece)) + 1):
            yield from self._values(some)

    def _values(self, locations: RowNumbers) -> Iterator[pa.Table]:
        """Sizes are averages of whole files, so the rows may turn out larger than expected, and are halved then."""
        found = self._stored.take(locations, self._part.table.column_names, 2 * BYTES_PER_PART)
        if found is not None:
            yield found
        else:
            middle = len(locations) // 2
            yield from self._values(locations[:middle])
            yield from self._values(locations[middle:])


def _wanted(part: CompactionPart) -> pc.Expression:
    return within_vnodes(part.vnodes) & (pc.field(EPOCH) > part.files.compacted_epoch)


def _in_range(part: CompactionPart, rows: pa.Table) -> pa.Table:
    if part.after is None and part.upto is None:
        return rows
    return rows.filter(pa.array(within(arrays(rows, part.table.primary_key), part.after, part.upto)))


def last_key(storage: Storage, table: TableSchema, file: BaseFile) -> Key:
    """The key that a base file ends with."""
    names = list(table.primary_key)
    schema = pa.schema([(name, table.by_name[name].type.arrow) for name in names])
    row = FileRows(storage, [(BASE_PATH, file.path)], schema).last(0, names)
    return key_at(arrays(row, names), 0)
