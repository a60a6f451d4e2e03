"""Progress of a backfill, and the time until it is complete: figures that do not jump.

    rows in all = what finished parts gave + for every other part the larger of (rows stored, rows read)
    share       = rows read / rows in all: below 1 until the last part is Completed, and 1 then
    time left   = rows left / the rate, or the job's limit where that is lower

Page, API, metrics, `status` and `create --wait` all have their rates from here (`Rate`).

Rows stored come from file statistics, without the changes in the log, so the sum moves a little as the table does. A
share that was shown never falls (`Forecast.grew` is True instead where the table has grown).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from state.values.plan import JobState
from state.values.progress import Completed, InProgress, Progress, is_complete, rows_read

Phase = Literal["starting", "backfilling", "paused", "limited to 0", "live", "ended"]
DONE: tuple[Phase, ...] = ("live", "ended")
"""The phases of a job that has read all."""
WINDOW_MS = 10_000
"""The window of a rate: long enough for many batches, short enough to follow a new speed."""
LEAST_MS = 1_000
"""The shortest one: between two batches close to each other times say too little."""
_EARLY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows of one job's backfill: read, and still to read (an estimate, 0 only when all parts are Completed)."""

    rows_read: int
    rows_left: int

    @property
    def share(self) -> float:
        """From 0 to 1; 1 for an empty table."""
        rows = self.rows_read + self.rows_left
        return self.rows_read / rows if rows else 1.0


def extent(progress: Mapping[int, Progress], part_count: int, rows_stored: Mapping[int, int]) -> Extent:
    """`progress` lists the parts that were started; `rows_stored` about how many rows each part holds."""
    read = rows_read(progress)
    if is_complete(progress, part_count):
        return Extent(read, 0)
    left = 0
    for part in range(part_count):
        state = progress.get(part)
        if not isinstance(state, Completed):
            left += max(0, rows_stored.get(part, 0) - (state.row_count if state else 0))
    return Extent(read, max(left, 1))


def records_stored(progress: Mapping[int, Progress], ends: Sequence[int]) -> dict[int, int]:
    """An estimate of the records in each part of a job that reads the upstream; `ends` are those of the last batch.

    All offsets count, markers and deleted records included, until they are read.
    """
    return {part: _records(progress.get(part), end) for part, end in enumerate(ends)}


def _records(state: Progress | None, end: int) -> int:
    if isinstance(state, Completed):
        return state.row_count
    if isinstance(state, InProgress):
        return state.row_count + max(end - int(state.position[0]), 0)
    return end


def phase(job: JobState, seen: Extent) -> Phase:
    """The state of a job in one word, as `list` and the page show it."""
    if not job.opened:
        return "starting"
    if seen.rows_left == 0:
        return "ended" if job.definition.until_complete else "live"
    if job.paused:
        return "paused"
    return "limited to 0" if job.rate_limit == 0 else "backfilling"


@dataclass(frozen=True, slots=True)
class Forecast:
    """The shown progress of one job. `share` never falls; `grew`: it would have, as rows were added ahead of the read.

    `rows_per_s` and `seconds_left` are None where they are not known now: see `Rate`.
    """

    extent: Extent
    share: float
    grew: bool
    rows_per_s: float | None
    seconds_left: float | None


