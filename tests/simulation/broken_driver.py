"""Drivers that get one thing wrong: plan, log, progress, mutations, or what they believe of a rival."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.errors import CommitConflict
from schemas.job import JobDefinition
from state.journal import PATH as JOURNAL_PATH
from state.journal import Entry, Journal
from state.progress_table import PATH as PROGRESS_PATH
from state.progress_table import ProgressRow, ProgressTable
from state.replica import LOG_PATH, Replica, ReplicaFiles
from state.storage import DataFile
from state.values.aligned import Pin, ReplicaVersion
from state.values.plan import BatchPlan
from state.values.progress import InProgress, Progress
from state.values.seen import Marks, merged
from streaming.protocol.batches import Batches
from streaming.protocol.effects import AppendLog, CommitProgress, Effect, RunLanes, WritePlan
from streaming.protocol.executor import Done, Executor
from streaming.protocol.planner import Planner
from streaming.protocol.recovery.recover import Recovery
from streaming.protocol.report import BatchReport
from streaming.scan.kinds import PinnedTopic, Scan, Scans, SourceBackfill
from streaming.source.decoded import Changes
from tests.simulation.instance import Instance
from tests.simulation.storage import MemoryStorage, MemoryTable


def behind(effects: Sequence[Effect], kind: type[Effect], other: type[Effect]) -> tuple[Effect, ...]:
    """The effects with those of a kind behind the other one."""
    moved = [effect for effect in effects if isinstance(effect, kind)]
    rest = [effect for effect in effects if not isinstance(effect, kind)]
    return tuple(each for effect in rest for each in (effect, *(moved if isinstance(effect, other) else ())))


# 1 Plan ----------------------------------------------------------------------------------------------------


class WritesPlanLate(Batches):
    """Behind the lanes, where it still comes before log and progress."""

    def effects_of(self, plan: BatchPlan) -> tuple[Effect, ...]:
        return behind(super().effects_of(plan), WritePlan, RunLanes)


class _FinishesNothing(Recovery):
    def finish(self, plan: BatchPlan) -> tuple[Effect, ...]:
        return ()


class PlansAnew(Batches):
    """Begins an unfinished batch again, as if it were new."""

    recovery_type = _FinishesNothing


class _KnowsOnlyTheNewest(Replica):
    def files(self, version: ReplicaVersion) -> ReplicaFiles:
        return super().files(self.pin())


class ReadsNewest(Batches):
    """Slices are read from the newest replica in place of the pinned one."""

    replica_type = _KnowsOnlyTheNewest


class _CoversOneMore(PinnedTopic):
    def covered(self, changes: Changes, progress: Mapping[int, Progress]) -> npt.NDArray[np.bool_]:
        further = {
            part: replace(state, position=(state.position[0] + 1,))
            if isinstance(state, InProgress)
            else state
            for part, state in progress.items()
        }
        return super().covered(changes, further)


class _OneTooFar(SourceBackfill):
    def pinned(self, pin: Pin, parts: frozenset[int]) -> PinnedTopic:
        return _CoversOneMore(len(pin.offsets))


class _ScansTooFar(Scans):
    def scan_for(self, job: JobDefinition) -> Scan:
        log = self._sources.log
        return _OneTooFar(log) if job.scan.reads_upstream and log is not None else super().scan_for(job)


class SendsOneRecordMore(Batches):
    """The record at a position counts as covered, though the slice ends before it."""

    scans_type = _ScansTooFar


# 3 Replicate -----------------------------------------------------------------------------------------------


class _AppendsAlways(Replica):
    def append(self, files: Sequence[DataFile], epoch: int, seen: Marks | None = None) -> None:
        self.log.commit([file for file in files if file.rows], epoch=max(epoch, self.log_epoch))

    def holds(self, plan: BatchPlan) -> bool:
        return False


class UnboundLog(Batches):
    replica_type = _AppendsAlways


class _ForgetsParts(Replica):
    def append_part(self, files: Sequence[DataFile], records: int, seen: Marks | None = None) -> None:
        self.log.commit([file for file in files if file.rows], epoch=None, records=records)

    def holds(self, plan: BatchPlan) -> bool:
        return plan.until is None and super().holds(plan)


class AppendsPartsAgain(Batches):
    replica_type = _ForgetsParts


class RemembersMarks(Replica):
    """Knows other marks than it commits, until it is opened once more."""

    known: Marks | None = None

    @property
    def seen(self) -> Marks | None:
        return super().seen if self.known is None else self.known

    def append(self, files: Sequence[DataFile], epoch: int, seen: Marks | None = None) -> None:
        super().append(files, epoch, self.committed())
        self.known = seen

    def append_part(self, files: Sequence[DataFile], records: int, seen: Marks | None = None) -> None:
        super().append_part(files, records, self.committed())
        self.known = seen

    def committed(self) -> Marks | None:
        return {}


class CommitsNoMarks(Batches):
    """Keeps marks of the upstream in the memory of the process alone."""

    replica_type = RemembersMarks


class _CommitsOldMarks(RemembersMarks):
    def committed(self) -> Marks:
        return self.seen or {}


class CommitsMarksLate(Batches):
    """Commits marks with the next batch."""

    replica_type = _CommitsOldMarks


class _ReadsOnceMore(Recovery):
    def go_on_behind(self, plan: BatchPlan) -> None:
        super().go_on_behind(plan)
        executor = self.executor
        if plan.reading is None:
            results = executor.attempts.run_lanes(replace(plan, silent=True), {}).results
            executor.state.seen = merged(plan.seen, (result.seen for result in results))


class ReadsDoneBatches(Batches):
    """A restart looks what was seen in the last batch, though it is done."""

    recovery_type = _ReadsOnceMore


class BuildsFromTheBeginning(Batches):
    """A restart does not know how far the interval was built."""

    def recover(self) -> BatchReport | None:
        report = super().recover()
        self.state.built = None
        return report


# 4 Progress ------------------------------------------------------------------------------------------------


class _EarlyMark(ProgressTable):
    """Knows a batch as done from `mark` on; its rows may come later."""

    def mark(self, epoch: int) -> None:
        if epoch > self.epoch:
            self._ledger.commit([], epoch=epoch)

    def commit(
        self, rows: Sequence[ProgressRow], epoch: int, starts: Mapping[str, int] | None = None
    ) -> None:
        if rows:
            self._ledger.commit([self._write(self._to_arrow(rows, epoch))], epoch=epoch)


class _MarksBeforeLanes(Executor):
    def perform(self, effect: Effect, left: tuple[Effect, ...], done: Done) -> tuple[Effect, ...]:
        if isinstance(effect, RunLanes):
            table, epoch = self.progress_table, effect.plan.epoch
            assert isinstance(table, _EarlyMark)
            self.commit(lambda: table.mark(epoch), table.reload)
        return super().perform(effect, left, done)


class MarksFirst(Batches):
    progress_type = _EarlyMark
    executor_type = _MarksBeforeLanes


class ProgressBeforeLog(Batches):
    def effects_of(self, plan: BatchPlan) -> tuple[Effect, ...]:
        effects = super().effects_of(plan)
        commits = any(isinstance(effect, CommitProgress) for effect in effects)
        return behind(effects, AppendLog, CommitProgress) if commits else effects


class _DoneWithItsLog(Recovery):
    def is_done(self, plan: BatchPlan) -> bool:
        return self.executor.replica.log_epoch >= plan.epoch


class ReadsAndIsDoneWithItsLog(Batches):
    recovery_type = _DoneWithItsLog


class _LacksNothing(Recovery):
    def lacks_progress(self, plan: BatchPlan) -> bool:
        return False


class LeavesProgressBehind(Batches):
    recovery_type = _LacksNothing


class _UnboundProgress(ProgressTable):
    def commit(
        self, rows: Sequence[ProgressRow], epoch: int, starts: Mapping[str, int] | None = None
    ) -> None:
        added = [self._write(self._to_arrow(rows, epoch))] if rows else []
        self._ledger.commit(added, epoch=max(epoch, self.epoch))


class ProgressTwice(Batches):
    progress_type = _UnboundProgress


# 5 Mutations -----------------------------------------------------------------------------------------------


class _SettlesNothing(Recovery):
    def go_on_behind(self, plan: BatchPlan) -> None:
        super().go_on_behind(plan)
        self.executor.state.jobs = tuple(replace(job.state, opened=True) for job in plan.jobs)


class ForgetsMutations(Batches):
    """Forgets mutations of a batch that was done before the restart."""

    recovery_type = _SettlesNothing


class _ResumesAll(Recovery):
    def go_on_behind(self, plan: BatchPlan) -> None:
        super().go_on_behind(plan)
        self.executor.state.jobs = tuple(replace(job, paused=False) for job in self.executor.state.jobs)


class ForgetsPauses(Batches):
    """Jobs that were paused go on after a hand-over."""

    recovery_type = _ResumesAll


class _PausesNothing(Planner):
    def _pause_at_start(self, epoch: int) -> None:
        """Nothing, though the start asks for it."""


class ReadsThoughPaused(Batches):
    planner_type = _PausesNothing


# rivals ----------------------------------------------------------------------------------------------------


class TakesNothingOver(Journal):
    """Goes on in the name of the owner before."""

    def take_over(self, owner: str, table_json: str, *_: object) -> Entry | None:
        return self._current or super().take_over(owner, table_json)


class _BelievesInSuccessors(Executor):
    def commit(self, effect: Callable[[], None], reload: Callable[[], None]) -> None:
        try:
            effect()
        except CommitConflict as conflict:
            raise self.setup.journal.fenced() from conflict


class TakesConflictForSuccessor(Batches):
    executor_type = _BelievesInSuccessors


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
