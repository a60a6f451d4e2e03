"""A clock that is set by hand."""

from __future__ import annotations


class Clock:
    """Seconds, set by hand."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s
