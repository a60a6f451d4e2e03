"""Ages, pauses and rates by a clock that is never set (`steady_s`, `now_s`), whatever is done to wall clocks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

_FIRST_FILL_MS = 1_000
_KEPT_SECONDS = 0.5


@dataclass(slots=True)
class TokenBucket:
    """Counts up to a rate a second, of what is taken in turns: rows of a job, of all jobs, records of the upstream.

    It fills with time, `longest_fill_ms` worth from turn to turn at most, and what a turn leaves in it is no more than
    half a second's worth, so that neither a wait nor a pause is followed by a burst. What a turn takes beyond it, as
    estimates are estimates, the next ones have less. Milliseconds that never fall.
    """

    longest_fill_ms: int = 2_000
    _rate: int | None = None
    _tokens: float = 0.0
    _filled_ms: int | None = None

    def fill(self, now_ms: int, rate: int) -> int:
        """Fill it, and return how much this turn may take, 0 or more. Another rate than before begins anew."""
        if rate != self._rate:
            self._rate, self._filled_ms, self._tokens = rate, None, 0.0
        room = max(rate * _KEPT_SECONDS, 1.0)
        elapsed_ms = _FIRST_FILL_MS if self._filled_ms is None else max(now_ms - self._filled_ms, 0)
        self._filled_ms = now_ms
        self._tokens = min(self._tokens, room) + rate * min(elapsed_ms, self.longest_fill_ms) / 1_000
        return max(int(self._tokens), 0)

    def empty(self, now_ms: int) -> None:
        """Begin anew from now, after a pause."""
        self._filled_ms, self._tokens = now_ms, 0.0

    def lift(self) -> None:
        """Count nothing until the next `fill`, which begins anew."""
        self._rate = None

    def take(self, count: int) -> None:
        """Take the count of a turn; without a rate it changes nothing."""
        if self._rate is not None:
            self._tokens -= count


class Age:
    """Of one series, whose instants follow one another. Times are seconds; `steady_s` is a clock that is never set."""

    def __init__(self) -> None:
        self._newest: object = None
        self._age_s, self._seen_s = 0.0, 0.0

    def seen(self, newest: object, instant_s: float, wall_s: float, steady_s: float) -> float:
        """The age in seconds of the newest instant. `newest` identifies it: the same value again keeps its instant."""
        if self._newest is None or newest != self._newest:
            age_s = max(0.0, wall_s - instant_s)
            if self._newest is not None:
                age_s = min(age_s, self.at(steady_s))
            self._newest, self._age_s, self._seen_s = newest, age_s, steady_s
        return self.at(steady_s)

    def at(self, steady_s: float) -> float:
        """The age of the newest instant, never negative."""
        return self._age_s + max(0.0, steady_s - self._seen_s)


class Stillness:
    """Detects jobs without progress. Call `update` often."""

    def __init__(self, now_s: float) -> None:
        self._seen: dict[int, tuple[Hashable, float]] = {}
        self._came_s: dict[int, float] = {}
        self.changed_s = now_s
        """The last time at which a job began, made progress, or ended."""

    @property
    def jobs(self) -> frozenset[int]:
        """The jobs that were under way at the last `update`."""
        return frozenset(self._seen)

    @property
    def oldest_s(self) -> float | None:
        """The first time at which the oldest job under way was seen; None without any."""
        return min(self._came_s.values(), default=None)

    def update(self, now_s: float, signs: Mapping[int, Hashable]) -> dict[int, float]:
        """The seconds for which each job has made no progress.

        `signs` has, for each job under way, a value that changes while the job makes progress.
        """
        if self._seen.keys() - signs.keys():
            self.changed_s = now_s
        for job in self._seen.keys() - signs.keys():
            del self._seen[job], self._came_s[job]
        for job, sign in signs.items():
            if job not in self._seen or self._seen[job][0] != sign:
                self._seen[job] = (sign, now_s)
                self.changed_s = now_s
            self._came_s.setdefault(job, now_s)
        return {job: now_s - since_s for job, (_, since_s) in self._seen.items()}
