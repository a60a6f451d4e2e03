"""Progress of building a replica: a bar on a terminal, elsewhere a log line every few seconds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from state.initial.copy_progress import CopyProgress
from state.values.plan import BatchPlan

if TYPE_CHECKING:
    from streaming.service.initial.reading import TableStatus

_LINE_EVERY_S = 5.0
_BAR_WIDTH = 24

log = structlog.get_logger()


class BuildBar:
    """Call it after each part of a long interval, `copied` after parts of a copy, and `close` once a batch is done."""

    def __init__(self, *, begins_late: bool = False) -> None:
        """`begins_late`: the topic is not read from its first record on; the bar is for what is left of it."""
        self._before: int | None = None if begins_late else 0
        console = Console(stderr=True)
        self._bar = console.is_terminal and sys.stderr.isatty()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(_BAR_WIDTH),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]},"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, tuple[float, int]] = {}
        self._logged_s = 0.0

    def __call__(self, plan: BatchPlan) -> None:
        """A part is in the log; the plan says up to where, and where its interval ends."""
        if self._before is None:
            self._before = sum(plan.first_offsets)
        before = self._before if plan.start is None else sum(plan.start.ends)
        self._show("replica", "records", plan.end_records - before, sum(plan.end.ends) - before)

    def copied(self, progress: CopyProgress | None) -> None:
        """Parts of the table that the replica starts from are in it; None: all of them."""
        if progress is None:
            self.close()
        elif progress.sorted:
            self._show("sorting", "rows", progress.sorted, progress.copied)
        else:
            self._show("copying", "rows", progress.copied, progress.of)

    def read(self, status: TableStatus | None) -> None:
        """Beside batches, which have lines of their own, the reading of a database has one now and then."""
        if status is None or time.monotonic() - self._logged_s < _LINE_EVERY_S:
            return
        self._logged_s = time.monotonic()
        left = {} if status.left_s is None else {"seconds_left": round(status.left_s)}
        trouble = {} if status.trouble is None else {"waits_for": status.trouble}
        log.info(
            "reading", rows=status.rows, of=status.of, waiting_rows=status.waiting_rows, **left, **trouble
        )

    def _show(self, what: str, unit: str, done: int, total: int | None) -> None:
        # The first part may be one of an earlier run: rates go by what comes after it.
        self._began.setdefault(what, (time.monotonic(), done))
        if self._bar:
            self._draw(what, unit, done, total)
        elif time.monotonic() - self._logged_s >= _LINE_EVERY_S:
            self._logged_s = time.monotonic()
            word = "building" if what == "replica" else what
            log.info(word, **{unit: done}, of=total, **self._rate(what, unit, done, total))

    def _draw(self, what: str, unit: str, done: int, total: int | None) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total, unit=unit)
            self._progress.start()
        self._progress.update(self._tasks[what], completed=done, total=total)

    def _rate(self, what: str, unit: str, done: int, total: int | None) -> dict[str, int]:
        began_s, first = self._began[what]
        if done <= first:
            return {}
        rate = (done - first) / max(time.monotonic() - began_s, 1e-3)
        left = {} if total is None else {"seconds_left": round((total - done) / rate)}
        return {f"{unit}_per_s": round(rate), **left}

    def close(self) -> None:
        """Take the bars away. Idempotent."""
        if self._tasks:  # one that was never drawn would end with an empty line
            self._progress.stop()
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._tasks.clear()
        self._began.clear()
