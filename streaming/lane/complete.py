"""Completion of valid changes that lack something, as some upstreams send them, before they are sent and logged.

Redelivered records are left out, and so is what does not apply while the table is read; values that a record leaves out
are filled in, and each change gets the row before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from schemas.error_table import expectation
from schemas.errors import Code
from schemas.formats.registry import DEFAULT
from state.values.seen import LaneSeen
from streaming.lane.before.lookup import RowsBefore, rows_before_of
from streaming.lane.before.normal import Unavailable, leaves_out
from streaming.lane.changes import Changes
from streaming.lane.faults import Fault
from streaming.lane.moved import moved_in_order
from streaming.lane.redelivered import RedeliveryFilter
from streaming.lane.task import LaneTask
from streaming.lane.waiting import LaneReading


class RowsNeededError(Exception):
    """Changes leave values out, and the task brought no rows to take them from. Nothing was sent."""


@dataclass
class Completion:
    """Completes the changes of one lane in one batch; call it with each part, in order."""

    task: LaneTask
    rows_before: RowsBefore | None
    reading: LaneReading | None = None
    _redelivered: RedeliveryFilter | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.task.upstream_format.comes_again:
            self._redelivered = RedeliveryFilter(self.task.plan.seen, self.task.judgement)

    @property
    def seen(self) -> Mapping[int, LaneSeen]:
        """The lane's progress in each upstream partition."""
        return {} if self._redelivered is None else self._redelivered.seen

    @property
    def redelivered(self) -> int:
        """The number of redelivered records."""
        return 0 if self._redelivered is None else self._redelivered.count

    def __call__(self, changes: Changes) -> tuple[Changes, list[Fault]]:
        """The completed changes of a part, and invalid records that could not be detected before.

        Raises: RowsNeededError, JudgementNeededError.
        """
        keys, since = DEFAULT.keys(self.task.table.key_columns), self.task.moves_from
        if self._redelivered is not None:
            changes = self._redelivered(changes, changes.encoded_keys(keys))
        if since is not None:
            changes = moved_in_order(changes, since, changes.encoded_keys(keys))
        if self.reading is not None:
            changes = self.reading(changes)
        if self.rows_before is not None:
            made, unavailable = self.rows_before(changes)
            return made, [self._unavailable(changes, each) for each in unavailable]
        if leaves_out(changes):
            raise RowsNeededError
        return changes, []

    def lacking(self) -> list[Fault]:
        """Invalid events of released chunks, once their rows were read."""
        found = () if self.reading is None else self.reading.lacking
        return [self._fault(each.partition, each.offset, each.column) for each in found]

    def _unavailable(self, changes: Changes, lacking: Unavailable) -> Fault:
        partition, offset = (int(each[lacking.row]) for each in (changes.partitions, changes.offsets))
        return self._fault(partition, offset, lacking.column)

    def _fault(self, partition: int, offset: int, column: int) -> Fault:
        code, name = Code.TOAST_UNAVAILABLE, self.task.table.columns[column].name
        found = "a value that the event leaves out, of a row that is not stored"
        return Fault(partition, offset, code, found, expectation(code, column=name))


@contextmanager
def completion_of(task: LaneTask, lane: int) -> Iterator[Completion]:
    """The completion of a lane, open until the block ends. Raises: as `rows_before_of`."""
    with rows_before_of(task, lane) as rows_before:
        yield Completion(task, rows_before, _reading_of(task, lane))


def _reading_of(task: LaneTask, lane: int) -> LaneReading | None:
    """None where the table is not read from its database."""
    plan = task.plan
    if plan.reading is None:
        return None
    skipped = frozenset(plan.skipped)
    return LaneReading(
        task.storage, task.table, plan.reading, task.waiting, task.vnodes(lane), plan.epoch, skipped
    )