@dataclass
class Rate:
    """The rate of a count that grows with each batch. Times are milliseconds of any clock that only rises.

    It is that of the batches of the last `WINDOW_MS`; at first, for as long as that is shorter, of half the time since
    the count began to grow: reads grow then, and the rate since the start would be too low for a short run.
    """

    _looks: deque[tuple[int, int]] = field(default_factory=deque)
    _grew_ms: int | None = None
    _gap_ms: int = 0
    """Between the last two batches."""

    def note(self, at_ms: int, count: int) -> None:
        """Add the count at the end of a batch; a time that was noted before changes nothing."""
        looks = self._looks
        if looks and at_ms <= looks[-1][0]:
            return
        if looks:
            self._gap_ms = at_ms - looks[-1][0]
        if self._grew_ms is None and looks:
            self._note_before_growth(count)
        looks.append((at_ms, count))
        since_ms = at_ms - self._window_ms(at_ms)
        while len(looks) > 2 and looks[1][0] <= since_ms:
            looks.popleft()

    def _note_before_growth(self, count: int) -> None:
        """Keep the first look and the last one; once the count grows, the one before that is the first."""
        looks = self._looks
        if count != looks[-1][1]:
            self._grew_ms = looks[-1][0]
            while len(looks) > 1:
                looks.popleft()
        elif len(looks) > 1:
            looks.pop()

    def _window_ms(self, at_ms: int) -> float:
        begun_ms = 0 if self._grew_ms is None else at_ms - self._grew_ms
        return min(max(begun_ms * _EARLY_SHARE, LEAST_MS), WINDOW_MS)

    def forget(self) -> None:
        """Begin anew, where what follows is not at the pace of what was before: a pause, another limit, an outage."""
        self._looks.clear()
        self._grew_ms = None

    def at(self, now_ms: int) -> float | None:
        """Counts per second. None while it is not known: before a second of batches, and once none has come for long.

        "Long" is the window, or twice the time between the last two batches where that is more.
        """
        looks = self._looks
        if len(looks) < 2 or looks[-1][0] - looks[0][0] < LEAST_MS:
            return None
        if now_ms - looks[-1][0] > max(WINDOW_MS, 2 * self._gap_ms):
            return None
        return (looks[-1][1] - looks[0][1]) * 1_000 / (looks[-1][0] - looks[0][0])


@dataclass
class JobProgress:
    """The progress of one job's backfill, batch by batch. Times as `Rate`."""

    _rate: Rate = field(default_factory=Rate)
    _pace: tuple[int | None, bool] | None = None
    _seen: Extent = field(default_factory=lambda: Extent(0, 1))
    _shown: float = 0.0

    def note(self, at_ms: int, seen: Extent, *, rate_limit: int | None, paused: bool) -> None:
        """Add what is read at the end of a batch."""
        if self._pace != (rate_limit, paused):
            self._rate.forget()
        self._pace, self._seen = (rate_limit, paused), seen
        self._shown = max(self._shown, seen.share)
        self._rate.note(at_ms, seen.rows_read)

    def forget_rate(self) -> None:
        """Begin the rate anew."""
        self._rate.forget()

    def at(self, now_ms: int) -> Forecast:
        """The forecast as of now. Rate and time left are None while the job is paused or limited to 0."""
        rate_limit, paused = self._pace or (None, False)
        rate = None if paused or rate_limit == 0 or self._seen.rows_left == 0 else self._rate.at(now_ms)
        left_s = seconds_left(self._seen, rate, rate_limit=rate_limit, paused=paused)
        return Forecast(self._seen, self._shown, self._seen.share < self._shown, rate, left_s)


@dataclass
class JobsProgress:
    """The progress of all jobs; a job that was created again under its name starts anew."""

    _jobs: dict[tuple[str, int], JobProgress] = field(default_factory=dict)
    _owner: str | None = None

    def note(self, at_ms: int, seen: Iterable[tuple[JobState, Extent]], *, owner: str | None = None) -> None:
        """Add a batch's end. Jobs that are not `seen` are gone. Rates go by one `owner`, as a start takes its time."""
        if owner != self._owner:
            self.forget_rates()
        self._owner, known = owner, self._jobs
        self._jobs = {}
        for job, extent in seen:
            key = (job.name, job.start)
            self._jobs[key] = known.get(key, JobProgress())
            self._jobs[key].note(at_ms, extent, rate_limit=job.rate_limit, paused=job.paused)

    def forget_rates(self) -> None:
        """Begin all rates anew, after an outage."""
        for job in self._jobs.values():
            job.forget_rate()

    def at(self, now_ms: int) -> dict[str, Forecast]:
        """The forecast of each job as of now."""
        return {name: job.at(now_ms) for (name, _), job in self._jobs.items()}


def seconds_left(seen: Extent, rate: float | None, *, rate_limit: int | None, paused: bool) -> float | None:
    """0 when all is read; None while the job stands still or its rate is unknown."""
    if seen.rows_left == 0:
        return 0.0
    bounded = rate if rate is None or rate_limit is None else min(rate, rate_limit)
    return None if paused or not bounded or bounded <= 0 else seen.rows_left / bounded
