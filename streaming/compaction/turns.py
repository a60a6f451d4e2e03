"""Work in parallel with batches, one piece at a time of each kind, in a thread of its own.

Failed work is tried again, after a delay that doubles with each failure in a row. Batches go on meanwhile, only slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from schemas.errors import BackfillError
from state.storage import now_ms

FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 600.0

Result = TypeVar("Result")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The state of one kind of work, for people.

    `running_s`: seconds since it began, None if none is under way. `failures` are those in a row, `error` is the last
    one's code or type.
    """

    work: str
    running_s: float | None
    failures: int
    error: str | None
    again_in_s: float
    next_step: str


class Turn(Generic[Result]):
    """Runs one kind of work in a thread of its own; all methods but `maintenance` belong to one thread.

    `advice` is the operator's next step when the work fails.
    """

    def __init__(self, work: str, advice: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._work, self._advice, self._now_s = work, advice, now_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=work.replace(" ", "-"))
        self._running: Future[Result] | None = None
        self._failures, self._error = 0, ""
        self._began_s = self._not_before_s = now_s()
        self._began_ms = 0

    @property
    def is_running(self) -> bool:
        """True if there is work whose result was not taken yet."""
        return self._running is not None

    @property
    def is_free(self) -> bool:
        """True if work may begin: none is under way, and the delay after the last failure is over."""
        return self._running is None and self._now_s() >= self._not_before_s

    @property
    def began_ms(self) -> int | None:
        """The start of the work under way, Unix milliseconds, or None."""
        return self._began_ms if self.is_running else None

    def maintenance(self) -> Maintenance:
        """The current state. For any thread."""
        now_s, failures = self._now_s(), self._failures
        return Maintenance(
            self._work,
            now_s - self._began_s if self.is_running else None,
            failures,
            self._error if failures else None,
            max(0.0, self._not_before_s - now_s),
            self._advice,
        )

    def begin(self, work: Callable[[], Result]) -> None:
        """Start `work`. Only when `is_free`."""
        assert self._running is None
        self._began_ms, self._began_s = now_ms(), self._now_s()
        self._running = self._thread.submit(work)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the work under way, if any, is done."""
        if self._running is not None:
            wait([self._running], timeout_s)

    def take(self) -> Result | None:
        """The result of work that is done, once. None when there is none, or it failed: that is logged then."""
        if self._running is None or not self._running.done():
            return None
        done, self._running = self._running, None
        try:
            result = done.result()
        except CancelledError:
            return None
        except Exception as failure:  # noqa: BLE001  # batches go on without; a lasting error shows there as well
            self._failed(failure)
            return None
        self._failures = 0
        return result

    def _failed(self, failure: Exception) -> None:
        self._error = str(failure.code) if isinstance(failure, BackfillError) else type(failure).__name__
        self._failures += 1
        delay_s = min(FIRST_DELAY_S * 2.0 ** (self._failures - 1), LONGEST_DELAY_S)
        self._not_before_s = self._now_s() + delay_s
        log.warning(
            "maintenance failed, to be tried again",
            work=self._work,
            error=self._error,
            failures=self._failures,
            again_in_s=delay_s,
            next_step=self._advice,
        )

    def close(self) -> None:
        """Release the thread, without waiting for the work under way."""
        self._thread.shutdown(wait=False, cancel_futures=True)
