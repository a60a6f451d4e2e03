"""What a batch does to the world outside, as values, and the order in which it is done.

Exactly once, a batch at a time: from aligned barrier a to aligned barrier b, by the effects of `ORDER`. Each carries
the epoch of b and succeeds only while no other instance has taken over. So a crash anywhere ends in the same plan being
carried out again, where every effect that is there already is found. The next batch's first effect comes after this
one's last: a plan in the journal whose progress is missing is the one batch that may be half done.

Values of this module do nothing; `streaming.protocol.executor` carries them out.
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
    def of(cls, plan: BatchPlan) -> Effect | None:
        """The effect that such a plan has in this slot of the order, None if it has none."""
        return cls(plan)


class WritePlan(Effect):
    """The journal names the plan: from here on a crash ends in this very plan being carried out."""


class OpenTopics(Effect):
    """The outputs of jobs that open, and the topics of dead letters, are there. One that is there is left as it is.

    Letters that no job has, as none is open, are written here: no lane has a transaction for them.

    A job whose topic can't be made leaves the plan, in the journal as well: nothing was sent to a topic that is not
    there.
    """

    @classmethod
    def of(cls, plan: BatchPlan) -> Effect | None:
        """None where nothing is sent: no topic is needed, or all exist and were read."""
        return None if (plan.silent or plan.until is not None) and not plan.parks_early else cls(plan)


class RunLanes(Effect):
    """Each lane sends its part in one Kafka transaction, and writes its changes to a log file."""


class RepeatLanes(RunLanes):
    """The log files of a batch that is done are written again. Nothing is sent, and nothing found at fault."""


class AppendLog(Effect):
    """The log files become part of the log, in one commit."""


class KeepWaiting(Effect):
    """Events that wait for chunks of the table are kept, and those that were folded into released chunks are not."""

    @classmethod
    def of(cls, plan: BatchPlan) -> Effect | None:
        """None where the table is not read from its database."""
        return None if plan.reading is None else cls(plan)


class CommitProgress(Effect):
    """Per-vnode progress at b: the mark that the plan is done."""

    @classmethod
    def of(cls, plan: BatchPlan) -> Effect | None:
        """None for a part of an interval: it raises no position."""
        if plan.until is not None:
            return None
        return TakeProgress(plan, plan.epoch) if plan.silent else cls(plan)


@dataclass(frozen=True, slots=True)
class TakeProgress(CommitProgress):
    """The same, with the positions that the outputs hold up to a barrier."""

    epoch: int


class Settle(Effect):
    """Mutations of the batch's barriers take effect for the next batch. In memory alone: they follow from the plan."""

    @classmethod
    def of(cls, plan: BatchPlan) -> Effect | None:
        """For a part of an interval, what is known of it."""
        return cls(plan) if plan.until is None else EndPart(plan)


class EndPart(Settle):
    """A part of a long interval is in the log; the next one begins behind it."""


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
        reason="before all else: what is done for a plan that a crash forgets is done again by another plan",
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
        reason="before the progress: what a batch that counts as done lacks in the log would never be appended",
    ),
    Slot(
        kind=KeepWaiting,
        step="waiting",
        reached=Failpoint.WAITING_KEPT,
        reason="before the progress, as the log: what waits would be lost with a batch that counts as done",
    ),
    Slot(
        kind=CommitProgress,
        step="progress",
        reached=Failpoint.PROGRESSED,
        reason="the last effect outside: it says that the plan need not be carried out again",
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
    return tuple(effect for slot in ORDER if (effect := slot.kind.of(plan)) is not None)


def journaled(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """The effects of a plan that the journal holds already."""
    return tuple(effect for effect in effects if not isinstance(effect, WritePlan))


def repeated(plan: BatchPlan) -> tuple[Effect, ...]:
    """The effects that write the changes of a finished batch to the log once more, when its log files are missing."""
    keeping = () if plan.reading is None else (KeepWaiting(plan),)
    return RepeatLanes(plan), AppendLog(plan), *keeping


def behind(effects: Sequence[Effect], effect: Effect) -> tuple[Effect, ...]:
    """The effects after the one of this effect's type."""
    types = [type(each) for each in effects]
    return tuple(effects[types.index(type(effect)) + 1 :])


def slot_of(effect: Effect) -> Slot:
    """The slot of an effect in the order."""
    return next(slot for slot in ORDER if isinstance(effect, slot.kind))
