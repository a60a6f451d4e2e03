"""Work beside the batches, one piece at a time of each kind: begun, awaited by a thread of its own, taken when done.

What failed is tried again, and each time in a row twice as late. Batches go on meanwhile, only slower.
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
    """How one kind of work goes, for people.

    `running_s`: for how long it has been under way, None if it is not. `failures` are those in a row, `error` is what
    the last one was.
    """

    work: str
    running_s: float | None
    failures: int
    error: str | None
    again_in_s: float
    next_step: str


class Turn(Generic[Result]):
    """Runs one kind of work in a thread of its own; all calls come from one thread, but for `maintenance`.

    `advice` is what an operator should look at when the work fails.
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
        """Whether there is work whose result was not taken yet."""
        return self._running is not None

    @property
    def is_free(self) -> bool:
        """Whether work may begin: none is under way, and what failed last has waited for long enough."""
        return self._running is None and self._now_s() >= self._not_before_s

    @property
    def began_ms(self) -> int | None:
        """When the work under way began, by the wall clock, or None."""
        return self._began_ms if self.is_running else None

    def maintenance(self) -> Maintenance:
        """As of now. Called by any thread."""
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
        except Exception as failure:  # noqa: BLE001  # batches go on without; what lasts shows there as well
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
