"""What the demo shows: on a terminal a line for each step, from the start; elsewhere a line as each one ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.text import Text

_PLAIN_EVERY_S = 5.0
_BAR_WIDTH = 18


@dataclass
class _Step:
    task: TaskID
    began: float | None = None
    reported_s: float = 0.0


class _Mark(ProgressColumn):
    """A dot before, a spinner during, a tick after."""

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
    """Seconds since the step began."""

    max_refresh = 0.2

    def render(self, task: Task) -> Text:
        took = task.finished_time if task.fields["done"] else task.elapsed
        return Text("" if took is None else f"{took:4.0f} s", style="dim")


class StepConsole:
    """Steps that begin, report how far they are, and end; several may be under way. Use it as a context."""

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
        """A step begins; without a `total` its end is not known."""
        step = self._steps[name]
        step.began = step.reported_s = time.monotonic()
        self._progress.start_task(step.task)
        self._progress.update(step.task, total=total, note=note)

    def update(self, name: str, note: str, *, completed: float = 0, total: float | None = None) -> None:
        """Report how far a step is; without a terminal every few seconds."""
        step, now = self._steps[name], time.monotonic()
        self._progress.update(step.task, completed=completed, total=total, note=note)
        if now - step.reported_s >= _PLAIN_EVERY_S:
            step.reported_s = now
            self._plain(f"  {name}: {note}")

    def end(self, name: str, note: str) -> None:
        """A step is done; `note` is what remains to be said about it."""
        step = self._steps[name]
        took = time.monotonic() - (step.began or time.monotonic())
        self._progress.update(step.task, total=1, completed=1, note=note, done=True)
        self._plain(f"{name}: {note} ({took:.1f} s)")

    def _plain(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, soft_wrap=True, highlight=False)
