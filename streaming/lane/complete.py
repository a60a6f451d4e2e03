"""Completion of valid changes that lack something, as some upstreams send them, before they are sent and logged.

Redelivered records are left out, and so is what does not apply while the table is read; values that a record leaves out
are filled in, and each change gets the row before it.

While the table is read from its database, those changes of a part that apply go on, to be sent and logged. At the end
of the batch come the rows of the chunks that it releases, as of its barrier: INSERTs of the log, of the epoch of the
barrier. No job gets them as changes, as no position has come to their keys: slices end where the table was released
before the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.error_table import expectation
from schemas.errors import Code
from schemas.formats.registry import DEFAULT
from schemas.records import Op, RecordId
from schemas.table import TableSchema
from state.columns import (
    LEFT_OUT,
    OFFSET,
    OP,
    PARTITION,
    TRANSACTION,
    VNODE,
    as_inserts,
    log_schema,
    waiting_schema,
)
from state.initial.chunks import staged_rows, vnodes_of, waiting_rows
from state.storage import DataFile, Storage
from state.values.arrays import arrays
from state.values.reading import Reading
from state.values.seen import LaneSeen
from streaming.core.chunk_events import NO_TRANSACTION, ChunkEvents, Verdict, folded, verdicts, widened_each
from streaming.lane.before.lookup import RowsBefore, rows_before_of
from streaming.lane.before.normal import Unavailable, leaves_out
from streaming.lane.changes import moved_in_order
from streaming.lane.faults import Fault
from streaming.lane.frames import FramesSeen
from streaming.lane.redelivered import RedeliveryFilter
from streaming.lane.task import Lack, LaneTask, UndoneError
from streaming.source.decoded import UNCHANGED, Changes

ROWS_AT_ONCE = 200_000
"""Rows of chunks, about, that are brought into the log at a time."""


@dataclass
class LaneReading:
    """A lane's reading in a batch: call it with each part of the changes, in order, read `released`, then `waiting`.

    `files` are those of the events that wait, of the version that the reading names. `skipped` are records, (partition,
    offset), that are left out, among the waiting events as well.
    """

    storage: Storage
    table: TableSchema
    reading: Reading
    files: Sequence[DataFile]
    vnodes: range
    epoch: int
    skipped: frozenset[RecordId] = frozenset()
    _folds: list[pa.Table] = field(default_factory=list, init=False)
    _waits: list[pa.Table] = field(default_factory=list, init=False)
    held: int = field(default=0, init=False)
    """Events that the rows of chunks hold already."""
    released_rows: int = field(default=0, init=False)
    """Rows of chunks, as of the barrier."""
    lacking: list[Unavailable] = field(default_factory=list, init=False)

    @property
    def is_anew(self) -> bool:
        """True if `waiting` is all that waits instead of only what has arrived: chunks are released."""
        return self.reading.due > 0

    def __call__(self, changes: Changes) -> Changes:
        """The changes that apply. Input must be valid, without redelivered records, and have transaction ids."""
        given = changes.rows[TRANSACTION].fill_null(NO_TRANSACTION).to_numpy()
        transactions = widened_each(given, self.reading.read.near)
        found = verdicts(self.reading.read, self.reading.due, changes.keys, transactions)
        kept = np.isin(found, (Verdict.FOLDS, Verdict.WAITS))
        if kept.any():
            self._keep(_events(changes.filtered(kept), transactions[kept], self.table), found[kept])
        self.held += int(np.count_nonzero(found == Verdict.HELD))
        applies = found == Verdict.APPLIES
        return changes if applies.all() else changes.filtered(applies)

    def _keep(self, events: pa.Table, found: npt.NDArray[np.int8]) -> None:
        self._folds.append(events.filter(pa.array(found == Verdict.FOLDS)))
        self._waits.append(events.filter(pa.array(found == Verdict.WAITS)))

    def released(self) -> Iterator[pa.Table]:
        """The rows of the released chunks, as rows of the log, some at a time. Call once, behind the last part.

        `lacking` is complete afterwards. Raises: StateError when files of the state are gone.
        """
        if not self.is_anew:
            return
        self._look_at_waiting()
        folds, files = self._together(self._folds), self.reading.due_files
        for vnodes in self._groups():
            stored = staged_rows(self.storage, self.table, files, vnodes).drop_columns([VNODE])
            numbers = folds[VNODE].to_numpy()
            events = folds.filter(pa.array((numbers >= vnodes.start) & (numbers < vnodes.stop)))
            rows = self._folded(stored, events)
            self.released_rows += rows.num_rows
            if rows.num_rows:
                vnodes_there = vnodes_of(rows, self.table)
                yield as_inserts(rows, vnodes_there, self.epoch, log_schema(self.table)).sort_by(VNODE)

    def waiting(self, least_bytes: int = 0) -> pa.Table:
        """The events that wait now (`waiting_schema`): all of them if `is_anew`, else those that have come since.

        Fewer than `least_bytes` are kept for the next call.
        """
        if sum(events.nbytes for events in self._waits) < least_bytes:
            return self._together(())
        waits, self._waits = self._waits, []
        return self._together(waits)

    def _look_at_waiting(self) -> None:
        events = self._read(waiting_rows(self.storage, self.table, self.files, self.vnodes))
        keys = arrays(events, self.table.primary_key)
        found = verdicts(self.reading.read, self.reading.due, keys, events[TRANSACTION].to_numpy())
        came_folds, came_waits = self._folds, self._waits
        self._folds, self._waits = [], []
        self._keep(events, found)
        self._folds += came_folds
        self._waits += came_waits
        self.held += int(np.count_nonzero(found == Verdict.HELD))

    def _read(self, events: pa.Table) -> pa.Table:
        """The events without those that are `skipped`."""
        if not self.skipped:
            return events
        places = zip(events[PARTITION].to_pylist(), events[OFFSET].to_pylist(), strict=True)
        return events.filter(pa.array([place not in self.skipped for place in places], pa.bool_()))

    def _together(self, tables: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables([waiting_schema(self.table).empty_table(), *tables]).combine_chunks()

    def _groups(self) -> Iterator[range]:
        """The lane's vnodes, so many at a time that their rows are not too many."""
        rows = sum(chunk.rows for chunk in self.reading.read.chunks[: self.reading.due])
        at_once = max(1, ROWS_AT_ONCE * self.table.vnode_count // max(rows, 1))
        for first in range(self.vnodes.start, self.vnodes.stop, at_once):
            yield range(first, min(first + at_once, self.vnodes.stop))

    def _folded(self, stored: pa.Table, events: pa.Table) -> pa.Table:
        parents = pc.list_parent_indices(events[LEFT_OUT]).to_numpy().astype(np.int64)
        columns = pc.list_flatten(events[LEFT_OUT]).to_numpy()
        left_out = {int(column): parents[columns == column] for column in np.unique(columns)}
        rows = events.select(list(self.table.column_names))
        found = folded(stored, ChunkEvents(events[OP].to_numpy(), rows, left_out), self.table.primary_key)
        for event in found.lacking.tolist():
            column = next(column for column, mine in left_out.items() if event in mine)
            self.lacking.append(
                Unavailable(events[PARTITION][event].as_py(), events[OFFSET][event].as_py(), column)
            )
        return found.rows


def _events(changes: Changes, transactions: npt.NDArray[np.int64], table: TableSchema) -> pa.Table:
    """Changes in the form in which they wait (`waiting_schema`)."""
    deleted = pa.array(changes.ops == Op.DELETE)
    halves = zip(changes.before, changes.after, strict=True)
    values = dict(zip(table.column_names, (pc.if_else(deleted, *each) for each in halves), strict=True))
    rows, count = changes.rows, len(changes)
    left_out = rows[UNCHANGED] if UNCHANGED in rows.column_names else pa.nulls(count, pa.list_(pa.int32()))
    own = {
        VNODE: pa.array(changes.vnodes, pa.int32()),
        PARTITION: rows[PARTITION],
        OFFSET: rows[OFFSET],
        OP: pa.array(changes.ops, pa.int8()),
        TRANSACTION: pa.array(transactions, pa.int64()),
        LEFT_OUT: left_out,
    }
    schema = waiting_schema(table)
    return pa.table({**own, **values}).select(schema.names).cast(schema)


@dataclass
class Completion:
    """Completes the changes of one lane in one batch; call it with each part, in order."""

    task: LaneTask
    rows_before: RowsBefore | None
    reading: LaneReading | None = None

    def __post_init__(self) -> None:
        self.redelivered = RedeliveryFilter(self.task.plan.seen, self.task.judgement)
        """Has seen nothing of a format whose records never come again."""
        self._frames = FramesSeen(self.task.table, self.task.plan.seen)

    @property
    def seen(self) -> dict[int, LaneSeen]:
        """The upstream's partitions behind the parts so far."""
        return self._frames.added_to(self.redelivered.seen)

    def __call__(self, changes: Changes) -> tuple[Changes, list[Fault]]:
        """The completed changes of a part, and invalid records that could not be detected before.

        Raises: UndoneError: Lack.ROWS_BEFORE where changes leave values out, and the task brought no rows to take them
            from; Lack.JUDGEMENT.
        """
        keys, since = DEFAULT.keys(self.task.table.key_columns), self.task.moves_from
        if self.task.upstream_format.comes_again:
            changes = self.redelivered(changes, changes.encoded_keys(keys))
        if lost := self._frames(changes):
            return changes, lost
        if since is not None:
            changes = moved_in_order(changes, since, changes.encoded_keys(keys))
        if self.reading is not None:
            changes = self.reading(changes)
        if self.rows_before is not None:
            made, unavailable = self.rows_before(changes)
            return made, [*map(self._fault, unavailable)]
        if leaves_out(changes):
            raise UndoneError(Lack.ROWS_BEFORE)
        return changes, []

    def lacking(self) -> list[Fault]:
        """Invalid events of released chunks, once their rows were read."""
        return [] if self.reading is None else [*map(self._fault, self.reading.lacking)]

    def _fault(self, lacking: Unavailable) -> Fault:
        code, name = Code.TOAST_UNAVAILABLE, self.task.table.columns[lacking.column].name
        found = "a value that the event leaves out, of a row that is not stored"
        return Fault(lacking.partition, lacking.offset, code, found, expectation(code, column=name))


@contextmanager
def completion_of(task: LaneTask, lane: int) -> Iterator[Completion]:
    """The completion of a lane, open until the block ends. Raises: as `rows_before_of`."""
    plan, reading = task.plan, None
    if plan.reading is not None:
        vnodes, skipped = task.vnodes(lane), frozenset(plan.skipped)
        reading = LaneReading(
            task.storage, task.table, plan.reading, task.waiting, vnodes, plan.epoch, skipped
        )
    with rows_before_of(task, lane) as rows_before:
        yield Completion(task, rows_before, reading)
