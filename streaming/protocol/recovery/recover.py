"""A start from the journal: restores what is known of the stream, and finds what is left to do of the open plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

from state.values.plan import BatchPlan
from state.values.progress import Parts
from streaming.protocol.effects import Effect, TakeProgress, journaled, repeated
from streaming.protocol.executor import Executor
from streaming.runtime.stopwatch import Stopwatch


@dataclass
class Recovery:
    """Goes on from what an earlier instance left. The outputs are read before anything is done."""

    executor: Executor

    def left_to_do(self) -> tuple[Effect, ...]:
        """The effects by which the plan of the journal is done; none where it is done, or where there is none."""
        executor = self.executor
        entry = executor.setup.journal.current
        plan = None if entry is None else entry.plan
        executor.setup.forward.begin(executor.progress_table.epoch)
        if plan is None:
            executor.setup.forward.begin_anew()
            return ()
        executor.state.position = plan.start
        # A log of the version before tells nothing: then what the last plan says is the best that is known.
        executor.state.seen = plan.seen if executor.replica.seen is None else executor.replica.seen
        executor.reading.begin_from(plan)
        if plan.until is not None:
            return journaled(executor.effects_of(plan))
        executor.state.jobs = tuple(job.state for job in plan.jobs)
        loaded = executor.progress_table.load_all(executor.state.starts, executor.state.position_columns)
        executor.state.progress = {name: Parts(states) for name, states in loaded.items()}
        if executor.progress_table.epoch >= plan.epoch:
            self.go_on_behind(plan)
            return ()
        return self.finish(plan)

    def go_on_behind(self, plan: BatchPlan) -> None:
        """The plan is done."""
        self.executor.settle(plan, ())
        is_past = self._look(None)
        self._repair_tables(plan)
        if is_past:
            self._adopt()

    def finish(self, plan: BatchPlan) -> tuple[Effect, ...]:
        """The plan may be half done, or more: where the outputs are past it, it is not to be sent again."""
        is_past = self._look(plan)
        if self._repair_tables(plan):
            plan = replace(plan, replica=self.executor.replica.pin())
        if is_past and not plan.silent:
            self._adopt()
            return ()
        return journaled(self.executor.effects_of(plan))

    def _look(self, open_plan: BatchPlan | None) -> bool:
        state = self.executor.state
        return self.executor.setup.forward.look(state.jobs, state.epoch, state.progress, open_plan=open_plan)

    def _adopt(self) -> None:
        state = self.executor.state
        state.jobs = self.executor.setup.forward.adopted(state.jobs, state.epoch)

    def _repair_tables(self, open_plan: BatchPlan) -> bool:
        """Bring log and progress to the position, in a state whose tables were copied one after another.

        True if the log was not there: versions of it that the journal knows are others then.
        """
        executor, here = self.executor, self.executor.state.epoch
        log_epoch = executor.replica.log_epoch
        if log_epoch < here:
            for plan in executor.setup.journal.plans_after(log_epoch, here):
                if not executor.replica.holds(plan):
                    executor.carry_out(repeated(plan), Stopwatch())
        if executor.progress_table.epoch < here:
            executor.carry_out((TakeProgress(open_plan, here),), Stopwatch())
        return log_epoch < here
