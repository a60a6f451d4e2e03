"""Events of a service in the last hour, in bounded memory: starts, ends, take-overs, conditions, requests.

The last start and the last end are kept for longer, and the condition that an hour ago was that of the service.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from schemas.errors import BackfillError, Code
from state.values.last_end import LastEnd
from streaming.core.health import HealthCondition

HOUR_S = 3_600.0
_MOST_CONDITIONS, _MOST_OTHERS = 200, 300


class EventKind(StrEnum):
    """Kinds of events; the values are those of the API."""

    STARTED = "started"
    ENDED = "ended"
    """Of the process before this one, as its state has it."""
    TAKEN_OVER = "taken over"
    CONDITION = "condition"
    REQUEST = "request"
    """A mutation that took effect, or was refused; also a pause or a new column by the service itself."""
    COMPLETED = "completed"
    """The backfill of a job."""


_ALWAYS = (EventKind.STARTED, EventKind.ENDED, EventKind.TAKEN_OVER)


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """`at` is in Unix seconds. `condition` is that of the service from then on, None where it stays as it was."""

    at: float
    kind: EventKind
    text: str
    condition: HealthCondition | None = None
    code: Code | None = None
    job: str | None = None


class EventLog:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._conditions = deque[ServiceEvent](maxlen=_MOST_CONDITIONS)
        self._others = deque[ServiceEvent](maxlen=_MOST_OTHERS)
        self._last: dict[EventKind, ServiceEvent] = {}

    def note(self, event: ServiceEvent) -> None:
        """Add an event."""
        with self._lock:
            if event.kind is EventKind.CONDITION:
                self._conditions.append(event)
            elif event.kind in _ALWAYS:
                self._last[event.kind] = event
            else:
                self._others.append(event)

    def note_condition(self, at: float, condition: HealthCondition, reason: BackfillError | None) -> None:
        """Add a condition that begins."""
        text, code = ("", None) if reason is None else (reason.summary, reason.code)
        self.note(ServiceEvent(at, EventKind.CONDITION, text, condition, code))

    def note_end(self, end: LastEnd) -> None:
        """Add how the process before ended."""
        fault = end.fault
        why, code = ("", None) if fault is None else (f": {fault.to_error().summary}", fault.code)
        self.note(ServiceEvent(end.at_ms / 1_000, EventKind.ENDED, f"{end.words}{why}", code=code))

    def since_an_hour(self, now: float) -> list[ServiceEvent]:
        """All that count, oldest first."""
        begin = now - HOUR_S
        with self._lock:
            recent = [each for each in (*self._conditions, *self._others) if each.at >= begin]
            before = [each for each in self._conditions if each.at < begin][-1:]
            return sorted([*before, *self._last.values(), *recent], key=lambda each: each.at)
