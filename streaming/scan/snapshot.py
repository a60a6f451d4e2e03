"""Snapshot read: the rows of a slice as of a pinned version, straight from its Parquet files.

State at barrier a = newest of (base row, log rows) per key in the slice's range:

    base files of the vnode ── range ── minus keys that the log knows ──┐
    log rows of the vnode ──── range ── newest per key ── not deleted ──┴─▶ rows

A slice costs what it reads: no table is opened, nothing is listed, files and row groups outside the range are
skipped by their statistics. Everything is whole Arrow columns; memory is one base file of the slice's vnode, and of the
log its keys, and its values too where these are small. Otherwise values are read where a slice needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.position import Key
from schemas.records import Op
from schemas.table import TableSchema
from state.columns import EPOCH, OFFSET, OP, VNODE
from state.file_rows import PLACE, FileRows
from state.replica import BASE_PATH, LOG_PATH, BaseFile, ReplicaFiles, raw_bytes
from state.storage import Storage
from state.values.cut import Amount, Cut
from state.values.order import arrays, changes_of_key, key_at, sort_order, within
from state.values.plan import Slice

HELD_BYTES = 64 << 20
"""What an overlay holds of the log's values, and a read of a base file in one go: more is read part by part."""


@dataclass(frozen=True)
class Overlay:
    """The newest log row of each key in some vnodes, deletes included, by vnode and key.

    `newest` has the wanted columns or, where `log` is given, only the key's, and each row's `PLACE` in `log`.
    """

    newest: pa.Table
    log: FileRows | None = None

    def of(self, vnode: int) -> pa.Table:
        """The rows of `newest` of one vnode, without a copy."""
        first, end = np.searchsorted(self._vnodes, (vnode, vnode + 1)).tolist()
        return self.newest.slice(first, end - first)

    def rows(self, vnode: int) -> int:
        """How many of them are no deletes."""
        return int(self._rows[vnode]) if vnode < len(self._rows) else 0

    @cached_property
    def _rows(self) -> npt.NDArray[np.int64]:
        return np.bincount(self._vnodes[self.newest[OP].to_numpy() != Op.DELETE.value])

    @cached_property
    def _vnodes(self) -> npt.NDArray[np.int32]:
        numbers: npt.NDArray[np.int32] = self.newest[VNODE].to_numpy()
        return numbers

    def values(self, rows: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of some rows of `newest`, in no order."""
        if self.log is None:
            yield rows.select(list(columns))
        else:
            yield from self.log.stream(rows[PLACE].to_numpy(), columns)


@dataclass(frozen=True)
class SnapshotReader:
    """Reads slices of some vnodes at one pinned version. Values are as stored; `columns` must hold the key."""

    storage: Storage
    table: TableSchema
    files: ReplicaFiles

    def read(self, item: Slice, columns: Sequence[str], overlay: Overlay) -> Iterator[pa.Table]:
        """The slice's rows in some tables of these columns, each key once, in no particular order.

        `overlay` is what `overlay(...)` gave for a set of vnodes that holds the slice's, and for these columns.
        """
        changed = self._in_range(overlay.of(item.part), item)
        for file in self.files.base.get(item.part, ()):
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
        names = list(dict.fromkeys([VNODE, OP, OFFSET, *keys, *columns]))
        if not self.files.log or not vnodes:
            return Overlay(self._schema(names).empty_table())
        wanted = pc.field(VNODE).isin(sorted(vnodes)) & (pc.field(EPOCH) > self.files.compacted_epoch)
        if set(columns) <= set(keys) or self.files.log_bytes_of(vnodes) <= HELD_BYTES:
            paths = [file.path for file in self.files.log]
            return Overlay(self._newest(self._scan(LOG_PATH, paths, names, wanted)))
        names = [VNODE, EPOCH, OP, OFFSET, *keys]
        log = FileRows(
            self.storage, [(LOG_PATH, file.path) for file in self.files.log], self._schema([*names, *columns])
        )
        found = [log.find(number, names, wanted) for number in range(len(self.files.log))]
        return Overlay(self._newest(pa.concat_tables(found)), log)

    def _newest(self, rows: pa.Table) -> pa.Table:
        keys = list(self.table.primary_key)
        order = sort_order([*arrays(rows, [VNODE, *keys, OFFSET])])
        rows = rows.take(order).combine_chunks()
        starts = changes_of_key(arrays(rows, [VNODE, *keys]))
        newest = np.append(starts[1:], True) if len(starts) else starts
        return rows.filter(pa.array(newest))

    def base_keys(self, file: BaseFile) -> list[pa.Array]:
        """The key columns of a base file, in key order."""
        names = list(self.table.primary_key)
        return arrays(self._scan(BASE_PATH, [file.path], names, None), names)

    def _base_rows(self, file: BaseFile, item: Slice, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Rows that may be in the slice. A file above `HELD_BYTES` (of an old state) is read by row groups."""
        wanted = self._pushdown(item)
        if raw_bytes(file) <= HELD_BYTES:
            yield self._scan(BASE_PATH, [file.path], list(columns), wanted)
        else:
            rows = FileRows(self.storage, [(BASE_PATH, file.path)], self._schema(columns))
            yield from rows.read(0, columns, wanted)

    def _scan(
        self, root: str, paths: Sequence[str], columns: list[str], wanted: pc.Expression | None
    ) -> pa.Table:
        schema = self._schema([*columns, *self.table.primary_key, VNODE, EPOCH])
        return self.storage.read_parquet(root, paths, schema, columns=columns, wanted=wanted)

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


class SliceCutter:
    """Finds the ends of slices from the keys in base files, and from the log where the base has nothing.

    Where there is a base, the log's rows in a range are not counted, for they are a bounded share of it; their bytes
    are, as if spread evenly. Budgets below `exact_below` rows count the log's rows as well, so that a tight rate limit
    is kept to the row. Larger budgets are exceeded by up to the share `little` where that finishes the vnode: the rest
    would need a batch of its own.
    """

    exact_below = 1_000
    little = 0.1
    kept_bytes = 32 << 20
    _small_log = 200_000

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader
        self._base_keys: dict[tuple[str, ...], list[tuple[BaseFile, list[pa.Array]]]] = {}
        self._small_overlay: Overlay | None = None

    def use(self, reader: SnapshotReader) -> None:
        """Go on with another pinned version; the cached keys of files that are in both stay."""
        self._reader, self._small_overlay = reader, None

    def cut(self, vnode: int, after: Key | None, limit: Amount) -> Cut:
        """The end of a slice of about `limit`, at least one row, behind `after`."""
        base = self._reader.files.base.get(vnode, ())
        if not base or limit.rows < self.exact_below:
            return self._cut_exactly(vnode, after, base, limit)
        more = 1 + self.little
        most = Amount(int(limit.rows * more), int(limit.size * more))
        if after is None and (rest := self._amount(base)).fits(most):
            return Cut(None, rest.rows, rest.size)
        files = [(_behind(keys, after), self._row_bytes(file)) for file, keys in self._keys_by_file(base)]
        rows = sum(len(keys[0]) for keys, _ in files)
        size = sum(int(len(keys[0]) * row_bytes) for keys, row_bytes in files)
        if Amount(rows, size).fits(most):
            return Cut(None, rows, size)
        return _cut_among(files, limit)

    def _row_bytes(self, file: BaseFile) -> float:
        """Mean bytes per row of a base file, with its share of the log's bytes."""
        files = self._reader.files
        return raw_bytes(file) / max(file.rows, 1) + files.log_bytes / max(files.base_rows, 1)

    def _amount(self, base: Sequence[BaseFile]) -> Amount:
        sizes = (int(file.rows * self._row_bytes(file)) for file in base)
        return Amount(sum(file.rows for file in base), sum(sizes))

    def _keys_by_file(self, base: Sequence[BaseFile]) -> list[tuple[BaseFile, list[pa.Array]]]:
        """Key columns of each file of a vnode, the files in key order; those of the vnodes asked for last are kept."""
        name = tuple(file.path for file in base)
        known = self._base_keys.pop(name, None)
        if known is None:
            read = [(file, self._reader.base_keys(file)) for file in base]
            columns = range(len(self._reader.table.primary_key))
            firsts = [pa.concat_arrays([keys[i].slice(0, 1) for _, keys in read]) for i in columns]
            known = [read[i] for i in sort_order(firsts).to_pylist()]
            self._forget_beyond(self.kept_bytes - _size(known))
        self._base_keys[name] = known
        return known

    def _forget_beyond(self, most_bytes: int) -> None:
        """Drop the least recently used keys, so that memory does not grow with the table."""
        kept = sum(map(_size, self._base_keys.values()))
        while self._base_keys and kept > most_bytes:
            kept -= _size(self._base_keys.pop(next(iter(self._base_keys))))

    def _cut_exactly(self, vnode: int, after: Key | None, base: Sequence[BaseFile], limit: Amount) -> Cut:
        files = self._reader.files
        row_bytes = (files.base_bytes + files.log_bytes) / max(files.rows, 1)
        if after is None and not base:
            rows = self._overlay(vnode).rows(vnode)
            if (whole := Amount(rows, int(rows * row_bytes))).fits(limit):
                return Cut(None, whole.rows, whole.size)
        return _cut_among([(self._all_keys(vnode, after, base), row_bytes)], limit)

    def _all_keys(self, vnode: int, after: Key | None, base: Sequence[BaseFile]) -> list[pa.Array]:
        names = self._reader.table.primary_key
        overlay = self._overlay(vnode).of(vnode)
        alive = overlay.filter(pc.not_equal(overlay[OP], Op.DELETE.value))
        sources = [arrays(alive, names)] + ([keys for _, keys in self._keys_by_file(base)] if base else [])
        behind = [_behind(keys, after) for keys in sources]
        merged = [pa.concat_arrays([keys[i] for keys in behind]) for i in range(len(names))]
        order = sort_order(merged)
        merged = [column.take(order) for column in merged]
        distinct = pa.array(changes_of_key(merged))
        return [column.filter(distinct) for column in merged]

    def _overlay(self, vnode: int) -> Overlay:
        """The log's newest rows, of this vnode at least; a small log is read once, as most walks ask for many."""
        names, files = self._reader.table.primary_key, self._reader.files
        if files.log_rows > self._small_log:
            return self._reader.overlay(frozenset({vnode}), names)
        if self._small_overlay is None:
            every = frozenset(range(self._reader.table.vnode_count))
            self._small_overlay = self._reader.overlay(every, names)
        return self._small_overlay


def _size(keys_by_file: list[tuple[BaseFile, list[pa.Array]]]) -> int:
    return sum(column.nbytes for _, keys in keys_by_file for column in keys)


def _behind(keys: list[pa.Array], after: Key | None) -> list[pa.Array]:
    if after is None or len(keys[0]) == 0:
        return keys
    mask = pa.array(within(keys, after, None))
    return [column.filter(mask) for column in keys]


def _cut_among(files: Sequence[tuple[list[pa.Array], float]], limit: Amount) -> Cut:
    """The cut among runs of keys in order, each with the bytes of its rows; at least one row."""
    taken, last = Amount(0, 0), None
    for keys, row_bytes in files:
        left = limit - taken
        fits = min(left.rows, int(left.size / row_bytes)) if row_bytes > 0 else left.rows
        count = min(len(keys[0]), max(fits, 0 if taken.rows else 1))
        if count:
            taken, last = taken + Amount(count, int(count * row_bytes)), key_at(keys, count - 1)
        if count < len(keys[0]):
            return Cut(last, taken.rows, taken.size)
    return Cut(None, taken.rows, taken.size)
