"""Log lines of a running service: each batch at debug, their sum once a minute at info; and progress of a build."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import structlog

from state.initial.start import CopyProgress
from state.values.plan import BatchPlan
from state.values.progress import parts_done
from streaming.core.forecast import Rate
from streaming.protocol.report import BatchReport

if TYPE_CHECKING:
    from streaming.postgres.copying import TableStatus

SUM_EVERY_S, LINE_EVERY_S = 60.0, 5.0

log = structlog.get_logger()


class BatchLog:
    """Logs the batches of one service, from the thread of its stream. Call `close` at the end.

    A batch is part of the next `batches` line, which comes with the first batch at least a minute after the line
    before it. Where batches without records are all there is, no line comes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged_s = -float("inf")
        self._last: BatchReport | None = None
        self._counts, self._read = Counter[str](), set[str]()

    def note(self, report: BatchReport) -> None:
        """Take a batch into account."""
        log.debug("batch", **_fields_of(report))
        self._last = report
        took = sum(round(took) for took in report.step_ms.values())
        self._counts.update(_counts_of(report), batches=1, barriers=len(report.plan.barriers), busy_ms=took)
        self._read.update(name for name, rows in report.snapshot_rows.items() if rows)
        if self._clock() - self._logged_s >= SUM_EVERY_S:
            self.close()

    def close(self) -> None:
        """Log the sum of what was not logged yet, if there was anything to do."""
        counts, read, last = self._counts, self._read, self._last
        self._counts, self._read = Counter(), set()
        if last is None or not any(counts[name] for name in _counts_of(last)):
            return
        self._logged_s = self._clock()
        log.info(
            "batches",
            epoch=last.plan.epoch,
            **{name: count for name, count in counts.items() if count},
            upstream_records=sum(last.plan.end.ends),
            log_rows=last.files.log_rows,
            log_files=len(last.files.log),
            **_parts_done(last, read),
        )


def _counts_of(report: BatchReport) -> dict[str, int]:
    return {
        "changes": report.changes,
        "snapshot_rows": sum(report.snapshot_rows.values()),
        "parked": len(report.plan.parked),
        "released_rows": report.released_rows,
    }


def _fields_of(report: BatchReport) -> Mapping[str, object]:
    return {
        "epoch": report.plan.epoch,
        "barriers": len(report.plan.barriers),
        **_counts_of(report),
        "upstream_records": sum(report.plan.end.ends),
        "vnodes": report.vnode_count,
        "log_rows": report.files.log_rows,
        "log_files": len(report.files.log),
        "way": report.way,
        **{f"{step}_ms": round(took) for step, took in report.step_ms.items()},
        "lane_steps": {step: round(took) for step, took in report.lane_ms.items()},
        **_parts_done(report, report.progress),
    }


def _parts_done(report: BatchReport, jobs: Collection[str]) -> dict[str, int]:
    progress = report.progress
    return {f"vnodes_done.{name}": parts_done(progress[name]) for name in jobs if name in progress}


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
