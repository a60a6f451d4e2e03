"""Rows of Parquet files by their locations, so that wide values are read only where and when they are needed.

`find` reads narrow columns and the location of each row; values are read later by location, row group by row group
(`stream`, `take`). So memory holds the wanted rows and one row group, however large the files are together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from state.columns import NO_FILLS, Fills, in_parts, with_fills
from state.storage import Storage

LOCATION = "_bf_location"
"""A row's file in the upper half, its number in the file in the lower one."""
_ROW_BITS = 32
_STREAM_BYTES = 16 << 20

RowNumbers = npt.NDArray[np.int64]


def files_of(locations: RowNumbers) -> RowNumbers:
    """The number of the file of each location."""
    return locations >> _ROW_BITS


class FileRows:
    """Some files, each named by its table and its path below that; `schema` has every column that is read.

    A column that a file lacks has its fill there, or is null; none of these may be in `wanted`. For one thread.
    Every method raises StateError(STATE_TABLE_CORRUPT) for a file that is gone, or no Parquet.
    """

    def __init__(
        self,
        storage: Storage,
        files: Sequence[tuple[str, str]],
        schema: pa.Schema,
        fills: Fills = NO_FILLS,
    ) -> None:
        self._storage, self._files, self._schema, self._fills = storage, files, schema, fills
        self._starts: dict[int, RowNumbers] = {}

    def find(self, file: int, columns: Sequence[str], wanted: pc.Expression | None = None) -> pa.Table:
        """These columns of the wanted rows of a file, and their location (`LOCATION`).

        `columns` must include those in `wanted`.
        """
        fragment = self._open(file)
        starts = self._starts_of(file, fragment)
        fields = [*(self._schema.field(name) for name in columns), pa.field(LOCATION, pa.int64())]
        found = pa.schema(fields).empty_table()
        for group in _groups(fragment, wanted, self._schema):
            rows = self._read(file, group, columns)
            first = (file << _ROW_BITS) + int(starts[group.row_groups[0].id])
            rows = rows.append_column(LOCATION, pa.array(np.arange(first, first + rows.num_rows)))
            found = pa.concat_tables([found, rows if wanted is None else rows.filter(wanted)])
        return found

    def read(
        self, file: int, columns: Sequence[str], wanted: pc.Expression | None = None
    ) -> Iterator[pa.Table]:
        """These columns of the wanted rows of a file, a row group at a time."""
        for group in _groups(self._open(file), wanted, self._schema):
            yield self._read(file, group, columns, wanted)

    def last(self, file: int, columns: Sequence[str]) -> pa.Table:
        """These columns of the last row of a file."""
        fragment = self._open(file)
        group = fragment.subset(row_group_ids=[fragment.row_groups[-1].id])
        rows = self._read(file, group, columns)
        return rows.slice(rows.num_rows - 1)

    def stream(self, locations: RowNumbers, columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of the rows at some locations, in the order of locations, in tables of some megabytes.

        Every row group is read once. `locations` may come in any order.
        """
        return in_parts(self._by_group(np.sort(locations), columns), _STREAM_BYTES)

    def take(self, locations: RowNumbers, columns: Sequence[str], most_bytes: int) -> pa.Table | None:
        """The rows at some locations, in this order; None if several rows together take more than `most_bytes`."""
        order = np.argsort(locations)
        held = [pa.schema([self._schema.field(name) for name in columns]).empty_table()]
        size = 0
        for rows in self._by_group(locations[order], columns):
            held.append(rows)
            size += rows.nbytes
            if size > most_bytes and len(locations) > 1:
                return None
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_tables(held).take(pa.array(back))

    def _by_group(self, locations: RowNumbers, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows at sorted locations, a row group at a time."""
        numbers = files_of(locations)
        for file in np.unique(numbers).tolist():
            fragment = self._open(file)
            starts = self._starts_of(file, fragment)
            first, end = np.searchsorted(numbers, [file, file + 1])
            rows = locations[first:end] - (file << _ROW_BITS)
            groups = np.searchsorted(starts, rows, side="right") - 1
            for group in np.unique(groups).tolist():
                stored = self._read(file, fragment.subset(row_group_ids=[group]), columns)
                yield stored.take(pa.array(rows[groups == group] - starts[group]))

    def _starts_of(self, file: int, fragment: ds.ParquetFileFragment) -> RowNumbers:
        """The first row of each row group."""
        if file not in self._starts:
            counts = [group.num_rows for group in fragment.row_groups]
            self._starts[file] = np.cumsum([0, *counts], dtype=np.int64)[:-1]
        return self._starts[file]

    def _open(self, file: int) -> ds.ParquetFileFragment:
        table, name = self._files[file]
        with self._storage.reading(table):
            path = self._storage.path(table, name)
            fragment = ds.ParquetFileFormat().make_fragment(path, self._storage.filesystem)
            fragment.ensure_complete_metadata()
        return fragment

    def _read(
        self,
        file: int,
        fragment: ds.ParquetFileFragment,
        columns: Sequence[str],
        wanted: pc.Expression | None = None,
    ) -> pa.Table:
        with self._storage.reading(self._files[file][0]):
            rows = fragment.to_table(schema=self._schema, columns=list(columns), filter=wanted)
            return with_fills(rows, fragment.physical_schema.names, self._fills)


def _groups(
    fragment: ds.ParquetFileFragment, wanted: pc.Expression | None, schema: pa.Schema
) -> Iterator[ds.ParquetFileFragment]:
    """The row groups that may hold wanted rows, one by one."""
    some = fragment if wanted is None else fragment.subset(filter=wanted, schema=schema)
    for group in some.row_groups:
        yield fragment.subset(row_group_ids=[group.id])
