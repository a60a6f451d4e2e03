"""Brings a lane's store to the barrier that a batch starts from: by the log, or rebuilt from the replica.

The store only ever takes in what the log holds, so it is never ahead of the state: a batch that came to nothing, or is
run again, finds it where it was. It may be behind (another process had the lane, or no job asked for rows), gone, or of
a state that was replaced by an older one; what the log can't bridge is read anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas.formats.protocol import KeyEncoder
from schemas.records import Op
from schemas.table import TableSchema
from state.columns import EPOCH, OP
from state.replica import ReplicaFiles
from state.storage import Storage
from state.values.plan import Slice
from streaming.lane.before.normal import Written
from streaming.lane.before.store import RowStore
from streaming.scan.snapshot import SnapshotReader

_ROWS_AT_ONCE = 100_000
_VNODES_AT_ONCE = 16
"""The log is read once for so many of them; its keys in them are held."""


@dataclass(frozen=True, slots=True)
class Replicated:
    """The replica as of a plan's start, of some vnodes; `keys` writes a key as the store has it."""

    storage: Storage
    table: TableSchema
    files: ReplicaFiles
    vnodes: Sequence[int]
    keys: KeyEncoder

    @property
    def _columns(self) -> list[str]:
        return list(self.table.column_names)

    def since(self, epoch: int) -> Written | None:
        """The result of the changes after a barrier; None where the log no longer has them all."""
        files = self.files.since(epoch)
        if files is None:
            return None
        reader = SnapshotReader(self.storage, self.table, files)
        overlay = reader.overlay(frozenset(self.vnodes), self._columns)
        newest = overlay.newest
        alive = newest.filter(pc.not_equal(newest[OP], Op.DELETE.value))
        gone = newest.filter(pc.equal(newest[OP], Op.DELETE.value))
        rows = pa.concat_tables(overlay.values(alive, self._columns)) if alive.num_rows else alive
        return Written(*self._written(rows), self._keys_of(gone))

    def behind(self, epoch: int) -> Written | None:
        """The result of changes in the log that are newer than `epoch`: finished parts of an unfinished interval."""
        is_ahead = any(file.bounds[EPOCH][1] > epoch for file in self.files.log)
        return self.since(epoch) if is_ahead else None

    def rows(self) -> Iterator[Written]:
        """Every row, some at a time."""
        reader = SnapshotReader(self.storage, self.table, self.files)
        for first in range(0, len(self.vnodes), _VNODES_AT_ONCE):
            vnodes = self.vnodes[first : first + _VNODES_AT_ONCE]
            overlay = reader.overlay(frozenset(vnodes), self._columns)
            for vnode in vnodes:
                for rows in reader.read(Slice(vnode, None, None), self._columns, overlay):
                    yield from self._some_at_a_time(rows)

    def _some_at_a_time(self, rows: pa.Table) -> Iterator[Written]:
        for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
            yield Written(*self._written(rows.slice(start, _ROWS_AT_ONCE)), pa.array([], pa.binary()))

    def _written(self, rows: pa.Table) -> tuple[pa.Array, tuple[pa.Array, ...]]:
        return self._keys_of(rows), tuple(_whole(rows, name) for name in self._columns)

    def _keys_of(self, rows: pa.Table) -> pa.Array:
        return self.keys([_whole(rows, name) for name in self.table.primary_key])


def _whole(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def bring(store: RowStore, replicated: Replicated, epoch: int) -> bool:
    """Bring the store to a barrier, that of the replica's files. True if it was made anew.

    Another process may do the same at the same time: each step is taken by one of them.
    """
    at = store.epoch
    if at is not None and at < epoch:
        news = replicated.since(at)
        if news is not None:
            store.write(news, after=at, epoch=epoch)
    if store.epoch == epoch:
        return False
    with store.alone():
        if store.epoch != epoch:
            store.clear()
            for rows in replicated.rows():
                store.fill(rows)
            store.write(_nothing(replicated.table), after=None, epoch=epoch)
    return True


def _nothing(table: TableSchema) -> Written:
    empty = pa.array([], pa.binary())
    return Written(empty, tuple(pa.array([], column.type.arrow) for column in table.columns), empty)
