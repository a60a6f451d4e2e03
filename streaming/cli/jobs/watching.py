"""Jobs as bars: on a terminal they move; elsewhere a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from streaming.control.state_view import JobView, StateView
from streaming.core.forecast import DONE, Forecast, JobsProgress, Rate

LOOK_EVERY_S = 0.5
_PLAIN_EVERY_S = 5.0
_BAR_WIDTH = 24
_READING = " reading"
"""Among the bars, beside names of jobs, none of which begins so."""


class Bars:
    """One bar a job, for as long as the context is open."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks: dict[str, TaskID] = {}
        self._printed_s = 0.0
        self._printed: dict[str, str] = {}
        self._reading = Rate()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(_BAR_WIDTH),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )

    def shown(self) -> Progress:
        """A context: bars are drawn until its block ends."""
        return self._progress

    def show(self, jobs: Sequence[JobView], forecasts: dict[str, Forecast]) -> None:
        """Show how far the jobs are; without a terminal a line for each every few seconds."""
        plain = not self._console.is_terminal and time.monotonic() - self._printed_s >= _PLAIN_EVERY_S
        for job in jobs:
            note = described(job, forecasts[job.name])
            if job.name not in self._tasks:
                self._tasks[job.name] = self._progress.add_task(job.name, total=1.0, note="")
            self._progress.update(self._tasks[job.name], completed=forecasts[job.name].share, note=note)
            if plain:
                self._printed_s = time.monotonic()
                self._print(job.name, note)

    def show_last(self, jobs: Sequence[JobView], forecasts: dict[str, Forecast]) -> None:
        """A line for each job that stays, behind its bar; without a terminal none that was the last one anyway."""
        for job in jobs:
            note = described(job, forecasts[job.name])
            if self._printed.get(job.name) != note:
                self._print(job.name, note)

    def _print(self, name: str, note: str) -> None:
        self._printed[name] = note
        self._console.print(f"{name}: {note}", soft_wrap=True, highlight=False)

    def show_reading(self, view: StateView) -> None:
        """Show the progress of the table that the state starts from: its released rows."""
        if view.read is None or view.database is None:
            if _READING in self._tasks:
                self._progress.update(self._tasks[_READING], visible=False)
            return
        of = max(view.database.survey.rows, view.rows_stored, 1)
        done, now_s = view.rows_stored, time.monotonic()
        self._reading.note(view.done_ms or round(now_s * 1_000), done)
        rate = self._reading.at(view.done_ms or round(now_s * 1_000))
        note = f"{done:,} of about {of:,} rows of the database"
        if rate:
            note += f", {seconds_text((of - done) / rate)} left"
        if _READING not in self._tasks:
            self._tasks[_READING] = self._progress.add_task("reading", total=1.0, note="")
        self._progress.update(self._tasks[_READING], completed=done / of, note=note)
        if not self._console.is_terminal and now_s - self._printed_s >= _PLAIN_EVERY_S:
            self._printed_s = now_s
            self._print("reading", note)


def described(job: JobView, forecast: Forecast) -> str:
    """One line: share, rows, rate, time left; or why nothing moves."""
    seen = forecast.extent
    parts = [f"{forecast.share:6.1%}" if seen.rows_left else "100.0%", f"{seen.rows_read:,} rows"]
    if job.phase != "backfilling":
        parts.append(job.phase)
    else:
        rate, left_s = forecast.rows_per_s, forecast.seconds_left
        parts.append("-/s" if rate is None else f"{rate:,.0f}/s")
        parts.append("- left" if left_s is None else f"{seconds_text(left_s)} left")
    if forecast.grew:
        parts.append("the table grew")
    return ", ".join(parts)


def seconds_text(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class StateForecasts:
    """Forecasts of every job, of one reading of the state after another."""

    def __init__(self) -> None:
        self._progress = JobsProgress()
        self._done_ms: int | None = None
        self._seen_ms = 0

    def after(self, view: StateView) -> dict[str, Forecast]:
        """Forecasts as of now, with one more reading."""
        now_ms = time.monotonic_ns() // 1_000_000
        # A rate goes by the time at which a batch has ended, and not at which that was seen.
        done_ms = now_ms if view.done_ms is None else view.done_ms
        if done_ms != self._done_ms:
            self._done_ms, self._seen_ms = done_ms, now_ms
        self._progress.note(done_ms, [(job.state, job.extent) for job in view.jobs], owner=view.owner)
        return self._progress.at(done_ms + now_ms - self._seen_ms)


def watch(
    console: Console, look: Callable[[], StateView], chosen: Callable[[StateView], Sequence[JobView]]
) -> None:
    """Show jobs as they go on, until Ctrl-C or until every one that is chosen is complete."""
    bars, known = Bars(console), StateForecasts()
    with bars.shown():
        while True:
            view = look()
            forecasts, jobs = known.after(view), chosen(view)
            bars.show_reading(view)
            bars.show(jobs, forecasts)
            if view.read is None and all(job.phase in DONE for job in jobs):
                break
            time.sleep(LOOK_EVERY_S)
    bars.show_last(jobs, forecasts)
