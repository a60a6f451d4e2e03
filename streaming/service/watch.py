"""What is looked at beside the batches, every now and then: is the upstream still the same, and does it come in whole?

A barrier that is missing in one partition holds everything up, and rightly so: nothing may be sent past it. It is told
as BARRIER_STALLED, in the log and again for as long as it lasts, and the service waits: starting it anew would not
bring the barrier, and whoever brings it may only be slow.
"""

from __future__ import annotations

import time
from contextlib import suppress

import structlog

from schemas.errors import Code, EnvironmentProblem
from streaming.core.alignment import Aligner
from streaming.service.batches import Batches
from streaming.service.guard import UpstreamGuard

STALL_S = 60.0
"""A barrier that some partitions have and others still lack after this long is told, and each time as long again."""
_GUARD_INTERVAL_S = 5.0

log = structlog.get_logger(__name__)


class Watch:
    """Call `look` often, from one thread; batches may run meanwhile in another."""

    def __init__(self, guard: UpstreamGuard, aligner: Aligner, batches: Batches, stall_s: float) -> None:
        self._guard, self._aligner, self._batches, self._stall_s = guard, aligner, batches, stall_s
        self._next_guard_s = time.monotonic() + _GUARD_INTERVAL_S
        self._behind: tuple[int, ...] = ()
        self._behind_since_s = self._told_s = time.monotonic()

    def look(self) -> None:
        """Raises: TopicError, InputError, StateError as `UpstreamGuard.check`; a broker that is away is none."""
        now_s = time.monotonic()
        self._look_for_stall(now_s)
        if now_s < self._next_guard_s:
            return
        with suppress(EnvironmentProblem):
            self._guard.check(self._batches.next_offsets())
        self._next_guard_s = time.monotonic() + _GUARD_INTERVAL_S

    def _look_for_stall(self, now_s: float) -> None:
        waiting = self._aligner.waiting
        behind = tuple(p for p, count in enumerate(waiting) if not count) if any(waiting) else ()
        if behind != self._behind:
            self._behind, self._behind_since_s, self._told_s = behind, now_s, now_s
        elif behind and now_s - self._told_s >= self._stall_s:
            self._told_s = now_s
            log.warning(
                "barrier_stalled",
                code=Code.BARRIER_STALLED,
                missing_in=list(behind),
                since_s=round(now_s - self._behind_since_s),
                waiting=max(waiting),
            )
