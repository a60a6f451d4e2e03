"""Executes effects, one after another, and passes the crash points between them.

An effect can change the plan: a topic can't be made, records are invalid, slices are too large. The journal then gets
the new plan before anything else is done, and the remaining effects are decided anew from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from schemas.errors import BackfillError, CommitConflict, EnvironmentProblem, Fenced, TopicError
from schemas.job import JobDefinition
from state.progress_table import ProgressTable
from state.replica import Replica
from state.values.plan import BatchPlan, JobState
from state.values.progress import Parts, Progress
from state.values.seen import merged
from streaming.core.jobs import JobsOutcome
from streaming.protocol.bad_records import without_parked
from streaming.protocol.effects import (
    AppendLog,
    CommitProgress,
    Effect,
    EndPart,
    KeepWaiting,
    OpenTopics,
    RepeatLanes,
    RunLanes,
    Settle,
    TakeProgress,
    WritePlan,
    behind,
    journaled,
    slot_of,
)
from streaming.protocol.lanes.attempts import ATTEMPTS, LaneAttempts, transactional_id
from streaming.protocol.lanes.redelivery import log_new_logs
from streaming.protocol.lanes.runner import Way
from streaming.protocol.recovery.steps import fenced_if_superseded
from streaming.protocol.report import Sums
from streaming.protocol.setup import BatchSetup
from streaming.protocol.stream_state import StreamState
from streaming.protocol.table_read import TableReading
from streaming.runtime import failpoints
from streaming.runtime.timing import Stopwatch
from streaming.sink.protocol import is_of_job


@dataclass
class Done:
    """Results of the effects so far. `plan` is the one that the journal holds now."""

    plan: BatchPlan
    clock: Stopwatch
    way: Way | None = None
    sums: Sums = field(default_factory=lambda: Sums(()))
    outcome: JobsOutcome = JobsOutcome(())  # noqa: RUF009 (a value)


@dataclass
class Executor:
    """The one writer of the state. `effects_of` gives the effects of a plan that was changed on the way."""

    setup: BatchSetup
    attempts: LaneAttempts
    replica: Replica
    progress_table: ProgressTable
    state: StreamState
    reading: TableReading
    effects_of: Callable[[BatchPlan], Sequence[Effect]]
    on_part: Callable[[BatchPlan], None] = lambda plan: None

    def execute(self, effects: Sequence[Effect], clock: Stopwatch) -> Done:
        """Execute these effects in the order given, and those that follow from a plan that they change.

        Raises: Fenced when another instance has taken over; TopicError for a job of the configuration that can't open:
        the journal has the plan without it by then.
        """
        done = Done(effects[0].plan, clock)
        left = deque(effects)
        while left:
            effect = left.popleft()
            slot = slot_of(effect)
            if slot.before is not None:
                failpoints.reach(slot.before)
            left = deque(self.perform(effect, tuple(left), done))
            clock.lap(slot.step)
            if not any(type(again) is type(effect) for again in left):
                failpoints.reach(slot.reached)
        return done

    def perform(self, effect: Effect, left: tuple[Effect, ...], done: Done) -> tuple[Effect, ...]:
        """Execute one effect. Returns the effects that are left then."""
        match effect:
            case WritePlan():
                self.setup.journal.write_plan(effect.plan)
                self.setup.start_pause.written(effect.plan)
            case OpenTopics():
                return self._open_topics(effect.plan, left, done)
            case RepeatLanes():
                silent = replace(effect.plan, silent=True)
                done.sums = Sums(self.attempts.run_lanes(silent, self.state.progress).results)
            case RunLanes() if not self._is_in_log(effect.plan):
                return self._run_lanes(effect, left, done)
            case AppendLog():
                self._append_log(effect.plan, done)
            case KeepWaiting():
                files = [file for result in done.sums.results for file in result.waiting]
                self.reading.keep(effect.plan, files, self.commit)
            case TakeProgress():
                self._take_progress(effect.epoch)
            case CommitProgress():
                self._commit_progress(effect.plan, done)
            case EndPart():
                self.state.built = effect.plan.end_offsets
                self.reading.settle(effect.plan)
                self.on_part(effect.plan)
            case Settle():
                self._settle(effect.plan, done)
        return left

    def _changed(self, plan: BatchPlan, done: Done) -> tuple[Effect, ...]:
        self.setup.journal.write_plan(plan)
        done.plan = plan
        return journaled(self.effects_of(plan))

    def _open_topics(self, plan: BatchPlan, left: tuple[Effect, ...], done: Done) -> tuple[Effect, ...]:
        for job in plan.jobs:
            if (job.opens or job.gains_from is not None) and not plan.silent:
                try:
                    self.setup.sink_of(job.state.definition).open(job.state.definition)
                except BackfillError as error:
                    if not is_of_job(error, job.state.definition):
                        raise
                    return self._without(plan, job.state, error, done)
        if plan.parked:
            try:
                for job in plan.open_jobs:
                    self.setup.sink_of(job.state.definition).open_letters(job.state.definition)
                if plan.parks_early:
                    self._write_early_letters(plan)
            except (TopicError, EnvironmentProblem):
                # Else the next start would fail as well, whatever the configuration has for such records by then.
                self._changed(without_parked(plan), done)
                raise
        return left

    def _write_early_letters(self, plan: BatchPlan) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.setup.early_letters(plan.parked, f"{transactional_id(self.replica)}-letters")
            except Fenced:
                # The instance that we took over from may have been late with its producer; ours is the next one.
                if attempt == ATTEMPTS or self.setup.journal.is_superseded:
                    raise
            else:
                return

    def _without(
        self, plan: BatchPlan, job: JobState, error: BackfillError, done: Done
    ) -> tuple[Effect, ...]:
        left = self._changed(plan.with_jobs([each for each in plan.jobs if each.state != job]), done)
        self.state.refuse(job, error)
        return left

    def _run_lanes(self, effect: RunLanes, left: tuple[Effect, ...], done: Done) -> tuple[Effect, ...]:
        run = self.attempts.run_lanes(effect.plan, self.state.progress)
        done.way = run.way
        for report in run.paused:
            self.state.add_report(report)
        if run.faults:
            return self._changed(self.setup.bad_records.leave_out(run.plan, run.faults), done)
        done.sums = Sums(run.results)
        if run.plan == effect.plan:
            return left
        done.plan = run.plan
        return behind(self.effects_of(run.plan), effect)

    def _append_log(self, plan: BatchPlan, done: Done) -> None:
        results, replica = done.sums.results, self.replica
        files = [file for result in results for file in result.log]
        closed = len(plan.barriers) if plan.until is None else 0
        seen = merged(plan.seen, (result.seen for result in results), closed)
        if plan.until is None:
            self.commit(lambda: replica.append(files, plan.epoch, seen), replica.reload)
        else:
            self.commit(lambda: replica.append_part(files, plan.end_records, seen), replica.reload)
        if results and not any(each.judged for result in results for each in result.seen.values()):
            log_new_logs(self.setup.bad_records.topic, plan.seen, seen)
        # The log may have been ahead of the plan, in a state whose tables were copied one after another.
        self.state.seen = seen if replica.seen is None else replica.seen

    def _is_in_log(self, plan: BatchPlan) -> bool:
        """True if lanes have nothing to send, and all changes are in the log."""
        return not plan.sent_jobs and plan.reading is None and self.replica.holds(plan)

    def _commit_progress(self, plan: BatchPlan, done: Done) -> None:
        after, rows = self.state.raised_by(plan, done.sums.rows_read)
        self.state.progress |= after
        table, starts = self.progress_table, self.state.starts
        self.commit(lambda: table.commit(rows, plan.epoch, starts), table.reload)

    def _take_progress(self, epoch: int) -> None:
        state, table = self.state, self.progress_table
        rows = self.setup.forward.rows(state.jobs, epoch)
        taken: dict[str, dict[int, Progress]] = {}
        for row in rows:
            taken.setdefault(row.job, {})[row.vnode] = row.progress
        state.progress |= {
            name: Parts({**state.progress.get(name, {}), **each}) for name, each in taken.items()
        }
        starts = state.starts
        self.commit(lambda: table.commit(rows, epoch, starts), table.reload)
        self.setup.forward.begin(epoch)

    def _settle(self, plan: BatchPlan, done: Done) -> None:
        state = self.state
        refused = JobsOutcome((), state.take_refused())
        done.outcome = refused | self.settle(plan, () if plan.silent else state.configured)
        # A job that is dropped later must not come back.
        if plan.jobs and not plan.silent:
            self.setup.forward.close()
        known = {job.name for job in state.jobs}
        state.configured = tuple(job for job in state.configured if plan.silent and job.name not in known)

    def settle(self, plan: BatchPlan, configured: Sequence[JobDefinition]) -> JobsOutcome:
        """Advance to the end of a plan that is done. `configured` jobs that are new start there."""
        outcome = self.state.settle(plan, configured)
        self.reading.settle(plan)
        if self.setup.forward.active:
            self.setup.forward.begin(plan.epoch)
            with fenced_if_superseded(self.setup.journal):
                self.state.jobs = self.setup.forward.adopted(self.state.jobs, plan.epoch)
        return outcome

    def commit(self, effect: Callable[[], None], reload: Callable[[], None]) -> None:
        """Commit to log or progress. `effect` does nothing if its epoch is there.

        A conflict without a successor is a commit of ours whose answer was lost, or the last one of the instance that
        we took over from. Both are of the open batch, or change no rows: after `reload` the next attempt finds them.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                effect()
            except CommitConflict as conflict:
                if self.setup.journal.is_superseded:
                    raise self.setup.journal.fenced() from conflict
                if attempt == ATTEMPTS:
                    raise
                reload()
            else:
                return
