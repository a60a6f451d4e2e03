"""The condition of a service, as a pure function of `HealthFacts`; times are seconds of a clock that is never set.

A service is *ready* while barriers come out: its last batch is no older than `late_s`, and nothing has interrupted it
since. Once it is late, the condition names the cause, and the reason its location and the next step:

    suspended               a fault of the table: no batch until the operator says how to go on
    degraded                a passing error has interrupted it or its injector: Kafka is away, a Spark job failed
    upstream stuck          an open transaction holds the last stable offset of a partition
    waiting for barriers    none come, or one is missing in some partitions
    stuck                   there is a barrier to work up to, and no sign of work
    catching up             there is work, and signs of it; also while it is ready, with many barriers to go

What follows from a known cause has the cause's name: once Kafka answers again, barriers have to come and a batch has to
end first, so until an interval and `late_s` are over, neither the lack of barriers nor that of progress is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from schemas.errors import BackfillError, Code, EnvironmentProblem, TopicError

LEAST_LATE_S = 30.0
LATE_INTERVALS = 3
_LASTING_S = 10.0
"""Shorter gaps are ignored: transaction boundaries and leader elections stay below this."""


def late_after_s(interval_ms: int) -> float:
    """The maximal time between two batches, in seconds: 30, or three intervals between barriers."""
    return max(LEAST_LATE_S, LATE_INTERVALS * interval_ms / 1_000)


class HealthCondition(StrEnum):
    """Conditions of a service; the values are shown by the API, the page and the log."""

    STARTING = "starting"
    SERVING = "serving"
    CATCHING_UP = "catching up"
    WAITING = "waiting for barriers"
    UPSTREAM_STUCK = "upstream stuck"
    STUCK = "stuck"
    DEGRADED = "degraded"
    SUSPENDED = "suspended"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class StuckPartition:
    """A partition whose last stable offset an open transaction has held since `since_s`."""

    partition: int
    stable: int
    high: int
    since_s: float


def held_now(
    before: Sequence[StuckPartition], ends: Sequence[tuple[int, int]], now_s: float
) -> tuple[StuckPartition, ...]:
    """The partitions that are held now; `before` is the last result.

    `ends` has the last stable offset and the high watermark of each partition.
    """
    since = {(each.partition, each.stable): each.since_s for each in before}
    return tuple(
        StuckPartition(number, stable, high, since.get((number, stable), now_s))
        for number, (stable, high) in enumerate(ends)
        if stable < high
    )


@dataclass(frozen=True, slots=True)
class Interruption:
    """An error that interrupted the service, and its start."""

    problem: BackfillError
    since_s: float
    until_s: float | None = None
    """Its end; None while it lasts."""


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """The facts that decide the health of a service.

    `streaming_since_s`: the end of start-up, None before it. `pending`: committed barriers that no batch has done.
    `missing`: (partition, next offset) of each partition that lacks a barrier that others have. `busy_since_s`: the
    start of Spark's oldest job under way, None without one; `progress_s`: the last sign of work of one. `trouble` has
    ended the stream, `away` is the broker's, the last one also once it answers, `hindered` the injector's. `suspended`
    is the fault of a suspended table.
    """

    upstream: str
    interval_ms: int
    late_s: float
    started_s: float
    injects: bool = False
    streaming_since_s: float | None = None
    stopping: bool = False
    last_batch_s: float | None = None
    pending: int = 0
    busy_since_s: float | None = None
    progress_s: float | None = None
    held: tuple[StuckPartition, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()
    trouble: Interruption | None = None
    away: Interruption | None = None
    hindered: BackfillError | None = None
    suspended: BackfillError | None = None

    @property
    def since_s(self) -> float:
        """The end of the last batch, or the start."""
        return self.started_s if self.last_batch_s is None else self.last_batch_s

    @property
    def lasting_s(self) -> float:
        """The minimal duration before a condition is reported."""
        return min(_LASTING_S, self.late_s / 3)

    @property
    def grace_s(self) -> float:
        """The time in which a service has recovered from an outage of the broker."""
        return self.interval_ms / 1_000 + self.late_s


@dataclass(frozen=True, slots=True)
class Health:
    """`reason` has the error and the next step, None without one; `idle_s` is the time since the last batch."""

    condition: HealthCondition
    ready: bool
    reason: BackfillError | None
    idle_s: float


def health(facts: HealthFacts, now_s: float) -> Health:
    """The health at `now_s`."""
    idle_s = max(0.0, now_s - facts.since_s)
    is_late = idle_s > facts.late_s
    condition, reason = _condition(facts, now_s, idle_s, is_late=is_late)
    is_fine = condition in (HealthCondition.SERVING, HealthCondition.CATCHING_UP)
    return Health(condition, is_fine and not is_late and facts.last_batch_s is not None, reason, idle_s)


def _condition(
    facts: HealthFacts, now_s: float, idle_s: float, *, is_late: bool
) -> tuple[HealthCondition, BackfillError | None]:
    if facts.stopping:
        return HealthCondition.STOPPING, None
    if facts.suspended is not None:
        return HealthCondition.SUSPENDED, facts.suspended
    if trouble := _interruption(facts, now_s):
        return HealthCondition.DEGRADED, trouble
    if not is_late:
        if facts.last_batch_s is None:
            return HealthCondition.STARTING, None
        many = facts.pending * facts.interval_ms / 1_000 > facts.late_s
        return HealthCondition.CATCHING_UP if many else HealthCondition.SERVING, None
    lasting = lasting_held(facts, now_s)
    if lasting:
        return HealthCondition.UPSTREAM_STUCK, _held(facts, lasting, now_s)
    return _late(facts, now_s, idle_s)


def lasting_held(facts: HealthFacts, now_s: float) -> list[StuckPartition]:
    """The partitions that have been held for longer than transactions are usually open."""
    return [each for each in facts.held if now_s - each.since_s >= facts.lasting_s]


def _interruption(facts: HealthFacts, now_s: float) -> BackfillError | None:
    """The error that interrupted the service since its last batch; an unreachable Kafka is the cause of all others."""
    away, trouble = facts.away, facts.trouble
    if away is not None and away.until_s is None and away.since_s >= facts.since_s:
        lasts = now_s - away.since_s >= facts.lasting_s
        return away.problem if lasts or trouble is not None else None
    if trouble is None:
        return None
    cause = _recovering(facts, now_s)
    is_explained = away is not None and trouble.since_s >= away.since_s
    return cause if cause is not None and is_explained else trouble.problem


def _recovering(facts: HealthFacts, now_s: float) -> BackfillError | None:
    """The outage of the broker that explains why nothing comes out yet, if it is over and was since the last batch."""
    away = facts.away
    if away is None or away.until_s is None or away.until_s < facts.since_s:
        return None
    ended_s = now_s - away.until_s
    if ended_s > facts.grace_s:
        return None
    return EnvironmentProblem(
        away.problem.code,
        where=away.problem.where,
        found=f"an outage of {_seconds(away.until_s - away.since_s)}, over since {_seconds(ended_s)}, "
        "and no batch since",
        expected=away.problem.expected,
        next_step=f"wait: a batch should end within {_seconds(facts.grace_s - ended_s)}",
    )


def _late(facts: HealthFacts, now_s: float, idle_s: float) -> tuple[HealthCondition, BackfillError | None]:
    condition, reason = _late_by_itself(facts, now_s, idle_s)
    if condition in (HealthCondition.STUCK, HealthCondition.WAITING) and (cause := _recovering(facts, now_s)):
        return HealthCondition.DEGRADED, cause
    return condition, reason


def _late_by_itself(
    facts: HealthFacts, now_s: float, idle_s: float
) -> tuple[HealthCondition, BackfillError | None]:
    works = facts.progress_s is not None and now_s - facts.progress_s <= facts.late_s
    busy = facts.busy_since_s is not None
    if (busy or (facts.pending and facts.streaming_since_s is not None)) and not works:
        return HealthCondition.STUCK, _stuck(facts, now_s, idle_s)
    # A long job without pending barriers searches for barriers in very many records.
    at_work = facts.pending or (busy and now_s - (facts.busy_since_s or 0.0) >= facts.lasting_s)
    if facts.streaming_since_s is None or (at_work and facts.last_batch_s is None):
        return HealthCondition.STARTING, None
    if at_work:
        return HealthCondition.CATCHING_UP, None
    if isinstance(facts.hindered, EnvironmentProblem):
        return HealthCondition.DEGRADED, facts.hindered
    # A start that takes long has seen no barrier because it has not looked for one.
    waited_s = now_s - max(facts.since_s, facts.streaming_since_s)
    if waited_s <= facts.late_s:
        return HealthCondition.STARTING, None
    return HealthCondition.WAITING, _waiting(facts, waited_s)


def _held(facts: HealthFacts, held: Sequence[StuckPartition], now_s: float) -> TopicError:
    first = min(held, key=lambda each: each.since_s)
    others = f", and {len(held) - 1} more partitions like it" if len(held) > 1 else ""
    return TopicError(
        Code.BARRIER_STALLED,
        where=f"{facts.upstream}-{first.partition}@{first.stable}",
        found=f"an open transaction, for {_seconds(now_s - first.since_s)} at least, with {first.high - first.stable} "
        f"records from there on that no committed reader sees{others}",
    )


def _waiting(facts: HealthFacts, waited_s: float) -> BackfillError:
    if facts.missing:
        return TopicError(
            Code.BARRIER_STALLED,
            where=", ".join(f"{facts.upstream}-{number}@{offset}" for number, offset in facts.missing),
            found=f"no barrier there that other partitions have, and no batch for {_seconds(waited_s)}",
            expected="each barrier in every partition",
            next_step="see what injects barriers into this topic, and whether all its copies arrive",
        )
    if facts.hindered is not None:
        return facts.hindered
    found = f"no new barrier for {_seconds(waited_s)}"
    next_step = "see in the log what keeps this service's own injector"
    if not facts.injects:
        next_step = "start what injects barriers into this topic: `backfill barriers`, or its owner's service"
    return TopicError(
        Code.NO_BARRIERS,
        where=facts.upstream,
        found=found,
        next_step=next_step,
        interval=_seconds(facts.interval_ms / 1_000),
    )


def _stuck(facts: HealthFacts, now_s: float, idle_s: float) -> EnvironmentProblem:
    still_s = idle_s if facts.progress_s is None else min(idle_s, now_s - facts.progress_s)
    return EnvironmentProblem(
        Code.NO_PROGRESS,
        where=facts.upstream,
        found=f"a batch without a sign of progress for {_seconds(still_s)}",
        late=_seconds(facts.late_s),
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 1 else f"{seconds:.0f} s"
