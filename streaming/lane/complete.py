"""What sound changes lack, as they come from some upstreams, before they can be sent and logged.

What came again is left out, values that a record leaves out are filled in, and each change gets the row before it.
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
from streaming.lane.redelivered import Redelivered
from streaming.lane.task import LaneTask


class RowsNeededError(Exception):
    """Changes leave values out, and the task brought no rows to take them from. Nothing was sent."""


@dataclass
class Completion:
    """Of the changes of one lane in one batch; call it with each part, in order."""

    task: LaneTask
    rows_before: RowsBefore | None
    _redelivered: Redelivered | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.task.upstream_format.comes_again:
            self._redelivered = Redelivered(self.task.plan.seen)

    @property
    def seen(self) -> Mapping[int, LaneSeen]:
        """How far each upstream partition has come."""
        return {} if self._redelivered is None else self._redelivered.seen

    @property
    def redelivered(self) -> int:
        """How many records came again."""
        return 0 if self._redelivered is None else self._redelivered.count

    def __call__(self, changes: Changes) -> tuple[Changes, list[Fault]]:
        """The changes that a part amounts to, and the records at fault that only show now.

        Raises: RowsNeededError.
        """
        if self._redelivered is not None:
            keys = DEFAULT.keys(self.task.table.key_columns)
            changes = self._redelivered(changes, changes.encoded_keys(keys))
        if self.rows_before is not None:
            made, unavailable = self.rows_before(changes)
            return made, [self._fault(changes, each) for each in unavailable]
        if leaves_out(changes):
            raise RowsNeededError
        return changes, []

    def _fault(self, changes: Changes, lacking: Unavailable) -> Fault:
        column, code = self.task.table.columns[lacking.column].name, Code.TOAST_UNAVAILABLE
        found = "a value that the event leaves out, of a row that is not stored"
        partition, offset = (int(each[lacking.row]) for each in (changes.partitions, changes.offsets))
        return Fault(partition, offset, code, found, expectation(code, column=column))


@contextmanager
def completion_of(task: LaneTask, lane: int) -> Iterator[Completion]:
    """For a lane. Raises: as `rows_before_of`."""
    with rows_before_of(task, lane) as rows_before:
        yield Completion(task, rows_before)
