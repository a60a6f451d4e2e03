"""Snapshot read: the rows of a slice as of a pinned version, straight from its Parquet files.

State at barrier a = newest of (base row, log rows) per key in the slice's range:

    base files of the vnode ── range ── minus keys in the log ──────────┐
    log rows of the vnode ──── range ── newest per key ── not deleted ──┴─▶ rows

A slice costs what it reads: no table is opened, nothing is listed, files and row groups outside the range are
skipped by their statistics. Everything is whole Arrow columns; memory is one base file of the slice's vnode, and of the
log its keys, and its values too where these are small. Otherwise values are read where a slice needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.position import Key
from schemas.records import Op
from schemas.table import TableSchema
from state.columns import EPOCH, OFFSET, OP, VNODE
from state.file_rows import LOCATION, FileRows
from state.replica import BASE_PATH, LOG_PATH, BaseFile, ReplicaFiles, raw_bytes
from state.storage import Storage
from state.values.arrays import arrays, at_most, changes_of_key, sort_order, within
from state.values.plan import Slice


@dataclass(frozen=True)
class FileOrder:
    """n files, disjoint in key and in its order, none of them empty; `last_keys` are n rows of the key columns."""

    files: tuple[BaseFile, ...]
    last_keys: tuple[pa.Array, ...]

    @classmethod
    def from_files(
        cls, files: Sequence[BaseFile], keys_of: Callable[[BaseFile], Sequence[pa.Array]]
    ) -> FileOrder:
        """`keys_of` gives the key columns of a file, in key order; it is called once for each."""
        lasts = [[column.take([len(column) - 1]) for column in keys_of(file)] for file in files]
        columns = [pa.concat_arrays(column) for column in zip(*lasts, strict=True)]
        order = sort_order(columns)
        return cls(
            tuple(files[i] for i in order.to_pylist()), tuple(column.take(order) for column in columns)
        )

    def begin(self, after: Key | None) -> int:
        """The number of the first file that has keys behind `after` (None: −∞); n if none has."""
        return 0 if after is None else int(np.count_nonzero(at_most(self.last_keys, after)))

    def of_range(self, after: Key | None, upto: Key | None) -> tuple[BaseFile, ...]:
        """All files that may have keys in (after, upto]; None is −∞ and +∞."""
        end = len(self.files) if upto is None else self.begin(upto) + 1
        return self.files[self.begin(after) : end]


HELD_BYTES = 64 << 20
"""Bytes of the log's values that an overlay holds, and of a base file that is read at once; more is read in parts."""


