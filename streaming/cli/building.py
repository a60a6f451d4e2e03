"""A long interval on its way into the replica: a bar on a terminal, elsewhere a log line every few seconds."""

from __future__ import annotations

import sys
import time

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from state.values.plan import BatchPlan

_LINE_EVERY_S = 5.0
_BAR_WIDTH = 24

log = structlog.get_logger()


class BuildBar:
    """Call it after each part, and `close` once a batch is done."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bar = console.is_terminal and sys.stderr.isatty()
        self._progress = Progress(
            TextColumn("replica"),
            BarColumn(_BAR_WIDTH),
            MofNCompleteColumn(),
            TextColumn("records,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._began: tuple[float, int] | None = None
        self._logged_s = 0.0

    def __call__(self, plan: BatchPlan) -> None:
        """A part is in the log; the plan says up to where, and where its interval ends."""
        before = 0 if plan.start is None else sum(plan.start.ends)
        done, total = plan.end_records - before, sum(plan.end.ends) - before
        if self._began is None:  # the first part may be a recovered one: rates go by what comes after it
            self._began = time.monotonic(), done
        if self._bar:
            self._draw(done, total)
        elif time.monotonic() - self._logged_s >= _LINE_EVERY_S:
            self._logged_s = time.monotonic()
            log.info("building", records=done, of=total, **self._rate(done, total))

    def _draw(self, done: int, total: int) -> None:
        if self._task is None:
            self._task = self._progress.add_task("replica", total=total)
            self._progress.start()
        self._progress.update(self._task, completed=done)

    def _rate(self, done: int, total: int) -> dict[str, int]:
        assert self._began is not None
        began_s, first = self._began
        if done <= first:
            return {}
        rate = (done - first) / max(time.monotonic() - began_s, 1e-3)
        return {"records_per_s": round(rate), "seconds_left": round((total - done) / rate)}

    def close(self) -> None:
        """Take the bar away. Idempotent."""
        if self._task is not None:  # one that was never drawn would end with an empty line
            self._progress.stop()
        self._task = self._began = None
