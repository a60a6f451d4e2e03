"""The next barrier and its time: the injector's decisions, without a clock or a topic.

Epochs are made from the wall clock, and the schedule runs on a monotonic one: a clock that is set back makes epochs
follow each other closely, never a barrier early or late.
"""

from __future__ import annotations

from schemas.epoch import NO_EPOCH, next_epoch
from schemas.records import Barrier, BarrierKind, Mutation


def next_barrier(last: Barrier | None, *, partitions: int, now_ms: int, mutation: Mutation | None) -> Barrier:
    """The barrier after `last` (None: the topic has none) at the wall-clock instant `now_ms`.

    A topic's first barrier is INITIAL and has prev 0. All others are CHECKPOINT: the service makes each
    barrier durable, so there is nothing for the kind BARRIER to say.
    """
    prev = NO_EPOCH if last is None else last.curr
    return Barrier(
        curr=next_epoch(prev, now_ms),
        prev=prev,
        kind=BarrierKind.INITIAL if last is None else BarrierKind.CHECKPOINT,
        partitions=partitions,
        injected_at_ms=now_ms,
        mutation=mutation,
    )


def is_wanted(after: int | None, last: Barrier | None) -> bool:
    """True if a barrier behind the epoch `after` (None: not wanted) has yet to be sent, `last` being the newest.

    One that came while its batch ran is enough. Were another one sent, each change would wait for two batches before
    its own, not for one: a backfill with a latency budget of 2 s had a median of 1.5 to 1.7 s, not of 1.4 s.
    """
    return after is not None and (last is None or last.curr <= after)


def next_due_ms(due_ms: int, now_ms: int, interval_ms: int) -> int:
    """The time, in milliseconds, at which the barrier after the one that was due at `due_ms` is due.

    Always a whole number of intervals after it, so the schedule does not drift; and never in the past, so a
    stall is followed by one barrier, not by one for each that was missed.
    """
    return due_ms + max(1, -((due_ms - now_ms) // interval_ms)) * interval_ms
