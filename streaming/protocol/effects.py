"""Effects of a batch on topics and tables, as values, and their order.

Exactly once, a batch at a time: from aligned barrier a to aligned barrier b, by the effects of `ORDER`. Each carries
the epoch of b and succeeds only while no other instance has taken over. So after a crash anywhere the same plan is
executed again, and finds every effect that is there already. The next batch's first effect comes after this one's last:
a plan in the journal that is not done is the one batch that may be half done.

Values of this module do nothing; `streaming.protocol.executor` executes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from state.values.plan import BatchPlan
from streaming.runtime.failpoints import Failpoint


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing to do for a plan; idempotent."""

    plan: BatchPlan

    @classmethod
    def for_plan(cls, plan: BatchPlan) -> Effect | None:
        """The effect that such a plan has in this slot of the order, None if it has none."""
        return cls(plan)


class WritePlan(Effect):
    """Write the plan to the journal: from here on a crash ends in this very plan being executed."""


class OpenTopics(Effect):
    """Create the missing outputs of jobs that open, and topics of dead letters.

    Letters of records before the first job are written here: no lane has a transaction for them. A job whose topic
    can't be made leaves the plan, in the journal as well: nothing was sent to a missing topic.
    """

    @classmethod
    def for_plan(cls, plan: BatchPlan) -> Effect | None:
        # Where nothing is sent no topic is needed, or all exist and were read.
        return None if (plan.silent or plan.until is not None) and not plan.parks_early else cls(plan)


class RunLanes(Effect):
    """Have each lane send its part in one Kafka transaction, and write its changes to a log file."""


class RepeatLanes(RunLanes):
    """Write the log files of a finished batch again. Nothing is sent, and no record is rejected."""


class AppendLog(Effect):
    """Add the log files to the log, in one commit, which marks a plan that reads nothing as done."""


class KeepWaiting(Effect):
    """Keep the events that wait for chunks of the table, and drop those that were folded into released chunks."""

    @classmethod
    def for_plan(cls, plan: BatchPlan) -> Effect | None:
        # Only where the table is read from its database.
        return None if plan.reading is None else cls(plan)


class CommitProgress(Effect):
    """Commit the progress of vnodes at b, which marks a plan that reads as done."""

    @classmethod
    def for_plan(cls, plan: BatchPlan) -> Effect | None:
        if plan.until is not None or not plan.raises_positions:
            return None
        return TakeProgress(plan, plan.epoch) if plan.silent else cls(plan)


@dataclass(frozen=True, slots=True)
class TakeProgress(CommitProgress):
    """Commit the positions that the outputs hold up to a barrier as the progress."""

    epoch: int


class Settle(Effect):
    """Apply the mutations of the batch's barriers, for the next batch. In memory alone: they follow from the plan."""

    @classmethod
    def for_plan(cls, plan: BatchPlan) -> Effect | None:
        return cls(plan) if plan.until is None else EndPart(plan)


class EndPart(Settle):
    """Advance behind a part of a long interval, which is in the log."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot in the order: the crash points around it, the step that its time counts for, and why it is there."""

    kind: type[Effect]
    step: str
    reached: Failpoint
    reason: str
    before: Failpoint | None = None


ORDER: tuple[Slot, ...] = (
    Slot(
        kind=WritePlan,
        step="plan",
        before=Failpoint.PLANNED,
        reached=Failpoint.JOURNALED,
        reason="before all else: effects of a plan that a crash forgets would be made again by another plan",
    ),
    Slot(
        kind=OpenTopics,
        step="plan",
        reached=Failpoint.TOPICS_OPENED,
        reason="before the lanes, which send to the topics; behind the plan, so that a topic is there for a known job",
    ),
    Slot(
        kind=RunLanes,
        step="lanes",
        reached=Failpoint.SENT,
        reason="before the log, whose files the lanes write",
    ),
    Slot(
        kind=AppendLog,
        step="replicate",
        reached=Failpoint.REPLICATED,
        reason="behind the lanes, for it may mark the plan as done; before the progress, for changes missing from the "
        "log of a finished batch would never be appended",
    ),
    Slot(
        kind=KeepWaiting,
        step="waiting",
        reached=Failpoint.WAITING_KEPT,
        reason="before the progress, as the log: events missing from a finished batch would be lost",
    ),
    Slot(
        kind=CommitProgress,
        step="progress",
        reached=Failpoint.PROGRESSED,
        reason="the last effect outside: it marks the plan of a batch that reads as done",
    ),
    Slot(
        kind=Settle,
        step="mutations",
        reached=Failpoint.SETTLED,
        reason="behind all: jobs of this batch are those of its plan, whatever its barriers say",
    ),
)


def effects_of(plan: BatchPlan) -> tuple[Effect, ...]:
    """All effects of a plan that was just made, in their order."""
    return tuple(effect for slot in ORDER if (effect := slot.kind.for_plan(plan)) is not None)


def journaled(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """The effects of a plan that the journal holds already."""
    return tuple(effect for effect in effects if not isinstance(effect, WritePlan))


def repeated(plan: BatchPlan) -> tuple[Effect, ...]:
    """The effects that write the changes of a finished batch to the log again, when its log files are missing."""
    keeping = () if plan.reading is None else (KeepWaiting(plan),)
    return RepeatLanes(plan), AppendLog(plan), *keeping


def behind(effects: Sequence[Effect], effect: Effect) -> tuple[Effect, ...]:
    """The effects after the one of this effect's type."""
    types = [type(each) for each in effects]
    return tuple(effects[types.index(type(effect)) + 1 :])


def slot_of(effect: Effect) -> Slot:
    return next(slot for slot in ORDER if isinstance(effect, slot.kind))