@dataclass(frozen=True)
class Overlay:
    """The newest log row of each key in some vnodes, deletes included, by vnode and key.

    `newest` has the wanted columns or, where `log` is given, only the key's, and each row's `LOCATION` in `log`.
    """

    newest: pa.Table
    log: FileRows | None = None

    def newest_of(self, vnode: int) -> pa.Table:
        """The rows of `newest` of one vnode, without a copy."""
        first, end = np.searchsorted(self._vnodes, (vnode, vnode + 1)).tolist()
        return self.newest.slice(first, end - first)

    def rows(self, vnode: int) -> int:
        """The number of rows of `newest_of` that are no deletes."""
        return int(self._rows[vnode]) if vnode < len(self._rows) else 0

    @cached_property
    def _rows(self) -> npt.NDArray[np.int64]:
        return np.bincount(self._vnodes[self.newest[OP].to_numpy() != Op.DELETE.value])

    @cached_property
    def _vnodes(self) -> npt.NDArray[np.int32]:
        numbers: npt.NDArray[np.int32] = self.newest[VNODE].to_numpy()
        return numbers

    def values(self, rows: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of `rows`, which are some of `newest`, in no order."""
        if self.log is None:
            yield rows.select(list(columns))
        else:
            yield from self.log.stream(rows[LOCATION].to_numpy(), columns)


@dataclass(frozen=True)
class SnapshotReader:
    """Reads slices of some vnodes at one pinned version. Values are as stored; `columns` must hold the key.

    Of a vnode in `orders` only files that a slice needs are opened; of another one each, to see whether it is needed.
    """

    storage: Storage
    table: TableSchema
    files: ReplicaFiles
    orders: Mapping[int, FileOrder] = field(default_factory=dict)

    def read(self, item: Slice, columns: Sequence[str], overlay: Overlay) -> Iterator[pa.Table]:
        """The slice's rows in some tables of these columns, each key once, in no particular order.

        `overlay` is a result of `overlay(...)` for vnodes that include the slice's, and for these columns.
        """
        changed = self._in_range(overlay.newest_of(item.part), item)
        for file in self._base_files(item):
            for stored in self._base_rows(file, item, columns):
                rows = self._without(self._in_range(stored, item), changed)
                if rows.num_rows:
                    yield rows
        alive = changed.filter(pc.not_equal(changed[OP], Op.DELETE.value))
        if alive.num_rows:
            yield from overlay.values(alive, columns)

    def overlay(self, vnodes: frozenset[int], columns: Sequence[str]) -> Overlay:
        """The log's rows for reads of these columns in these vnodes. Keys always, values only if they are few."""
        keys = list(self.table.primary_key)
        names = list(dict.fromkeys([VNODE, EPOCH, OP, OFFSET, *keys, *columns]))
        if not self.files.log or not vnodes:
            return Overlay(self._schema(names).empty_table())
        wanted = pc.field(VNODE).isin(sorted(vnodes)) & (pc.field(EPOCH) > self.files.compacted_epoch)
        if set(columns) <= set(keys) or self.files.log_bytes_of(vnodes) <= HELD_BYTES:
            paths = [file.path for file in self.files.log]
            return Overlay(self._newest(self._scan(LOG_PATH, paths, names, wanted)))
        names = [VNODE, EPOCH, OP, OFFSET, *keys]
        log = FileRows(
            self.storage,
            [(LOG_PATH, file.path) for file in self.files.log],
            self._schema([*names, *columns]),
            self.table.fills,
        )
        found = [log.find(number, names, wanted) for number in range(len(self.files.log))]
        return Overlay(self._newest(pa.concat_tables(found)), log)

    def _newest(self, rows: pa.Table) -> pa.Table:
        keys = list(self.table.primary_key)
        order = sort_order([*arrays(rows, [VNODE, *keys, EPOCH, OFFSET])])
        rows = rows.take(order).combine_chunks()
        starts = changes_of_key(arrays(rows, [VNODE, *keys]))
        newest = np.append(starts[1:], True) if len(starts) else starts
        return rows.filter(pa.array(newest))

    def base_keys(self, file: BaseFile) -> list[pa.Array]:
        """The key columns of a base file, in key order."""
        names = list(self.table.primary_key)
        return arrays(self._scan(BASE_PATH, [file.path], names, None), names)

    def _base_files(self, item: Slice) -> Sequence[BaseFile]:
        """The files that may hold rows of a slice."""
        order = self.orders.get(item.part)
        return self.files.base.get(item.part, ()) if order is None else order.of_range(item.after, item.upto)

    def _base_rows(self, file: BaseFile, item: Slice, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Rows that may be in the slice. A file above `HELD_BYTES` (of an old state) is read by row groups."""
        wanted = self._pushdown(item)
        if raw_bytes(file) <= HELD_BYTES:
            yield self._scan(BASE_PATH, [file.path], list(columns), wanted)
        else:
            files, schema = [(BASE_PATH, file.path)], self._schema(columns)
            rows = FileRows(self.storage, files, schema, self.table.fills)
            yield from rows.read(0, columns, wanted)

    def _scan(
        self, root: str, paths: Sequence[str], columns: list[str], wanted: pc.Expression | None
    ) -> pa.Table:
        schema = self._schema([*columns, *self.table.primary_key, VNODE, EPOCH])
        fills = self.table.fills
        return self.storage.read_parquet(root, paths, schema, columns=columns, wanted=wanted, fills=fills)

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([(name, self._type(name)) for name in dict.fromkeys(names)])

    def _type(self, name: str) -> pa.DataType:
        own = {VNODE: pa.int32(), OP: pa.int8(), OFFSET: pa.int64(), EPOCH: pa.int64()}
        return own[name] if name in own else self.table.by_name[name].type.arrow

    def _pushdown(self, item: Slice) -> pc.Expression | None:
        """A range over the first key column, which lets Parquet skip row groups; the exact cut follows."""
        column = self.table.key_columns[0]
        if pa.types.is_boolean(column.type.arrow):
            return None
        first = pc.field(column.name)
        low = None if item.after is None else first >= pa.scalar(item.after[0], type=column.type.arrow)
        high = None if item.upto is None else first <= pa.scalar(item.upto[0], type=column.type.arrow)
        return low & high if low is not None and high is not None else (low if low is not None else high)

    def _in_range(self, rows: pa.Table, item: Slice) -> pa.Table:
        if rows.num_rows == 0 or (item.after is None and item.upto is None):
            return rows
        keys = arrays(rows, self.table.primary_key)
        return rows.filter(pa.array(within(keys, item.after, item.upto)))

    def _without(self, rows: pa.Table, changed: pa.Table) -> pa.Table:
        """Rows whose key is not among the changed ones."""
        keys = list(self.table.primary_key)
        if changed.num_rows == 0 or rows.num_rows == 0:
            return rows
        if len(keys) == 1:
            known = pc.is_in(rows[keys[0]], value_set=changed[keys[0]].combine_chunks())
            return rows.filter(pc.invert(known))
        numbered = rows.select(keys).append_column("_bf_row", pa.array(np.arange(rows.num_rows)))
        kept = numbered.join(changed.select(keys), keys, join_type="left anti")["_bf_row"]
        return rows.take(kept.combine_chunks())
