"""Time of steps, and work that is repeated every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def monotonic_ms() -> int:
    """The clock for rates, waits and lateness: it is never set."""
    return time.monotonic_ns() // 1_000_000


class Stopwatch:
    """Adds up milliseconds by step."""

    def __init__(self) -> None:
        self.step_ms: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, step: str) -> None:
        """Book the time since the last lap under this step."""
        now = time.perf_counter()
        self.step_ms[step] = self.step_ms.get(step, 0.0) + (now - self._since) * 1_000
        self._since = now


@contextmanager
def repeated(
    step: Callable[[], bool], every_s: float, *, name: str, end_within_s: float | None = None
) -> Iterator[None]:
    """Call `step` while the block runs, first after `every_s` seconds, until it returns False.

    The end of the block waits for a call under way, at most `end_within_s` (None: as long as it takes); a call that
    lasts longer goes on in a daemon thread. An error of `step` ends the thread and is raised nowhere, so `step` has to
    handle its own.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every_s) and step():
            pass

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(end_within_s)
