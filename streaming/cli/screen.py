"""The screen of a running service: steps of its start, then one line that is rewritten, and above it events.

All that it shows of a start comes as log events, which other readers get as lines:

    starting    a step begins, and the one before it is over
    started     a step that went on beside the others is over
    building, copying, sorting, reading    progress of the step under way

The line afterwards is made from the service's status, which the API and the page show as well.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text
from structlog import DropEvent

from streaming.cli.jobs.watching import seconds_text
from streaming.core.forecast import DONE
from streaming.core.health import HealthCondition
from streaming.observe.models import JobStatus, Status
from streaming.runtime.timing import repeated

_TICK_S = 0.25
_TICKS_OF_STATUS = 4
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR_WIDTH = 20
_PROGRESS = frozenset({"building", "copying", "sorting", "reading"})
_UNSHOWN = frozenset({"batches"})
"""Events that the line shows."""
_NAME = 20
"""Most characters of a job's name."""
_Forms = tuple[str, ...]
"""A part of the line, from its longest form to its shortest."""
_FINE = (HealthCondition.SERVING, HealthCondition.CATCHING_UP)
_INDENT = " " * 10
_STYLES = {"warning": "yellow", "error": "bold red", "critical": "bold red", "debug": "dim"}
_TEXTS = {"reason": "", "found": "found ", "expected": "expected ", "next_step": "next: "}
"""Fields that are sentences, in this order, and the word before each."""
_BY_ITSELF = ("event", "level", "timestamp", *_TEXTS)


