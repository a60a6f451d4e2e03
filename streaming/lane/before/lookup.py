"""Gives a lane's changes their rows before, part by part of a batch.

First the lane's store is brought to the barrier that the batch starts from: by the log, or rebuilt from the replica. It
only ever takes in what the log holds, so it is never ahead of the state: a batch that came to nothing, or is run again,
finds it where it was. It may be behind (another process had the lane, or no job asked for rows), gone, or of a state
that was replaced by an older one; what the log can't bridge is read anew.

There it stays: what the batch itself writes is kept aside, in a second store in a scratch folder where a batch has
several parts, and forgotten at its end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from schemas.epoch import NO_EPOCH
from schemas.formats.protocol import KeyEncoder
from schemas.formats.registry import DEFAULT
from schemas.records import Op
from schemas.table import TableSchema
from state.columns import EPOCH, OP
from state.replica import ReplicaFiles
from state.storage import Storage
from state.values.plan import Slice
from streaming.lane.before.folder import explained, make_root, rows_name
from streaming.lane.before.normal import (
    KeyOrder,
    Stored,
    Unavailable,
    Written,
    normalised,
    with_unchanged,
    written,
)
from streaming.lane.before.store import LocalStore, RowStore, View, decoded
from streaming.lane.task import LaneTask
from streaming.scan.snapshot import SnapshotReader
from streaming.source.decoded import Changes

_ROWS_AT_ONCE = 100_000
_VNODES_AT_ONCE = 16
"""The log is read once for so many of them; its keys in them are held."""
_ATTEMPTS = 3


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
        return replace(self._written(rows), gone=self._keys_of(gone))

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
                    for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
                        yield self._written(rows.slice(start, _ROWS_AT_ONCE))

    def _written(self, rows: pa.Table) -> Written:
        columns = tuple(rows[name].combine_chunks() for name in self._columns)
        return Written(self._keys_of(rows), columns, pa.array([], pa.binary()))

    def _keys_of(self, rows: pa.Table) -> pa.Array:
        return self.keys([rows[name].combine_chunks() for name in self.table.primary_key])


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


class StoreMovedError(RuntimeError):
    """Another process works on the same lane, and keeps moving the store to other barriers."""


@dataclass
class RowsBefore:
    """A lookup for the changes of one lane in one batch, in order; see `open_rows_before`."""

    replicated: Replicated
    view: View
    opened: ExitStack
    rows_folder: str | None
    left: Written | None
    """The result of what came before: of parts of the interval that are in the log already, at first."""
    _own: RowStore | None = field(default=None, init=False)

    def __call__(self, changes: Changes) -> tuple[Changes, tuple[Unavailable, ...]]:
        """The next changes as a legal changelog, and the values that they leave out and that are not stored."""
        if not len(changes):
            return changes, ()
        order = KeyOrder.of(changes.encoded_keys(self.replicated.keys))
        stored = self._stored(order.distinct)
        changes, unavailable = with_unchanged(changes, order, stored)
        made = normalised(changes, order, stored)
        self.left = written(changes, order)
        return made, unavailable

    def _stored(self, keys: pa.Array) -> Stored:
        values = self.view(keys)
        if self.left is not None:  # a second part, or a later one
            self._keep(self.left)
            assert self._own is not None
            with self._own.at(None) as own:
                assert own is not None
                ours = own(keys)
            values = [old if new is None else new for old, new in zip(values, ours, strict=True)]
        return decoded(values, self.replicated.table)

    def _keep(self, rows: Written) -> None:
        if self._own is None:
            root = make_root(self.rows_folder)
            with explained(root):
                made = tempfile.TemporaryDirectory(prefix="backfill-rows-", dir=root)
            scratch = self.opened.enter_context(made)
            self._own = self.opened.enter_context(
                closing(LocalStore(Path(scratch) / "own", self.replicated.table))
            )
        self._own.fill(rows)


@contextmanager
def rows_before_of(task: LaneTask, lane: int) -> Iterator[RowsBefore | None]:
    """The lookup that adds rows before to a lane's changes, in order; None where they have them, or need none.

    Raises: StoreMovedError; EnvironmentProblem where rows can't be kept, as `folder.own_folder`.
    """
    if task.replica is None:
        yield None
        return
    vnodes, keys = task.vnodes(lane), DEFAULT.keys(task.table.key_columns)
    replicated = Replicated(task.storage, task.table, task.replica.of_vnodes(vnodes), vnodes, keys)
    name = f"{rows_name(task.transactional_id)}/{vnodes.start}-{vnodes.stop}"
    store = task.open_store(name, task.table, task.rows_folder)
    epoch = task.plan.start.epoch if task.plan.start else NO_EPOCH
    with closing(store), open_rows_before(store, replicated, epoch, task.rows_folder) as rows_before:
        yield rows_before


@contextmanager
def open_rows_before(
    store: RowStore, replicated: Replicated, epoch: int, rows_folder: str | None = None
) -> Iterator[RowsBefore]:
    """The rows of a lane's vnodes as of the barrier that its batch starts from (0: none yet).

    Raises: StoreMovedError.
    """
    with ExitStack() as opened:
        for _ in range(_ATTEMPTS):
            bring(store, replicated, epoch)
            view = opened.enter_context(store.at(epoch))
            if view is not None:
                yield RowsBefore(replicated, view, opened, rows_folder, replicated.behind(epoch))
                return
        raise StoreMovedError(f"a store of rows that is not at {epoch}")
