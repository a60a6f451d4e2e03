"""Display of the demo: on a terminal a line for each step, from the start; elsewhere a line as each one ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.text import Text

from schemas.epoch import unix_ms_from_epoch
from state.values.progress import is_complete
from streaming.protocol.report import BatchReport

_PLAIN_EVERY_S = 5.0
_BAR_WIDTH = 18


@dataclass
class _Step:
    task: TaskID
    began: float | None = None
    reported_s: float = 0.0


class _Mark(ProgressColumn):
    """Column: a dot before a step, a spinner during it, a tick after it."""

    def __init__(self) -> None:
        self._spinner = SpinnerColumn()
        super().__init__()

    def render(self, task: Task) -> Text:
        if task.fields["done"]:
            return Text("✓", style="green")
        if not task.started:
            return Text("·", style="dim")
        spinner = self._spinner.render(task)
        return spinner if isinstance(spinner, Text) else Text("…")


class _Took(ProgressColumn):
    """Column: seconds since the step began."""

    max_refresh = 0.2

    def render(self, task: Task) -> Text:
        took = task.finished_time if task.fields["done"] else task.elapsed
        return Text("" if took is None else f"{took:4.0f} s", style="dim")


class StepConsole:
    """Console of steps that begin, progress and end; several may be under way. Use it as a context."""

    def __init__(self, console: Console, steps: Sequence[str]) -> None:
        self._console = console
        self._progress = Progress(
            _Mark(),
            TextColumn("{task.description}"),
            BarColumn(_BAR_WIDTH, pulse_style="bar.back"),
            TextColumn("{task.fields[note]}"),
            _Took(),
            console=console,
            disable=not console.is_terminal,
        )
        self._steps = {
            name: _Step(self._progress.add_task(name, start=False, total=1, note="", done=False))
            for name in steps
        }

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, name: str, note: str, *, total: float | None = None) -> None:
        """Begin a step; without a `total` its end is unknown."""
        step = self._steps[name]
        step.began = step.reported_s = time.monotonic()
        self._progress.start_task(step.task)
        self._progress.update(step.task, total=total, note=note)

    def update(self, name: str, note: str, *, completed: float = 0, total: float | None = None) -> None:
        """Show the progress of a step; without a terminal every few seconds."""
        step, now = self._steps[name], time.monotonic()
        self._progress.update(step.task, completed=completed, total=total, note=note)
        if now - step.reported_s >= _PLAIN_EVERY_S:
            step.reported_s = now
            self._plain(f"  {name}: {note}")

    def end(self, name: str, note: str) -> None:
        """End a step; `note` stays on the screen."""
        step = self._steps[name]
        took = time.monotonic() - (step.began or time.monotonic())
        self._progress.update(step.task, total=1, completed=1, note=note, done=True)
        self._plain(f"{name}: {note} ({took:.1f} s)")

    def _plain(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, soft_wrap=True, highlight=False)


@dataclass
class DemoProgress:
    """Progress of one job's backfill, from batch reports. `note` is called from the stream's thread, the rest from any.

    Instants are Unix seconds. The replica stands at the end of the first batch; the job reads from then on.
    """

    job: str
    vnode_count: int
    barriers: int = 0
    changes: int = 0
    snapshot_rows: int = 0
    snapshot_sent: int = 0
    live_sent: int = 0
    about_rows: int = 0
    """Estimate of the rows that the snapshot will read, from the replica's files."""
    last_epoch: int = 0
    lag_s: float = 0.0
    """Seconds from the last batch's first barrier until its output was readable."""
    replica_at: float | None = None
    complete_at: float | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, report: BatchReport) -> None:
        now = time.time()
        with self._changed:
            self.barriers += len(report.plan.barriers)
            self.changes += report.changes
            self.snapshot_rows += report.snapshot_rows.get(self.job, 0)
            self.snapshot_sent += report.sent_snapshot.get(self.job, 0)
            self.live_sent += report.sent_live.get(self.job, 0)
            self.last_epoch = report.plan.epoch
            self.lag_s = now - unix_ms_from_epoch(report.plan.barriers[0].epoch) / 1_000
            if self.replica_at is None:
                self.replica_at, self.about_rows = now, report.changes
            elif self.complete_at is None:
                self.about_rows = max(report.files.rows, self.snapshot_rows)
                if is_complete(report.progress.get(self.job, {}), self.vnode_count):
                    self.complete_at, self.about_rows = now, self.snapshot_rows
            self._changed.notify_all()

    def await_change(self, timeout_s: float) -> None:
        """Return at the next batch, or when the time is over."""
        with self._changed:
            self._changed.wait(timeout_s)

    def has_passed(self, unix_s: float) -> bool:
        """True if the output holds all changes produced before an instant."""
        return self.last_epoch > 0 and unix_ms_from_epoch(self.last_epoch) / 1_000 > unix_s

    @property
    def snapshot_rate(self) -> float:
        """Rows per second that the snapshot has read since the replica stood."""
        if self.replica_at is None:
            return 0.0
        return self.snapshot_rows / max((self.complete_at or time.time()) - self.replica_at, 1e-3)

    @property
    def left_s(self) -> float | None:
        """Seconds until completion at the rate so far; None before there is one."""
        rate = self.snapshot_rate
        return max(self.about_rows - self.snapshot_rows, 0) / rate if rate else None
