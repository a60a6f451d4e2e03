"""Suspended tables that get one thing wrong: what the journal keeps of a fault, of requests, and of decisions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from schemas.errors import BackfillError
from state.journal import Journal
from state.values.last_end import EndKind, FaultReport, LastEnd
from state.values.plan import BatchPlan, JobState
from streaming.protocol.bad_records import BadRecords
from streaming.protocol.batches import Batches
from streaming.protocol.effects import Effect, journaled
from streaming.protocol.executor import Done, Executor
from streaming.service.suspension import Decisions, Suspension
from tests.simulation.suspending import Suspending


class _WritesNoDecision(Executor):
    def _changed(self, plan: BatchPlan, done: Done) -> tuple[Effect, ...]:
        done.plan = plan
        return journaled(self.effects_of(plan))


class KeepsDecisionsInMemory(Batches):
    """The lanes leave a record out by a plan that is not in the journal."""

    executor_type = _WritesNoDecision


class LeavesOutAll(Suspending):
    """From the first repeated fault on, every record of a process counts as named."""

    def bad_records(self) -> BadRecords:
        """All faulty records from the first repeated fault on; until then those of its decisions."""
        is_repeated = any(end.times > 1 for end in self.ends)
        return BadRecords(
            "up", self.arrivals.changelog.faulty if is_repeated else self.decisions.skip_records
        )


class DropsAgain(Decisions):
    """A job that was dropped is dropped by every further run of the process."""

    def batch_done(self, jobs: Iterable[JobState]) -> None:
        dropped = self.dropped
        super().batch_done(jobs)
        self.dropped = dropped


class ReadsFromTheBeginning(Suspension):
    """Each process reads all requests, those that were acted on, too."""

    def begin(self, journal: Journal, fault: BackfillError, epoch: int) -> LastEnd:
        at_ms = self._clock()
        end = LastEnd(EndKind.SUSPENDED, self._owner, at_ms, at_ms, epoch, FaultReport.from_error(fault))
        end = replace(end.after(journal.last_end), requests_from=self.next_offset)
        journal.write_end(end)
        return end


class CountsAnew(Suspension):
    """A repeated fault is taken for a first one."""

    def begin(self, journal: Journal, fault: BackfillError, epoch: int) -> LastEnd:
        end = super().begin(journal, fault, epoch)
        end = replace(end, since_ms=end.at_ms, times=1)
        journal.write_end(end)
        return end


class EndsAgain(Suspension):
    """The end of a process that was asked for is found by the next one."""

    def settle(self, journal: Journal, end: LastEnd) -> None:
        """Nothing."""
