"""How many snapshot rows a job may read in one batch.

Two limits, the smaller one counts:

- *Latency budget.* A live change waits for at most two batches: the one that runs when its barrier comes, and its own.
  So a batch may take half the budget, less by what it begins late, and the reads of all jobs together what its other
  steps leave of that; they are planned a quarter shorter, for one can take longer than the last ones did. The rows that
  fit are learned from what batches took: the first read is small, and one that took clearly less than it might is
  followed at once, for a small read costs more a row and its rate says too little; after that rows/s are a moving
  average. A job without a budget reads five seconds at a time: what a batch costs in any case, and the wait for a
  barrier, weigh little then, and a crash repeats no more.
- *Rate limit.* A token bucket in rows: it fills with time and never holds more than two seconds' worth, so that a
  pause is not followed by a burst.

A budget is 0 only when the job is paused, limited to 0, or its bucket is empty: live traffic never starves the
snapshot. Time comes in as an argument.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass

FIRST_ROWS = 20_000
"""First batch of a job with a latency budget: small enough for the slowest machine, large enough to measure."""
MIN_ROWS = 1_000
"""Least rows worth a read under a latency budget; progress before latency, should even this be too slow."""
PLENTY_ROWS = 1_000_000
"""First and least of a job without one."""
MAX_ROWS = 8_000_000
"""Most rows of one batch, however fast the machine is: the plan lists their slices."""
UNBUDGETED_READ_MS = 5_000.0
"""One read of a job without a latency budget. 10 M rows: 850 to 900 k rows/s, against 520 k by 1 M a batch."""
READ_SHARE = 0.75
"""Of what half the budget leaves to reads."""
LEAST_READ_MS = 200.0
"""Of a job, however little is left: half of it goes to what a read costs in any case."""
_SMOOTHING, _CLEARLY_LESS = 0.4, 0.8
_GROWTH = 2.0
_BUCKET_SECONDS = 2.0


class Rest:
    """What a batch takes beside its snapshot reads: the median of the last few, for a long interval says little."""

    def __init__(self) -> None:
        self._last_ms: deque[float] = deque(maxlen=5)

    def took(self, ms: float) -> None:
        """Tell of a batch."""
        self._last_ms.append(ms)

    @property
    def ms(self) -> float:
        """0 before the first batch."""
        return statistics.median(self._last_ms) if self._last_ms else 0.0


class Lateness:
    """How long the last barrier of a batch had to wait for it, compared with the one that waited least so far.

    So the two clocks, of whoever injects barriers and of whoever runs batches, need not agree, only go equally fast.
    """

    def __init__(self) -> None:
        self._least_ms = math.inf

    def of(self, barrier_ms: int, now_ms: int) -> float:
        """Milliseconds, for a batch that begins now and ends with a barrier injected then."""
        waited_ms = now_ms - barrier_ms
        self._least_ms = min(self._least_ms, waited_ms)
        return waited_ms - self._least_ms


@dataclass(frozen=True, slots=True)
class Company:
    """What a job's read shares a batch with: the reads of so many jobs, its own among them, and the rest.

    `late_ms`: how late the batch begins, as `Lateness` tells.
    """

    readers: int = 1
    rest_ms: float = 0.0
    late_ms: float = 0.0


ALONE = Company()


@dataclass(slots=True)
class SnapshotBudget:
    """Of one job. `latency_budget_ms` None: nobody waits for live changes."""

    latency_budget_ms: int | None
    _rows_per_ms: float | None = None
    _last_rows: int = 0
    _read_ms: float = 0.0
    _tokens: float = 0.0
    _filled_ms: int | None = None
    _limit: int | None = None

    def rows(self, now_ms: int, *, paused: bool, rate_limit: int | None, company: Company = ALONE) -> int:
        """Rows that the next batch may read; `now_ms` must not fall between calls."""
        if rate_limit != self._limit:  # what was read under another limit is no debt under this one
            self._limit, self._filled_ms, self._tokens = rate_limit, None, 0.0
        if paused:
            self._filled_ms, self._tokens = now_ms, 0.0
            return 0
        self._read_ms = self._fitting_ms(company)
        fitting = self._fitting_rows()
        if rate_limit is None:
            return fitting
        return min(fitting, max(int(self._fill(now_ms, rate_limit)), 0))

    def _fitting_rows(self) -> int:
        hurried = self.latency_budget_ms is not None
        first, least = (FIRST_ROWS, MIN_ROWS) if hurried else (PLENTY_ROWS, PLENTY_ROWS)
        if self._rows_per_ms is None:
            return first
        wanted = max(self._rows_per_ms * self._read_ms, least)
        return int(min(wanted, max(self._last_rows * _GROWTH, first), MAX_ROWS))

    def _fitting_ms(self, company: Company) -> float:
        """How long a read may take."""
        if self.latency_budget_ms is None:
            return UNBUDGETED_READ_MS / company.readers
        left = self.latency_budget_ms / 2 - company.rest_ms - company.late_ms
        return max(left * READ_SHARE / company.readers, LEAST_READ_MS)

    def _fill(self, now_ms: int, rate_limit: int) -> float:
        elapsed_ms = 1_000 if self._filled_ms is None else max(now_ms - self._filled_ms, 0)
        self._filled_ms = now_ms
        room = max(rate_limit * _BUCKET_SECONDS, 1.0)
        self._tokens = min(self._tokens + rate_limit * elapsed_ms / 1_000, room)
        return self._tokens

    def spent(self, rows: int, read_ms: float) -> None:
        """Tell what a batch read and how long its snapshot reads took (0 rows teach nothing)."""
        if self._limit is not None:
            self._tokens -= rows
        if rows <= 0 or read_ms <= 0:
            return
        rate = rows / read_ms
        known = self._rows_per_ms
        if known is None or read_ms < _CLEARLY_LESS * self._read_ms:
            self._rows_per_ms = rate
        else:
            self._rows_per_ms = known + _SMOOTHING * (rate - known)
        self._last_rows = max(rows, MIN_ROWS)
