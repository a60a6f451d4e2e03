"""Log lines of batches: each one at debug, and at info one sum a minute of those that had anything to do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import structlog

from state.values.progress import parts_done
from streaming.protocol.report import BatchReport

SUM_EVERY_S = 60.0

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