class ServiceScreen:
    """The screen, while a block of `drawn` is open. `event` is the last processor of structlog, for any thread."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._step: str | None = "loading"
        self._began_s, self._beside = clock(), dict[str, float]()
        self._note = ""
        self._look: Callable[[], Status] | None = None
        self._status: Status | None = None
        self._ticks = 0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    @contextmanager
    def drawn(self) -> Iterator[Self]:
        """Draw it, several times a second, until the block ends."""
        with self._live, repeated(self._tick, _TICK_S, name="screen", end_within_s=1.0):
            yield self

    def follow(self, look: Callable[[], Status]) -> None:
        """Show the service's status from the end of its start on."""
        self._look = look

    def event(
        self, _logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Show an event of structlog, as a line or in the line. Raises: DropEvent, as nothing is left to print."""
        name, step = event["event"], str(event.get("step"))
        if name == "starting" and event.get("beside"):
            self._beside[step] = self._clock()
        elif name == "starting":
            self._end_step()
            self._step, self._began_s, self._note = step, self._clock(), ""
        elif name == "started":
            self._print_end(step, self._beside.pop(step, None))
        elif name in _PROGRESS and self._step is not None:
            self._note = progress_text(event)
        elif name not in _UNSHOWN:
            if name == "serving":
                self._end_step()
            self._console.print(event_text({**event, "level": method}, self._console.width))
        raise DropEvent

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            self._print_end(step, self._began_s)

    def _print_end(self, step: str, began_s: float | None) -> None:
        if began_s is not None:
            took = f"{self._clock() - began_s:7.1f} s"
            self._console.print(Text.assemble((f"{'✓':>8}  ", "green"), f"{step:<58}", (took, "dim")))

    def _tick(self) -> bool:
        self._ticks += 1
        if self._look is not None and self._step is None and self._ticks % _TICKS_OF_STATUS == 0:
            with suppress(Exception):  # whatever it is, the service goes on without this line
                self._status = self._look()
        self._live.update(self.line(), refresh=True)
        return True

    def line(self) -> Text:
        """The line that is rewritten, as of now."""
        width, step = self._console.width - 1, self._step
        if step is None:
            return Text("starting") if self._status is None else status_line(self._status, width)
        now_s = self._clock()
        frame = _FRAMES[self._ticks % len(_FRAMES)]
        shown = self._note or f"{step}, {seconds_text(now_s - self._began_s)}"
        line = Text.assemble((f"{frame:>8}  ", "cyan"), shown)
        for other, began_s in list(self._beside.items()):
            line.append(f" · {other} comes up, {seconds_text(now_s - began_s)}", "dim")
        line.truncate(width, overflow="ellipsis")
        return line


def progress_text(event: MutableMapping[str, Any]) -> str:
    """Progress of a long step in one line: a bar where the whole is known, counts, the time left."""
    unit = "records" if event["event"] == "building" else "rows"
    done, total = event[unit], event.get("of")
    parts = [f"{done:,} of {total:,} {unit}" if total else f"{done:,} {unit}"]
    if "seconds_left" in event:
        parts.append(f"{seconds_text(event['seconds_left'])} left")
    if "waits_for" in event:
        parts.append(f"waits for {event['waits_for']}")
    full = round(_BAR_WIDTH * min(done / total, 1.0)) if total else 0
    bar = f"{'━' * full}{'╌' * (_BAR_WIDTH - full)} " if total else ""
    return f"{event['event']} {bar}{', '.join(parts)}"


def status_line(status: Status, width: int) -> Text:
    """The line, cut to `width` columns. Figures that are not known now are left out."""
    code = "" if status.reason is None else f": {status.reason.code}"
    is_fine = status.ready and status.condition in _FINE
    line = Text.assemble(("● ", "green" if is_fine else "yellow"), f"{status.condition}{code}")
    for forms in _parts(status) if is_fine else _trouble(status):
        room = width - line.cell_len - 3
        line.append(next((f" · {form}" for form in forms if len(form) <= room), ""))
    line.truncate(width, overflow="ellipsis")
    return line


def _trouble(status: Status) -> list[_Forms]:
    parts: list[_Forms] = [] if status.step is None else [(status.step,)]
    if status.batch_age_s is not None:
        parts.append((f"no batch for {seconds_text(status.batch_age_s)}",))
    return parts


def _parts(status: Status) -> list[_Forms]:
    count = len(status.jobs)
    parts: list[_Forms] = [(f"{count} outputs" if count != 1 else "1 output",) if count else ("no job yet",)]
    if status.barrier_age_s is not None:
        parts.append((f"{status.barrier_age_s:.1f} s behind",))
    under_way = [job for job in status.jobs if job.phase not in (*DONE, "starting")]
    if under_way:
        more = f" and {len(under_way) - 1} more" if len(under_way) > 1 else ""
        parts.append(tuple(f"{form}{more}" for form in _job(under_way[0])))
    if status.changes_per_s is not None:
        parts.append((f"{status.changes_per_s:,.0f} changes/s",))
    return parts


def _job(job: JobStatus) -> _Forms:
    name = job.name if len(job.name) <= _NAME else f"{job.name[: _NAME - 1]}…"
    begin = f"{name} {job.share:.1%}"
    if job.phase != "backfilling":
        return f"{begin}, {job.phase}", begin
    rate = "" if job.rows_per_s is None else f", {job.rows_per_s:,.0f} rows/s"
    left = "" if job.seconds_left is None else f", {seconds_text(job.seconds_left)} left"
    return f"{begin}{rate}{left}", f"{begin}{left}", begin


def event_text(event: Mapping[str, object], width: int) -> Text:
    """An event of structlog for a person: the time, it in words, its fields; long texts below, wrapped to `width`."""
    shown = {name: value for name, value in event.items() if name not in _BY_ITSELF and value is not None}
    words = str(event["event"]).replace("_", " ")
    if "is_now" in shown:  # a condition is its name
        words = f"{words}: {shown.pop('is_now')}"
    if "code" in shown:
        words = f"{words} {shown.pop('code')}"
    fields = " ".join(f"{name}={value}" for name, value in shown.items())
    lines = _wrapped(f"{words}  {fields}".rstrip(), width)
    for name, word in _TEXTS.items():
        if event.get(name):
            lines += _wrapped(f"{word}{event[name]}", width)
    now = time.strftime("%H:%M:%S")
    style = _STYLES.get(str(event.get("level")), "")
    return Text.assemble((f"{now}  ", "dim"), ("\n".join(lines).removeprefix(_INDENT), style))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width - 1, 40), initial_indent=_INDENT, subsequent_indent=_INDENT, drop_whitespace=True
    )
