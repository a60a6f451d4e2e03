"""The screen of a running service: steps of its start, then one line that is rewritten, and above it events.

All that it shows of a start comes as log events, which other readers get as lines:

    starting    a step begins, and the one before it is over
    started     a step that went on beside the others is over
    building, copying, sorting, reading    progress of the step under way

The line afterwards is made from the service's status, which the API and the page show as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text
from structlog import DropEvent

from streaming.cli.jobs.watching import seconds_text
from streaming.cli.screen.events import event_text
from streaming.cli.screen.line import status_line
from streaming.observe.models import Status
from streaming.runtime.timing import repeated

_TICK_S = 0.25
_TICKS_OF_STATUS = 4
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR_WIDTH = 20
_PROGRESS = frozenset({"building", "copying", "sorting", "reading"})
_UNSHOWN = frozenset({"batches"})
"""Events that the line shows."""


@dataclass(frozen=True, slots=True)
class _ShownStep:
    name: str
    began_s: float


class ServiceScreen:
    """The screen, while its block is open. `event` is the last processor of structlog, for any thread."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock, self._lock = console, clock, threading.Lock()
        self._step: _ShownStep | None = _ShownStep("loading", clock())
        self._beside: dict[str, _ShownStep] = {}
        self._note = ""
        self._look: Callable[[], Status] | None = None
        self._status: Status | None = None
        self._ticks = 0
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._live)
            stack.enter_context(repeated(self._tick, _TICK_S, name="screen", end_within_s=1.0))
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def follow(self, look: Callable[[], Status]) -> None:
        """Show the service's status from the end of its start on."""
        self._look = look

    def event(
        self, _logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Show an event of structlog, as a line or in the line. Raises: DropEvent, as nothing is left to print."""
        name = event["event"]
        if name == "starting":
            self._begin(str(event["step"]), is_beside=bool(event.get("beside")))
        elif name == "started":
            self._end_beside(str(event["step"]))
        elif name in _PROGRESS and self._step is not None:
            self._note = progress_text(event)
        elif name not in _UNSHOWN:
            if name == "serving":
                self._end_step()
            self._console.print(event_text({**event, "level": method}, self._console.width))
        raise DropEvent

    def _begin(self, name: str, *, is_beside: bool) -> None:
        if is_beside:
            self._beside[name] = _ShownStep(name, self._clock())
            return
        self._end_step()
        self._step, self._note = _ShownStep(name, self._clock()), ""

    def _end_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            self._print_end(step)

    def _end_beside(self, name: str) -> None:
        step = self._beside.pop(name, None)
        if step is not None:
            self._print_end(step)

    def _print_end(self, step: _ShownStep) -> None:
        took_s = self._clock() - step.began_s
        self._console.print(
            Text.assemble((f"{'✓':>8}  ", "green"), f"{step.name:<58}", (f"{took_s:7.1f} s", "dim"))
        )

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
        line = Text.assemble((f"{frame:>8}  ", "cyan"), f"{step.name}, {seconds_text(now_s - step.began_s)}")
        if self._note:
            line = Text.assemble((f"{frame:>8}  ", "cyan"), self._note)
        for other in self._beside.values():
            line.append(f" · {other.name} comes up, {seconds_text(now_s - other.began_s)}", "dim")
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
