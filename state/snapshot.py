"""Snapshot read: the rows of a slice as of a pinned version, straight from its Parquet files.

State at barrier a = newest of (base row, log rows) per key in the slice's range:

    base files of the vnode ── range ── minus keys that the log knows ──┐
    log rows of the vnode ──── range ── newest per key ── not deleted ──┴─▶ rows

A slice costs what it reads: no table is opened, nothing is listed, files and row groups outside the range are
skipped by their statistics. Everything is whole Arrow columns; memory is one base file of the slice's vnode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.position import Key
from schemas.records import Op
from schemas.table import TableSchema
from state.columns import EPOCH, OFFSET, OP, VNODE
from state.order import arrays, changes_of_key, sort_order, within
from state.plan import Cut, Slice
from state.replica import BASE_PATH, LOG_PATH, BaseFile, ReplicaFiles
from state.storage import Storage


@dataclass(frozen=True)
class SnapshotReader:
    """Reads slices of some vnodes at one pinned version. Values are as stored; `columns` must hold the key."""

    storage: Storage
    table: TableSchema
    files: ReplicaFiles

    def read(self, item: Slice, columns: Sequence[str], overlay: pa.Table) -> Iterator[pa.Table]:
        """The slice's rows in a few tables of these columns, each key once, in no particular order.

        `overlay` is what `overlay(...)` gave for a set of vnodes that holds the slice's.
        """
        changed = self._in_range(overlay.filter(pc.equal(overlay[VNODE], item.vnode)), item)
        for file in self.files.base.get(item.vnode, ()):
            rows = self._in_range(self._base_rows(file, item, columns), item)
            rows = self._without(rows, changed)
            if rows.num_rows:
                yield rows
        alive = changed.filter(pc.not_equal(changed[OP], Op.DELETE.value))
        if alive.num_rows:
            yield alive.select(list(columns))

    def overlay(self, vnodes: frozenset[int], columns: Sequence[str]) -> pa.Table:
        """The newest log row of each key in these vnodes, deletes included, in key order within a vnode."""
        names = [VNODE, OP, OFFSET, *columns]
        if not self.files.log or not vnodes:
            return pa.table({name: pa.array([], type=self._type(name)) for name in names})
        keys = list(self.table.primary_key)
        wanted = pc.field(VNODE).isin(sorted(vnodes)) & (pc.field(EPOCH) > self.files.folded_epoch)
        rows = self._scan(LOG_PATH, [file.path for file in self.files.log], names, wanted)
        order = sort_order([*arrays(rows, [VNODE, *keys, OFFSET])])
        rows = rows.take(order).combine_chunks()
        starts = changes_of_key(arrays(rows, [VNODE, *keys]))
        newest = np.append(starts[1:], True) if len(starts) else starts
        return rows.filter(pa.array(newest))

    def base_keys(self, file: BaseFile) -> list[pa.Array]:
        """The key columns of a base file, in key order."""
        names = list(self.table.primary_key)
        return arrays(self._scan(BASE_PATH, [file.path], names, None), names)

    def _base_rows(self, file: BaseFile, item: Slice, columns: Sequence[str]) -> pa.Table:
        return self._scan(BASE_PATH, [file.path], list(columns), self._pushdown(item))

    def _scan(
        self, root: str, paths: Sequence[str], columns: list[str], wanted: pc.Expression | None
    ) -> pa.Table:
        schema = pa.schema([(name, self._type(name)) for name in self._needed(columns)])
        return self.storage.read_parquet(root, paths, schema, columns=columns, wanted=wanted)

    def _needed(self, columns: Sequence[str]) -> list[str]:
        return list(dict.fromkeys([*columns, *self.table.primary_key, VNODE, EPOCH]))

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

    The log's rows of a range ride along without being counted when there is a base: they are a bounded share of
    it. Small budgets (`exact_below`) count them too, so that a tight rate limit is kept to the row. Larger ones take
    along what would be left of a vnode, if it is a `little` share of them: it would need a batch of its own.
    """

    exact_below = 1_000
    little = 0.1
    kept_bytes = 32 << 20
    _small_log = 200_000

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader
        self._base_keys: dict[tuple[str, ...], list[list[pa.Array]]] = {}
        self._small_overlay: pa.Table | None = None

    def use(self, reader: SnapshotReader) -> None:
        """Go on with another pinned version; keys of files that are in both stay known."""
        self._reader, self._small_overlay = reader, None

    def cut(self, vnode: int, after: Key | None, limit: int) -> Cut:
        """The end of a slice of about `limit` rows (at least 1) behind `after`."""
        base = self._reader.files.base.get(vnode, ())
        if not base or limit < self.exact_below:
            keys = self._all_keys(vnode, after, base)
            return _cut_at(keys, limit)
        most, rows = limit * (1 + self.little), sum(file.rows for file in base)
        if after is None and rows <= most:
            return Cut(None, rows)
        files = [_behind(keys, after) for keys in self._keys_by_file(base)]
        rows = sum(len(behind[0]) for behind in files)
        if rows <= most:
            return Cut(None, rows)
        left = limit
        for behind in files:
            size = len(behind[0])
            if size >= left:
                return Cut(tuple(column[left - 1].as_py() for column in behind), limit)
            left -= size
        raise AssertionError("unreachable")

    def _keys_by_file(self, base: Sequence[BaseFile]) -> list[list[pa.Array]]:
        """Key columns of each file of a vnode, the files in key order; those of the vnodes asked for last are kept."""
        name = tuple(file.path for file in base)
        known = self._base_keys.pop(name, None)
        if known is None:
            read = [self._reader.base_keys(file) for file in base]
            firsts = [pa.concat_arrays([keys[i].slice(0, 1) for keys in read]) for i in range(len(read[0]))]
            known = [read[i] for i in sort_order(firsts).to_pylist()]
            self._forget_beyond(self.kept_bytes - _size(known))
        self._base_keys[name] = known
        return known

    def _forget_beyond(self, most_bytes: int) -> None:
        """Drop what was not asked for the longest time, so that memory does not grow with the table."""
        kept = sum(map(_size, self._base_keys.values()))
        while self._base_keys and kept > most_bytes:
            kept -= _size(self._base_keys.pop(next(iter(self._base_keys))))

    def _all_keys(self, vnode: int, after: Key | None, base: Sequence[BaseFile]) -> list[pa.Array]:
        names = self._reader.table.primary_key
        overlay = self._overlay(vnode)
        alive = overlay.filter(pc.not_equal(overlay[OP], Op.DELETE.value))
        sources = [arrays(alive, names)] + (self._keys_by_file(base) if base else [])
        behind = [_behind(keys, after) for keys in sources]
        merged = [pa.concat_arrays([keys[i] for keys in behind]) for i in range(len(names))]
        order = sort_order(merged)
        merged = [column.take(order) for column in merged]
        distinct = pa.array(changes_of_key(merged))
        return [column.filter(distinct) for column in merged]

    def _overlay(self, vnode: int) -> pa.Table:
        """The log's newest rows in a vnode; a small log is read once for all vnodes, as most walks ask for many."""
        names, files = self._reader.table.primary_key, self._reader.files
        if files.log_rows > self._small_log:
            return self._reader.overlay(frozenset({vnode}), names)
        if self._small_overlay is None:
            every = frozenset(range(self._reader.table.vnode_count))
            self._small_overlay = self._reader.overlay(every, names)
        return self._small_overlay.filter(pc.equal(self._small_overlay[VNODE], vnode))


def _size(keys_by_file: list[list[pa.Array]]) -> int:
    return sum(column.nbytes for keys in keys_by_file for column in keys)


def _behind(keys: list[pa.Array], after: Key | None) -> list[pa.Array]:
    if after is None or len(keys[0]) == 0:
        return keys
    mask = pa.array(within(keys, after, None))
    return [column.filter(mask) for column in keys]


def _cut_at(keys: list[pa.Array], limit: int) -> Cut:
    size = len(keys[0])
    if size <= limit:
        return Cut(None, size)
    return Cut(tuple(column[limit - 1].as_py() for column in keys), limit)
