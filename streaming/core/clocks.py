"""Ages and pauses by a clock that is never set (`steady_s`, `now_s`), whatever is done to wall clocks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping


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
