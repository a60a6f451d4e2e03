"""Progress of building a replica, as a log event every few seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from state.initial.copy_progress import CopyProgress
from state.values.plan import BatchPlan
from streaming.core.forecast import Rate

if TYPE_CHECKING:
    from streaming.service.initial.reading import TableStatus

LINE_EVERY_S = 5.0

log = structlog.get_logger()


class BuildLog:
    """Call it after each part of a long interval, `copied` after parts of a copy, and `close` once a batch is done."""

    def __init__(self, *, begins_late: bool = False, every_s: float = LINE_EVERY_S) -> None:
        """`begins_late`: the topic is not read from its first record on; the events tell of what is left of it."""
        self._before: int | None = None if begins_late else 0
        self._every_s, self._logged_s = every_s, -float("inf")
        self._rates: dict[str, Rate] = {}

    def __call__(self, plan: BatchPlan) -> None:
        """A part is in the log; the plan says up to where, and where its interval ends."""
        if self._before is None:
            self._before = sum(plan.first_offsets)
        before = self._before if plan.start is None else sum(plan.start.ends)
        self._log("building", "records", plan.end_records - before, sum(plan.end.ends) - before)

    def copied(self, progress: CopyProgress | None) -> None:
        """Parts of the table that the replica starts from are in it; None: all of them."""
        if progress is None:
            self.close()
        elif progress.sorted:
            self._log("sorting", "rows", progress.sorted, progress.copied)
        else:
            self._log("copying", "rows", progress.copied, progress.of)

    def read(self, status: TableStatus | None) -> None:
        """Beside batches, which have lines of their own, the reading of a database has one now and then."""
        if status is None or not self._is_due():
            return
        left = {} if status.left_s is None else {"seconds_left": round(status.left_s)}
        trouble = {} if status.trouble is None else {"waits_for": status.trouble}
        log.info(
            "reading", rows=status.rows, of=status.of, waiting_rows=status.waiting_rows, **left, **trouble
        )

    def _is_due(self) -> bool:
        now_s = time.monotonic()
        is_due = now_s - self._logged_s >= self._every_s
        self._logged_s = now_s if is_due else self._logged_s
        return is_due

    def _log(self, event: str, unit: str, done: int, total: int | None) -> None:
        rate, now_ms = self._rates.setdefault(event, Rate()), time.monotonic_ns() // 1_000_000
        rate.note(now_ms, done)
        per_s = rate.at(now_ms)
        known = {} if not per_s else {f"{unit}_per_s": round(per_s)}
        if per_s and total is not None:
            known["seconds_left"] = round((total - done) / per_s)
        if self._is_due():
            log.info(event, **{unit: done}, of=total, **known)

    def close(self) -> None:
        """End the events of what was built. Idempotent."""
        self._rates.clear()
