"""Steps that bring a state forward (`streaming.protocol.recovery.forward`), and positions as outputs publish them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from schemas.errors import Code, StateError
from schemas.job import JobDefinition
from schemas.kinds.lanes import parts_of
from schemas.position import position_from_text
from schemas.records import Barrier, VnodeProgress
from schemas.table import TableSchema
from state.journal import Journal
from state.values.aligned import AlignedBarrier
from state.values.plan import BatchPlan
from state.values.progress import Completed, InProgress, NotStarted, Progress
from streaming.core.planning import choose_barriers


@dataclass(frozen=True, slots=True)
class Step:
    """A step that brings a state forward, up to the barrier `upto`; a silent one may stop before."""

    upto: int
    silent: bool

    def barriers_of_batch(
        self, waiting: Sequence[AlignedBarrier], first_offsets: Sequence[int], most_records: int
    ) -> tuple[AlignedBarrier, ...] | None:
        """The barriers of the next batch; None until all of them have come.

        Raises: StateError(OUTPUT_OUT_OF_STEP) when the upstream goes past `upto` without that barrier.
        """
        within = [aligned for aligned in waiting if aligned.epoch <= self.upto]
        last = within[-1].epoch if within else 0
        if last < self.upto < waiting[-1].epoch:
            raise out_of_step(
                f"outputs that end with barrier {self.upto}",
                "barriers of the upstream: it has none of this epoch",
            )
        if not self.silent:
            return tuple(within) if last == self.upto else None
        return upto_mutation(choose_barriers(within, first_offsets, most_records)) if within else None


def upto_mutation(barriers: Sequence[AlignedBarrier]) -> tuple[AlignedBarrier, ...]:
    """The barriers up to the first one with a mutation, so that it takes effect at that very barrier."""
    for count, aligned in enumerate(barriers, 1):
        if aligned.barrier.mutation is not None:
            return tuple(barriers[:count])
    return tuple(barriers)


def out_of_step(found: str, expected: str, where: str | None = None) -> StateError:
    """The error for outputs and a state that can't be brought together."""
    return StateError(Code.OUTPUT_OUT_OF_STEP, where=where, found=found, expected=expected)


@contextmanager
def fenced_if_superseded(journal: Journal) -> Iterator[None]:
    """Raise Fenced in place of a StateError for outputs that hold a successor's records by now."""
    try:
        yield
    except StateError as error:
        if journal.is_superseded:
            raise journal.fenced() from error
        raise


_FINISHED = object()


def progress_of(job: JobDefinition, published: VnodeProgress, table: TableSchema) -> Progress:
    """The progress of a part. Raises: ValueError for a position that is none of the job's."""
    text, columns = published.position, job.scan.position_columns(table)
    position = None if text is None else position_from_text(text, columns)
    if published.finished:
        return Completed(position, published.row_count)
    return NotStarted() if position is None else InProgress(position, published.row_count)


def mark(progress: Progress) -> object:
    """The position alone, without row counts: it decides which changes are sent."""
    return _FINISHED if isinstance(progress, Completed) else progress.position


def is_of_another_plan(
    plan: BatchPlan,
    progress: Mapping[str, Mapping[int, Progress]],
    tails: Mapping[str, Sequence[Barrier | None] | None],
    table: TableSchema,
) -> bool:
    """True if an output was sent by another plan than this one: its last barrier has other positions.

    `progress` is the jobs' before the plan, `tails` are the last barriers of each output's partitions.
    """
    if len(plan.barriers) > 1:
        return False  # positions are in the first barrier of a batch
    for job in plan.jobs:
        definition, before = job.state.definition, progress.get(job.state.name, {})
        for partition, tail in enumerate(tails[definition.output] or ()):
            if tail is None or tail.curr != plan.epoch:
                continue
            parts = parts_of(definition, partition)
            planned = {part: mark(before.get(part, NotStarted())) for part in parts if tail.full}
            planned |= {
                item.part: _FINISHED if item.upto is None else item.upto
                for item in job.slices
                if item.part in parts
            }
            if planned != {item.vnode: mark(progress_of(definition, item, table)) for item in tail.progress}:
                return True
    return False
