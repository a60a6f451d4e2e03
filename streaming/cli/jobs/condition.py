"""The condition of a service in words, with an exit status for scripts: as the service says, else from its state."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from state.small_files import is_recent
from state.values.last_end import LastEnd
from streaming.cli.jobs.watching import seconds_text
from streaming.control.service_api import Answer
from streaming.control.state_view import StateView
from streaming.control.ways_on import ways_on
from streaming.core.health import HealthCondition


class StatusExit(IntEnum):
    """Exit statuses of `backfill status`; all others are errors of the command itself."""

    SERVING = 0
    BEHIND = 10
    """Building, catching up, or without barriers for the moment."""
    SUSPENDED = 11
    STOPPED = 12
    NOT_REACHABLE = 13


@dataclass(frozen=True, slots=True)
class ShownCondition:
    """`words` in one line, the `reason` in another, None without one, and the commands that lead on."""

    words: str
    exit_status: StatusExit
    reason: str | None = None
    commands: tuple[str, ...] = ()


def shown_condition(
    answer: Answer | None, view: StateView, *, table: str, late_s: float, seen_ms: int | None
) -> ShownCondition:
    """The condition of a service. `seen_ms` is the Unix time of its process's last sign of life, None without one."""
    lives = is_recent(seen_ms)
    end = view.end
    if end is not None and view.is_suspended:
        return _suspended(end, table, lives=lives or answer is not None)
    if answer is not None:
        return _answered(answer)
    if end is not None and not lives:
        return ShownCondition(ended_text(end), StatusExit.STOPPED, str(end.fault) if end.fault else None)
    age_s = barrier_age_s(view)
    if not lives:
        seen = f"since {moment(seen_ms)}" if seen_ms is not None else "of its process"
        return ShownCondition(f"no sign of life {seen}", StatusExit.NOT_REACHABLE)
    if end is not None or age_s is None:
        last = "" if end is None else f"; before that it {ended_text(end)}"
        return ShownCondition(f"no batch so far{last}", StatusExit.BEHIND)
    if age_s <= late_s:
        return ShownCondition("barriers come out", StatusExit.SERVING)
    late = f"no barrier for {seconds_text(age_s)}: see its log"
    return ShownCondition(late, StatusExit.BEHIND)


def _answered(answer: Answer) -> ShownCondition:
    if answer.ready:
        serves = answer.condition == HealthCondition.SERVING
        return ShownCondition(
            answer.condition, StatusExit.SERVING if serves else StatusExit.BEHIND, answer.reason
        )
    if answer.step is not None:
        return ShownCondition(f"{answer.condition}: {answer.step}", StatusExit.BEHIND, answer.reason)
    since = "" if answer.batch_age_s is None else f", no batch for {seconds_text(answer.batch_age_s)}"
    stops = answer.condition == HealthCondition.STOPPING
    exit_status = StatusExit.STOPPED if stops else StatusExit.BEHIND
    return ShownCondition(f"{answer.condition}: not ready{since}", exit_status, answer.reason)


def _suspended(end: LastEnd, table: str, *, lives: bool) -> ShownCondition:
    again = f", {end.times} times in a row" if end.times > 1 else ""
    further = f"; since then also {', '.join(end.joined)}" if end.joined else ""
    gone = "" if lives else "; its process is gone: start it, it tries once"
    words = f"suspended since {moment(end.since_ms)}{again}{further}{gone}"
    commands = () if end.fault is None else ways_on(end.fault, table)
    return ShownCondition(words, StatusExit.SUSPENDED, str(end.fault) if end.fault else None, commands)


def ended_text(end: LastEnd) -> str:
    """The end of a service in words, with its time."""
    again = f", {end.times} times in a row since {moment(end.since_ms)}" if end.times > 1 else ""
    return f"{end.words} at {moment(end.at_ms)}{again}"


def moment(unix_ms: int) -> str:
    """A time of day, with its date if that is another one."""
    at = datetime.fromtimestamp(unix_ms / 1_000).astimezone()
    return f"{at:%H:%M:%S}" if at.date() == datetime.now().astimezone().date() else f"{at:%Y-%m-%d %H:%M:%S}"


def barrier_age_s(view: StateView) -> float | None:
    """The age of the last barrier that is done; None before the first."""
    if view.plan is None or not view.epoch:
        return None
    done = view.plan.end if view.plan.epoch == view.epoch else view.plan.start
    return None if done is None else max(0.0, time.time() - done.barrier.injected_at_ms / 1_000)
