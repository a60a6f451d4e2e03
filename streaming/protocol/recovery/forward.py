"""Brings a state forward that is older than its outputs: one that lost its last seconds, or was restored.

The outputs hold more than the state then, and none of it may be sent again. As lanes start a batch only after all of
them have committed the one before, the outputs of all jobs end with at most two barriers: some lanes have committed the
last batch (t', t], the others end with t'. So from the state's position on there are

    silent steps    up to t': the upstream is replicated, mutations take effect, nothing is sent, and the positions are
                    those in the outputs' barriers
    one mixed step  (t', t]: lanes whose partitions end with t find their part sent, with the slices that follow from
                    their barriers; the others send it now, without reading, so their positions stand still

Each step is an ordinary batch, with its plan in the journal: a crash in it is an ordinary recovery, after which the
rest is found again in the same way. A job that was created in the lost interval starts with the first barrier of its
output; a state that knows no job looks for one at each barrier that adds one, up to the newest barrier of its start.

Where the first barriers of an output were deleted it begins with a full one, which has all positions. A job that is not
known is known then at once, as if it had started where the state stands: nothing is sent before its first barrier.
So is one that started before the oldest barrier that the upstream has.

A state may also be in disagreement with itself, as when it was copied while the service ran. Then its position is what
the journal says, unless the log is behind that (`Recovery`); what log and progress are ahead is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import structlog

from schemas.job import JobDefinition
from schemas.kinds.lanes import lanes_incompatibility
from schemas.records import Barrier, VnodeProgress
from schemas.table import TableSchema
from state.progress_table import ProgressRow
from state.values.plan import BatchPlan, JobPlan, JobState, Slice
from state.values.progress import Completed, NotStarted, Progress
from streaming.core.jobs import created
from streaming.protocol.recovery.steps import Step, is_of_another_plan, mark, out_of_step, progress_of
from streaming.sink.protocol import Ending, SinkOf

log = structlog.get_logger()


def warn_older(position: int) -> None:
    """Log that the state, whose position is given, is older than its outputs."""
    log.warning("state_is_older_than_outputs", position=position)


class Forward:
    """Plans the steps of a state that is older than its outputs. `rebuild`: the state is new, and its outputs are not.

    `newest` gives the newest barrier of the upstream, aligned or not; 0 without any. `oldest` gives its first barrier
    where those before were deleted; else 0. `on_older` is called with the position of a state that is older.
    """

    def __init__(
        self,
        sink_of: SinkOf,
        newest: Callable[[], int],
        table: TableSchema,
        *,
        rebuild: bool = False,
        oldest: Callable[[], int] = lambda: 0,
        on_older: Callable[[int], None] = warn_older,
    ) -> None:
        self._sink_of, self._newest_barrier, self._on_older = sink_of, newest, on_older
        self._oldest_barrier = oldest
        self._table = table
        self.active = rebuild
        self._rebuild = rebuild
        self._begins: dict[str, Sequence[Barrier | None]] = {}
        self._endings: dict[str, Sequence[Ending]] = {}
        self._progress_epoch = 0
        self._over = False

    @property
    def is_over(self) -> bool:
        """True once no later batch can be in an output already."""
        return self._over

    # outputs -----------------------------------------------------------------------------------------------

    def read_outputs(
        self,
        jobs: Sequence[JobState],
        position: int,
        progress: Mapping[str, Mapping[int, Progress]],
        *,
        open_plan: BatchPlan | None = None,
    ) -> bool:
        """Read the jobs' outputs. True if they are ahead of `position`, other than by the open plan; then it is active.

        `progress` is the jobs' at that position.
        """
        definitions = [job.definition for job in jobs]
        tails = {each.output: self._sink_of(each).tails(each) for each in definitions}
        lasts = [tail for found in tails.values() for tail in found or () if tail is not None]
        if open_plan is None or open_plan.silent:
            past = any(tail.curr > position for tail in lasts)
        else:
            past = any(tail.curr > position and tail.curr != open_plan.epoch for tail in lasts)
            past = past or is_of_another_plan(open_plan, progress, tails, self._table)
        if past or (open_plan is not None and open_plan.silent):
            self._activate(position)
        return past

    def _activate(self, position: int) -> None:
        if not self.active:
            self._on_older(position)
        self.active = True

    def begin_anew(self) -> None:
        """Begin with a new state: records of its outputs are foreign, unless a lost state is to be rebuilt."""
        if not self._rebuild:
            self.close()

    def begin(self, progress_epoch: int) -> None:
        """Take positions only from barriers after this one, up to which the state has them."""
        self._progress_epoch = progress_epoch

    def _of(self, job: JobState) -> Sequence[Ending]:
        """The ends of a job's output; () if the records in it are not the job's."""
        definition = job.definition
        if definition.output not in self._endings:
            after = max(self._progress_epoch, job.start)
            sink = self._sink_of(definition)
            self._endings[definition.output] = sink.endings(definition, after) if self._has_begun(job) else ()
        return self._endings[definition.output]

    def _has_begun(self, job: JobState) -> bool:
        first = self._first(job.definition)
        return job.opened or (first is not None and (first.curr == job.start or first.full))

    def _first(self, job: JobDefinition) -> Barrier | None:
        """The barrier that a job's output begins with."""
        if job.output not in self._begins:
            self._begins[job.output] = self._sink_of(job).begins(job)
        begins = (first for first in self._begins[job.output] if first is not None)
        return min(begins, key=lambda first: first.curr, default=None)

    # jobs --------------------------------------------------------------------------------------------------

    def joined(
        self, jobs: tuple[JobState, ...], configured: Iterable[JobDefinition], position: int
    ) -> tuple[JobState, ...]:
        """The jobs as their outputs say, with those of the configuration that start with this position's barrier."""
        if self._over:
            return jobs
        started = (
            definition
            for definition, first in self._unknown(jobs, configured)
            if first.curr == position or (first.curr > position and self._is_trimmed(first))
        )
        jobs = (*jobs, *(created(each, position) for each in started))
        adopted = self.adopted(jobs, position)
        firsts = [self._first(job.definition) for job in jobs if not job.opened]
        if any(first is not None and first.curr >= position for first in firsts):
            self._activate(position)
        return adopted

    def _is_trimmed(self, first: Barrier) -> bool:
        """True if the barrier that a job started with is gone, from its output or from the upstream."""
        return first.full or first.curr < self._oldest

    @cached_property
    def _oldest(self) -> int:
        return self._oldest_barrier()

    def _unknown(
        self, jobs: Sequence[JobState], configured: Iterable[JobDefinition]
    ) -> Iterator[tuple[JobDefinition, Barrier]]:
        """Jobs of the configuration that the state does not have, and the first barriers of their outputs."""
        known = {job.name for job in jobs} | {job.definition.output for job in jobs}
        for definition in configured:
            if not known & {definition.name, definition.output}:
                first = self._first(definition)
                if first is not None:
                    yield definition, first

    def adopted(self, jobs: Sequence[JobState], position: int) -> tuple[JobState, ...]:
        """The jobs, those that are not open as their outputs say."""
        return tuple(job if job.opened else self._adopted(job, position) for job in jobs)

    def _adopted(self, job: JobState, position: int) -> JobState:
        first = self._first(job.definition)
        if first is None or first.curr < position:
            return job  # it has not started; or the records are foreign, and it is refused when it is to open
        begins = self._begins[job.definition.output]
        if first.partitions < len(begins):
            raise out_of_step(
                f"an output that began with {first.partitions} of its {len(begins)} partitions",
                "a state that is not older than the partitions that it has gained",
            )
        start = job.start if first.curr > position and self._is_trimmed(first) else first.curr
        adopted = replace(job, start=start, opened=all(each is not None for each in begins))
        if not job.definition.sends_new:
            return adopted
        barriers = (barrier for each in self._of(adopted) for barrier in each.reported)
        return adopted.having_got({name for barrier in barriers for name, _ in barrier.columns})

    # steps -------------------------------------------------------------------------------------------------

    def step(
        self,
        jobs: Sequence[JobState],
        configured: Iterable[JobDefinition],
        position: int,
        tables: Iterable[int],
    ) -> Step | None:
        """The next step from `position`, None when an ordinary batch comes next. `tables` are the epochs of the tables.

        Raises: StateError(OUTPUT_OUT_OF_STEP) for outputs that no service has left like this.
        """
        if self._over:
            return None
        ahead = [epoch for epoch in tables if epoch > position]
        unknown = self._unknown(jobs, configured)
        begins = [first.curr for _, first in unknown if first.curr > position]
        if ahead or begins:
            self._activate(position)
        if not self.active and jobs:
            self.close()
            return None
        ends = [end for job in jobs for end in self._ends(job) if not (job.ended and end <= position)]
        if not ends:
            return self._without_outputs(position, [*ahead, *begins])
        low, high = min(ends), max(ends)
        if low > position:
            return Step(min([low, *ahead, *begins]), silent=True)
        if low < position or ahead or set(ends) - {position, high}:
            raise out_of_step(
                f"outputs that end with barriers {sorted(set(ends))}",
                f"{max([position, *ahead])}, as the state says, and one later barrier at most",
            )
        if high == position:
            self.close()
            return None
        return Step(high, silent=False)

    def _without_outputs(self, position: int, cuts: Sequence[int]) -> Step | None:
        """The step where no job is open; one that a later barrier of the upstream adds may be."""
        newest = self._newest
        if position >= newest and not cuts:
            self.close()
        elif self._rebuild or cuts:
            return Step(min([*cuts, *([newest] if self._rebuild else [])]), silent=True)
        return None

    @cached_property
    def _newest(self) -> int:
        return self._newest_barrier()

    def _ends(self, job: JobState) -> Iterator[int]:
        found, count = self._of(job), job.definition.output_partitions
        if len(found) not in (0, count):
            raise out_of_step(
                f"an output of {len(found)} partitions, which the state knows with {count}",
                f"a state that is not older than the partitions of {job.definition.output}",
            )
        for each in found:
            end = job.start if each.last is None else each.last
            # A job may have ended before the oldest barrier that the upstream has: that one says it as well.
            yield max(end, self._oldest) if job.definition.until_complete else end

    def close(self) -> None:
        """End the recovery: from here on the state leads."""
        if self.active:
            log.info("state_was_brought_forward")
        self.active, self._over = False, True
        self._begins.clear()
        self._endings.clear()

    # plans -------------------------------------------------------------------------------------------------

    def jobs_of(
        self, step: Step, jobs: Sequence[JobState], progress: Mapping[str, Mapping[int, Progress]]
    ) -> tuple[JobPlan, ...]:
        """The jobs' plans in a step."""
        if step.silent:
            return tuple(JobPlan(job) for job in jobs)
        begun = [job for job in jobs if self._has_begun(job)]
        return tuple(JobPlan(job, tuple(self._slices(job, progress.get(job.name, {})))) for job in begun)

    def _slices(self, job: JobState, progress: Mapping[int, Progress]) -> Iterator[Slice]:
        """The slices that were read for the step: from the state's positions to those of the barriers."""
        for published in self._published(job, math.inf).values():
            before = progress.get(published.vnode, NotStarted())
            now = progress_of(job.definition, published, self._table)
            if mark(now) != mark(before):
                yield Slice(
                    published.vnode, before.position, None if isinstance(now, Completed) else now.position
                )

    def lanes_of(self, step: Step, jobs: Sequence[JobPlan], lanes: int) -> int:
        """A number of lanes, `lanes` if it will do, with which the partitions of each lane end with the same barrier.

        The number that sent them is always one.
        """
        jobs = [job for job in jobs if not job.state.ended]
        if step.silent or not jobs:
            return lanes
        definitions = [job.state.definition for job in jobs]
        most: int = min(each.output_partitions for each in definitions)
        counts: list[int] = [lanes, *range(1, most + 1)]
        fitting = [
            n
            for n in counts
            if not any(lanes_incompatibility(each, n) for each in definitions)
            and all(self._agree(step, jobs, n))
        ]
        if not fitting:
            raise out_of_step(
                "partitions of one lane that end with different barriers", "lanes that commit at once"
            )
        return fitting[0]

    def _agree(self, step: Step, jobs: Sequence[JobPlan], lanes: int) -> Iterator[bool]:
        sent: dict[int, set[bool]] = {}
        for job in jobs:
            count = job.state.definition.output_partitions
            for partition, each in enumerate(self._of(job.state)):
                sent.setdefault(partition * lanes // count, set()).add(each.last == step.upto)
        return (len(found) == 1 for found in sent.values())

    # progress ----------------------------------------------------------------------------------------------

    def rows(self, jobs: Iterable[JobState], upto: int) -> list[ProgressRow]:
        """The progress in the outputs' barriers up to `upto`, of vnodes that have an older position in the state."""
        return [
            ProgressRow(job.name, vnode, progress)
            for job in jobs
            for vnode, published in sorted(self._published(job, upto).items())
            if (progress := progress_of(job.definition, published, self._table)) != NotStarted()
        ]

    def _published(self, job: JobState, upto: float) -> dict[int, VnodeProgress]:
        barriers = (barrier for each in self._of(job) for barrier in each.reported)
        return {
            published.vnode: published
            for barrier in barriers
            if self._progress_epoch < barrier.curr <= upto
            for published in barrier.progress
        }
