"""Progress of a backfill, and the time until it is complete: figures that do not jump.

    rows in all = what finished parts gave + for every other part the larger of (rows stored, rows read)
    share       = rows read / rows in all: below 1 until the last part is Completed, and 1 then
    time left   = rows left / the recent rate, or the job's limit where that is lower

"Recent" is a quarter of the time so far, between two reads and 20 seconds: reads grow at first, so the rate
since the start is too low for a short run, and that of the last read too noisy for a long one.

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

Phase = Literal["starting", "backfilling", "paused", "limited to 0", "live"]
WINDOW_MS = 20_000
"""The longest window of the rate: long enough for many batches, short enough to follow a new limit."""
_LATE_SHARE, _LEAST_LOOKS = 0.25, 3


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
        return "live"
    if job.paused:
        return "paused"
    return "limited to 0" if job.rate_limit == 0 else "backfilling"


@dataclass(frozen=True, slots=True)
class Forecast:
    """The shown progress of one job. `share` never falls; `grew`: it would have, as rows were added ahead of the read.

    `rows_per_s` is None before two updates, `seconds_left` None where nothing moves.
    """

    extent: Extent
    share: float
    grew: bool
    rows_per_s: float | None
    seconds_left: float | None


@dataclass
class RateEstimator:
    """Estimates the rate of one job's backfill from repeated updates. `now_ms` is any clock that only rises."""

    _looks: deque[tuple[int, int]] = field(default_factory=deque)
    _started_ms: int | None = None
    _shown: float = 0.0

    def update(self, now_ms: int, seen: Extent, *, rate_limit: int | None, paused: bool) -> Forecast:
        """The forecast after one more update."""
        rate = self._rate(now_ms, seen.rows_read)
        share = max(self._shown, seen.share)
        self._shown = share
        return Forecast(
            seen,
            share,
            seen.share < share,
            rate,
            seconds_left(seen, rate, rate_limit=rate_limit, paused=paused),
        )

    def _rate(self, now_ms: int, rows_read: int) -> float | None:
        """Rows per second between recent reads; an update between two reads changes nothing."""
        looks = self._looks
        if self._started_ms is None:
            self._started_ms = now_ms
        if not looks or rows_read != looks[-1][1]:
            looks.append((now_ms, rows_read))
        window_ms = min((now_ms - self._started_ms) * _LATE_SHARE, WINDOW_MS)
        while len(looks) > _LEAST_LOOKS and looks[1][0] <= now_ms - window_ms:
            looks.popleft()
        return 0.0 if now_ms - looks[-1][0] >= WINDOW_MS else rate_between(looks[0], looks[-1])


@dataclass
class RateEstimators:
    """The estimators of all jobs; a job that was created again under its name starts anew."""

    _rates: dict[tuple[str, int], RateEstimator] = field(default_factory=dict)

    def update(self, now_ms: int, seen: Iterable[tuple[JobState, Extent]]) -> dict[str, Forecast]:
        """The forecast of each job after one more update."""
        return {
            job.name: self._rates.setdefault((job.name, job.start), RateEstimator()).update(
                now_ms, extent, rate_limit=job.rate_limit, paused=job.paused
            )
            for job, extent in seen
        }


def rate_between(first: tuple[int, int], last: tuple[int, int]) -> float | None:
    """Rows per second between two updates (milliseconds, rows read)."""
    elapsed_ms = last[0] - first[0]
    return (last[1] - first[1]) * 1_000 / elapsed_ms if elapsed_ms > 0 else None


def seconds_left(seen: Extent, rate: float | None, *, rate_limit: int | None, paused: bool) -> float | None:
    """0 when all is read; None while the job stands still or its rate is unknown."""
    if seen.rows_left == 0:
        return 0.0
    bounded = rate if rate is None or rate_limit is None else min(rate, rate_limit)
    return None if paused or not bounded or bounded <= 0 else seen.rows_left / bounded
