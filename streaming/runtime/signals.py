"""The end of a process by a signal: while it comes up, while it runs, and while it ends.

While a service comes up there is nothing to finish, so SIGTERM and SIGINT unwind the main thread wherever it is, and
open resources are closed on the way. Once it runs, a signal stops it after the open batch. Once it ends, further
signals change nothing: SIGKILL remains for a faster end.

This module imports little, so that a command can use it before imports that take a second.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_AGAIN_S = 0.01
"""Longer than a callback in which an exception would be lost."""


class Stopped(BaseException):
    """A signal came while the block was coming up."""


class EndBySignal:
    """A block that SIGTERM and SIGINT end as if it had come to its end by itself. For the main thread only.

    Python only reports an exception that is raised while it deletes an object or calls back for a weak reference, as it
    does for every module that it imports. A signal at such a moment is raised again shortly after, by the interval
    timer (SIGALRM), which the block uses for this alone.
    """

    def __init__(self) -> None:
        self._stop: Callable[[], None] = self._unwind
        self._former = dict[int, object]()
        self._report = sys.unraisablehook
        self._asked = False

    def __enter__(self) -> Self:
        self._report, sys.unraisablehook = sys.unraisablehook, self._unraisable
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            self._former[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._former.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what `signal` itself gave
        sys.unraisablehook = self._report
        return kind is not None and issubclass(kind, Stopped)

    def hand_over(self, stop: Callable[[], None]) -> None:
        """Have signals call `stop` from now on, after which the block must end soon.

        `stop` is called at once if a signal has come before and could not be raised.
        """
        self._stop = _nothing if self._asked else stop
        if self._asked:
            stop()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        stop, self._stop = self._stop, _nothing
        stop()

    def _unraisable(self, report: UnraisableHookArgs) -> None:
        if report.exc_type is not Stopped:
            self._report(report)
        elif self._stop is _nothing:
            self._stop = self._unwind
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)

    @staticmethod
    def _unwind() -> None:
        raise Stopped


def _nothing() -> None:
    return None
