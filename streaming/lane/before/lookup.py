"""Gives a lane's changes their rows before, part by part of a batch.

The store stays at the barrier that the batch starts from: what the batch itself writes is kept aside, in a second store
in a scratch folder where a batch has several parts, and forgotten at its end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from schemas.epoch import NO_EPOCH
from schemas.formats.protocol import KeyEncoder
from schemas.formats.registry import DEFAULT
from schemas.table import TableSchema
from streaming.lane.before import rows_name
from streaming.lane.before.folder import explained, make_root
from streaming.lane.before.follow import Replicated, bring
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
from streaming.lane.changes import Changes
from streaming.lane.task import LaneTask

_ATTEMPTS = 3


class StoreMovedError(RuntimeError):
    """Another process works on the same lane, and keeps moving the store to other barriers."""


@dataclass
class RowsBefore:
    """A lookup for the changes of one lane in one batch, in order; see `open_rows_before`."""

    table: TableSchema
    keys: KeyEncoder
    view: View
    opened: ExitStack
    rows_folder: str | None = None
    _own: RowStore | None = field(default=None, init=False)
    _left: Written | None = field(default=None, init=False)

    def __call__(self, changes: Changes) -> tuple[Changes, tuple[Unavailable, ...]]:
        """The next changes as a legal changelog, and the values that they leave out and that are not stored."""
        if not len(changes):
            return changes, ()
        order = KeyOrder.of(changes.encoded_keys(self.keys))
        stored = self._stored(order.distinct)
        changes, unavailable = with_unchanged(changes, order, stored)
        made = normalised(changes, order, stored)
        self._left = written(changes, order)
        return made, unavailable

    def begin(self, earlier: Written | None) -> None:
        """Take in what parts of the interval that are in the log already leave behind."""
        self._left = earlier

    def _stored(self, keys: pa.Array) -> Stored:
        values = self.view.values(keys)
        if self._left is not None:  # a second part, or a later one
            self._keep(self._left)
            assert self._own is not None
            with self._own.at(None) as own:
                assert own is not None
                ours = own.values(keys)
            values = [old if new is None else new for old, new in zip(values, ours, strict=True)]
        return decoded(values, self.table)

    def _keep(self, rows: Written) -> None:
        if self._own is None:
            root = make_root(self.rows_folder)
            with explained(root):
                made = tempfile.TemporaryDirectory(prefix="backfill-rows-", dir=root)
            scratch = self.opened.enter_context(made)
            self._own = self.opened.enter_context(closing(LocalStore(Path(scratch) / "own", self.table)))
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
    start = task.plan.start
    with (
        closing(store),
        open_rows_before(store, replicated, start.epoch if start else NO_EPOCH) as rows_before,
    ):
        rows_before.rows_folder = task.rows_folder
        yield rows_before


@contextmanager
def open_rows_before(store: RowStore, replicated: Replicated, epoch: int) -> Iterator[RowsBefore]:
    """The rows of a lane's vnodes as of the barrier that its batch starts from (0: none yet).

    Raises: StoreMovedError.
    """
    with ExitStack() as opened:
        for _ in range(_ATTEMPTS):
            bring(store, replicated, epoch)
            view = opened.enter_context(store.at(epoch))
            if view is not None:
                rows_before = RowsBefore(replicated.table, replicated.keys, view, opened)
                rows_before.begin(replicated.behind(epoch))
                yield rows_before
                return
        raise StoreMovedError(f"a store of rows that is not at {epoch}")
