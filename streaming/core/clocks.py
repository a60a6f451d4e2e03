"""How old the newest of a series of instants is, when the clocks may be set at any time.

Instants come from a wall clock, ours or another machine's, and are compared with our own wall clock: either may be set
back or forward between the two. A monotonic clock bounds the result: a later instant of the series is never older than
an earlier one, and no age is negative.
"""

from __future__ import annotations


class Age:
    """Of one series, whose instants follow one another. Times are seconds; `steady_s` is a clock that is never set."""

    def __init__(self) -> None:
        self._newest: object = None
        self._age_s, self._seen_s = 0.0, 0.0

    def seen(self, newest: object, instant_s: float, wall_s: float, steady_s: float) -> float:
        """The age in seconds of the newest instant. `newest` identifies it: the same value again only grows older."""
        if self._newest is None or newest != self._newest:
            age_s = max(0.0, wall_s - instant_s)
            if self._newest is not None:
                age_s = min(age_s, self.at(steady_s))
            self._newest, self._age_s, self._seen_s = newest, age_s, steady_s
        return self.at(steady_s)

    def at(self, steady_s: float) -> float:
        """The age of the newest one, never negative."""
        return self._age_s + max(0.0, steady_s - self._seen_s)
