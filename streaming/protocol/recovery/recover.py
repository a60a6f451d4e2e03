"""A start from the journal: restores the state of the stream, and finds the effects that the open plan still needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from state.values.plan import BatchPlan
from streaming.protocol.effects import Effect, TakeProgress, WritePlan, journaled, repeated
from streaming.protocol.executor import Executor
from streaming.protocol.recovery.steps import fenced_if_superseded
from streaming.runtime.timing import Stopwatch


@dataclass
class Recovery:
    """Continues after an earlier instance. The outputs are read before any effect."""

    executor: Executor

    def left_to_do(self) -> tuple[Effect, ...]:
        """The effects that the plan of the journal still needs; none without a plan, or for one that is done."""
        executor = self.executor
        entry = executor.setup.journal.current
        plan = None if entry is None else entry.plan
        if plan is None:
            executor.setup.forward.begin_anew()
            return ()
        executor.state.position, executor.state.lanes_set = plan.start, plan.lanes_set
        executor.state.moved_at = plan.moved_at
        # A log of the version before has no positions: those of the last plan are the best that is known.
        executor.state.seen = plan.seen if executor.replica.seen is None else executor.replica.seen
        executor.reading.begin_from(plan)
        if plan.until is not None:
            return journaled(executor.effects_of(plan))
        is_done = self.is_done(plan)
        executor.setup.forward.begin(self._known_upto(plan))
        left = [job for job in plan.jobs if job.state.name not in executor.setup.dropped]
        drops = not is_done and len(left) < len(plan.jobs)
        if drops:
            plan = plan.with_jobs(left)
        executor.state.jobs = tuple(job.state for job in plan.jobs)
        executor.state.progress = executor.progress_table.load(executor.state.jobs)
        if is_done:
            self.go_on_behind(plan)
            executor.state.drop(executor.setup.dropped)
            return ()
        effects = self.finish(plan)
        # The journal gets a plan with fewer jobs before it has any effect.
        return (WritePlan(effects[0].plan), *effects) if drops and effects else effects

    def is_done(self, plan: BatchPlan) -> bool:
        return plan.is_done(self.executor.progress_table.epoch, self.executor.replica.log_epoch)

    def go_on_behind(self, plan: BatchPlan) -> None:
        """Settle a plan that is done."""
        self.executor.settle(plan, ())
        is_past = self._read_outputs(None)
        self._repair_tables(plan)
        if is_past:
            self._adopt()

    def finish(self, plan: BatchPlan) -> tuple[Effect, ...]:
        """The effects of a plan that may be half done; none where the outputs are past it."""
        is_past = self._read_outputs(plan)
        if self._repair_tables(plan):
            plan = replace(plan, replica=self.executor.replica.pin())
        if is_past and not plan.silent:
            self._adopt()
            return ()
        return journaled(self.executor.effects_of(plan))

    def _read_outputs(self, open_plan: BatchPlan | None) -> bool:
        state = self.executor.state
        return self.executor.setup.forward.read_outputs(
            state.jobs, state.epoch, state.progress, open_plan=open_plan
        )

    def _adopt(self) -> None:
        state, setup = self.executor.state, self.executor.setup
        with fenced_if_superseded(setup.journal):
            state.jobs = setup.forward.adopted(state.jobs, state.epoch)

    def _repair_tables(self, open_plan: BatchPlan) -> bool:
        """Bring log and progress to the position, in a state whose tables were copied one after another.

        True if the log was behind: versions of it that the journal names are others then, or missing.
        """
        executor, here = self.executor, self.executor.state.epoch
        log_epoch, is_behind = executor.replica.log_epoch, executor.replica.pin().log < open_plan.replica.log
        if log_epoch < here:
            for plan in executor.setup.journal.plans_after(log_epoch, here):
                if not executor.replica.holds(plan):
                    executor.execute(repeated(plan), Stopwatch())
        if self.lacks_progress(open_plan):
            executor.execute((TakeProgress(open_plan, here),), Stopwatch())
        return is_behind or log_epoch < here

    def lacks_progress(self, plan: BatchPlan) -> bool:
        """True if the table of progress is older than the plan, as in a state that was copied table by table."""
        return self.executor.progress_table.epoch < plan.progress_epoch

    def _known_upto(self, plan: BatchPlan) -> int:
        """The barrier up to which the state has all positions; the table may hold more of the jobs known by then."""
        if self.lacks_progress(plan):
            return self.executor.progress_table.epoch
        return plan.finished_epoch(is_done=self.is_done(plan))
