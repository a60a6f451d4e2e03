"""Drivers that get one thing wrong: plan, log, progress, mutations, or what they believe of a rival."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from schemas.errors import CommitConflict
from state.journal import PATH as JOURNAL_PATH
from state.journal import Entry, Journal
from state.plan import BatchPlan
from state.progress_table import PATH as PROGRESS_PATH
from state.progress_table import ProgressRow, ProgressTable
from state.replica import LOG_PATH, Replica
from state.storage import DataFile
from streaming.lane.task import LaneResult, LaneTask
from streaming.service.batches import Batches
from streaming.service.report import BatchReport
from tests.simulation.instance import Instance
from tests.simulation.storage import MemoryStorage, MemoryTable

# 1 Plan ----------------------------------------------------------------------------------------------------


class KeepsPlan(Journal):
    def write_plan(self, plan: BatchPlan) -> None:
        assert self._current is not None
        self._current = replace(self._current, plan=plan)


class WritesPlanLate(Batches):
    """Behind the lanes, where it still comes before log and progress."""

    def _run_lanes(self, plan: BatchPlan) -> tuple[BatchPlan, list[LaneResult]]:
        done = super()._run_lanes(plan)
        Journal.write_plan(self._journal, done[0])
        return done


class PlansAnew(Batches):
    """What is half done is begun again, as if it were new."""

    def recover(self) -> BatchReport | None:
        entry = self._journal.current
        plan = None if entry is None else entry.plan
        if plan is None or self._progress_table.epoch >= plan.epoch:
            return super().recover()
        self.jobs = tuple(job.state for job in plan.jobs)
        self.progress = {job.name: self._progress_table.load(job.name, job.start) for job in self.jobs}
        self.position = plan.start
        return None


class ReadsNewest(Batches):
    """Slices are read from the newest replica in place of the pinned one."""

    def _task(self, plan: BatchPlan) -> LaneTask:
        return replace(super()._task(plan), files=self.replica.files(self.replica.pin()))


# 3 Replicate -----------------------------------------------------------------------------------------------


class AppendsAlways(Replica):
    def append(self, files: Sequence[DataFile], epoch: int) -> None:
        self.log.commit([file for file in files if file.rows], epoch=max(epoch, self.log_epoch))


class UnboundLog(Batches):
    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.replica = AppendsAlways(self._storage, self._table)


# 4 Progress ------------------------------------------------------------------------------------------------


class EarlyMark(ProgressTable):
    """Knows a batch as done from `mark` on; its rows may come later."""

    def mark(self, epoch: int) -> None:
        if epoch > self.epoch:
            self._ledger.commit([], epoch=epoch)

    def commit(self, rows: Sequence[ProgressRow], epoch: int) -> None:
        if rows:
            self._ledger.commit([self._write(self._to_arrow(rows, epoch))], epoch=epoch)


class MarksFirst(Batches):
    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._early = self._progress_table = EarlyMark(self._storage, self._table)

    def _run_lanes(self, plan: BatchPlan) -> tuple[BatchPlan, list[LaneResult]]:
        self._commit(partial(self._early.mark, plan.epoch), self._early.reload)
        return super()._run_lanes(plan)


class ProgressBeforeLog(Batches):
    _waiting: Callable[[], None] | None = None

    def _commit(self, effect: Callable[[], None], reload: Callable[[], None]) -> None:
        if self._waiting is None:
            self._waiting = partial(super()._commit, effect, reload)
            return
        super()._commit(effect, reload)
        waiting, self._waiting = self._waiting, None
        waiting()


class UnboundProgress(ProgressTable):
    def commit(self, rows: Sequence[ProgressRow], epoch: int) -> None:
        added = [self._write(self._to_arrow(rows, epoch))] if rows else []
        self._ledger.commit(added, epoch=max(epoch, self.epoch))


class ProgressTwice(Batches):
    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._progress_table = UnboundProgress(self._storage, self._table)


# 5 Mutations -----------------------------------------------------------------------------------------------


class ForgetsMutations(Batches):
    """Those of a batch that was done before the restart."""

    def recover(self) -> BatchReport | None:
        report = super().recover()
        entry = self._journal.current
        if report is None and entry is not None and entry.plan is not None:
            self.jobs = tuple(replace(job.state, opened=True) for job in entry.plan.jobs)
        return report


# rivals ----------------------------------------------------------------------------------------------------


class TakesNothingOver(Journal):
    """Goes on in the name of the owner before."""

    def take_over(self, owner: str, lanes: int, table_json: str) -> Entry | None:
        return self._current or super().take_over(owner, lanes, table_json)


class OpensProgressLast(Batches):
    """So it may see the predecessor's last progress and not his last log."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._progress_table = ProgressTable(self._storage, self._table)


class TakesConflictForSuccessor(Batches):
    def _commit(self, effect: Callable[[], None], reload: Callable[[], None]) -> None:
        try:
            effect()
        except CommitConflict as conflict:
            raise self._journal.fenced() from conflict


class BlindRetry(MemoryTable):
    """Commits on top of whatever is there."""

    def create_write_transaction(self, *actions: Any, **rest: Any) -> None:
        self.update_incremental()
        super().create_write_transaction(*actions, **rest)


class _BlindStorage(MemoryStorage):
    blind_path = ""

    def delta(self, path: str, *, version: int | None = None) -> MemoryTable:  # type: ignore[override]  # as its base
        table = super().delta(path, version=version)
        return BlindRetry(self, path, version) if path == self.blind_path else table


class BlindJournal(_BlindStorage):
    blind_path = JOURNAL_PATH


class BlindLog(_BlindStorage):
    blind_path = LOG_PATH


class BlindProgress(_BlindStorage):
    blind_path = PROGRESS_PATH


class FencesNobody(Instance):
    def fence(self, prefix: str, lanes: int) -> None:
        """Nobody."""
