"""The size of a batch, learned from those before it: records of the upstream, and each job's snapshot rows and bytes.

Of what a job reads in one batch, the smallest of three limits counts:

- *Latency budget.* A live change waits for at most two batches: the one that runs when its barrier comes, and its own.
  So a batch may take half the budget, less by what it begins late, and the reads of all jobs together what its other
  steps leave of that; they are planned a quarter shorter, for one can take longer than the last ones did. The rows that
  fit are learned from what batches took: the first read is small, and one that took clearly less than it might is
  followed at once, for a small read costs more a row and its rate says too little; after that rows/s are a moving
  average. A job without a budget begins with what is out within a second, then reads a million rows, and then five
  seconds at a time: what a batch costs in any case, and the wait for a barrier, weigh little then, and a crash repeats
  no more.
- *Bytes.* All that a batch sends is one transaction a lane, which the broker ends after its timeout, and a crash
  repeats all of it. So reads together take at most `MAX_BYTES`, and what goes through in half of that time by what
  batches took. Rows of a hundred bytes never come near it; those of fifty kilobytes do before a rate is known.
- *Rate limit.* A token bucket in rows (`TokenBucket`) by job, and one for all jobs together, which those that read
  share evenly: what one leaves of its part the next ones have, and each batch begins with another job.

The amount is 0 only when the job is paused, limited to 0, or its bucket is empty: live traffic never starves the
snapshot. Time comes in as an argument.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from schemas.job import JobDefinition
from state.values.aligned import AlignedBarrier
from state.values.plan import JobPlan, JobState, Slice
from state.values.progress import Progress, is_complete
from streaming.core.clocks import TokenBucket
from streaming.core.planning import NOTHING, Amount, CutFunction, choose_slices

FIRST_ROWS = 20_000
"""Rows of the first read of a job with a latency budget: small enough for a slow machine, large enough to measure."""
MIN_ROWS = 1_000
"""Least rows worth a read under a latency budget; progress before latency, should even this be too slow."""
SOON_ROWS = 100_000
"""Rows of the first read of a job without one: a reader gets its first row together with the last of these."""
PLENTY_ROWS = 1_000_000
"""Least of all its later ones."""
MAX_ROWS = 8_000_000
"""Most rows of one batch, however fast the machine is: the plan lists their slices."""
FIRST_BYTES = 16 << 20
"""First bytes of a job with a latency budget: `FIRST_ROWS` of 800 bytes."""
MIN_BYTES = 1 << 20
"""Least bytes worth a read under a latency budget."""
PLENTY_BYTES = 256 << 20
"""First and least bytes of a job without one: a broker that takes 10 MB/s has them in half a transaction's time."""
MAX_BYTES = 1 << 30
"""Most bytes of one batch, in memory, of all its jobs together: `MAX_ROWS` of 134."""
LONGEST_READ_MS = 30_000.0
"""Of all reads of a batch together: half of a transaction's time (`runtime.kafka.TRANSACTION_TIMEOUT_MS`)."""
UNBUDGETED_READ_MS = 5_000.0
"""One read of a job without a latency budget. 10 M rows: 850 to 900 k rows/s, against 520 k by 1 M a batch."""
READ_SHARE = 0.75
"""Of what half the budget leaves to reads."""
LEAST_READ_MS = 200.0
"""Of a job, however little is left: half of it goes to what a read costs in any case."""
START_DELAY_WINDOW_MS = 120_000
"""Time for which a wait is compared with later ones: many batches, and short after a clock was set."""
_SMOOTHING, _CLEARLY_LESS = 0.4, 0.8
_GROWTH = 2.0
_WIDER = 1.5
"""Bytes limit a read with a latency budget where its rows are so much wider than the last ones; else rows do."""


class OverheadMs:
    """The time of a batch without its snapshot reads: the median of the last few, against single long intervals."""

    def __init__(self) -> None:
        self._last_ms: deque[float] = deque(maxlen=5)

    def add(self, ms: float) -> None:
        """Add the time of a batch."""
        self._last_ms.append(ms)

    @property
    def ms(self) -> float:
        """0 before the first batch."""
        return statistics.median(self._last_ms) if self._last_ms else 0.0


class StartDelay:
    """The wait of a batch's last barrier for the batch, less that of the recent one that waited least.

    So the clocks of the injector and of the service need not agree, only run equally fast. A clock that is set
    falsifies the delay for `START_DELAY_WINDOW_MS`.
    """

    def __init__(self) -> None:
        self._least = deque[tuple[int, int]]()
        """(time, wait), waits rising: one that a later one has undercut is dropped, so the first is the least."""

    def delay_ms(self, injected_at_ms: int, now_ms: int) -> float:
        """Milliseconds, for a batch that begins now and ends with a barrier injected then; `now_ms` never falls."""
        waited_ms = now_ms - injected_at_ms
        while self._least and self._least[-1][1] >= waited_ms:
            self._least.pop()
        self._least.append((now_ms, waited_ms))
        while self._least[0][0] < now_ms - START_DELAY_WINDOW_MS:
            self._least.popleft()
        return float(waited_ms - self._least[0][1])


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """The load of the batch of a job's read: `readers` jobs read, its own included, and `rest_ms` go to other work.

    `late_ms`: the delay of the batch's start, from `StartDelay`.
    """

    readers: int = 1
    rest_ms: float = 0.0
    late_ms: float = 0.0


ALONE = BatchLoad()


@dataclass(slots=True)
class SnapshotBudget:
    """Of one job. `latency_budget_ms` None: delays of live changes do not matter."""

    latency_budget_ms: int | None
    _rows_per_ms: float | None = None
    _bytes_per_ms: float | None = None
    _last_rows: int = 0
    _last_bytes: int = 0
    _read_ms: float = 0.0
    _bucket: TokenBucket = field(default_factory=TokenBucket)

    def amount(self, now_ms: int, *, paused: bool, rate_limit: int | None, load: BatchLoad = ALONE) -> Amount:
        """The amount that the next batch may read; `now_ms` must not fall between calls."""
        rows = self._rows(now_ms, paused, rate_limit, load)
        return Amount(rows, self._fitting_bytes(load))

    def _rows(self, now_ms: int, paused: bool, rate_limit: int | None, load: BatchLoad) -> int:
        if paused:
            self._bucket.empty(now_ms)
            return 0
        self._read_ms = self._fitting_ms(load)
        fitting = self._fitting_rows()
        if rate_limit is None:
            self._bucket.lift()
            return fitting
        return min(fitting, self._bucket.fill(now_ms, rate_limit))

    def _fitting_rows(self) -> int:
        hurried = self.latency_budget_ms is not None
        if self._rows_per_ms is None:
            return FIRST_ROWS if hurried else SOON_ROWS
        next_at_most, least = (FIRST_ROWS, MIN_ROWS) if hurried else (PLENTY_ROWS, PLENTY_ROWS)
        wanted = max(self._rows_per_ms * self._read_ms, least)
        return int(min(wanted, max(self._last_rows * _GROWTH, next_at_most), MAX_ROWS))

    def _fitting_bytes(self, load: BatchLoad) -> int:
        hurried = self.latency_budget_ms is not None
        first, least = (FIRST_BYTES, MIN_BYTES) if hurried else (PLENTY_BYTES, MIN_BYTES)
        most = MAX_BYTES // load.readers
        if self._bytes_per_ms is None:
            return min(first, most)
        may_take_ms = self._read_ms * _WIDER if hurried else LONGEST_READ_MS / load.readers
        wanted = max(self._bytes_per_ms * may_take_ms, least)
        return int(min(wanted, max(self._last_bytes * _GROWTH, first), most))

    def _fitting_ms(self, load: BatchLoad) -> float:
        if self.latency_budget_ms is None:
            return UNBUDGETED_READ_MS / load.readers
        left = self.latency_budget_ms / 2 - load.rest_ms - load.late_ms
        return max(left * READ_SHARE / load.readers, LEAST_READ_MS)

    def learn_read(self, read: Amount, read_ms: float) -> None:
        """Learn from the amount that a batch read, and its time (0 rows change nothing; 0 bytes nothing about bytes).

        The bytes are those that the plan expected, as the next ones will be.
        """
        self._bucket.take(read.rows)
        if read.rows <= 0 or read_ms <= 0:
            return
        at_once = read_ms < _CLEARLY_LESS * self._read_ms
        self._rows_per_ms = _learned(self._rows_per_ms, read.rows / read_ms, at_once)
        self._last_rows = max(read.rows, MIN_ROWS)
        if read.size > 0:
            self._bytes_per_ms = _learned(self._bytes_per_ms, read.size / read_ms, at_once)
            self._last_bytes = max(read.size, MIN_BYTES)

    def learn_overrun(self, planned: Amount, took_ms: float) -> None:
        """Learn from a read that was given up after `took_ms`: it would have taken longer."""
        if planned.is_nothing or took_ms <= 0:
            return
        self._rows_per_ms, self._bytes_per_ms = planned.rows / took_ms, planned.size / took_ms
        self._last_rows, self._last_bytes = max(planned.rows, MIN_ROWS), max(planned.size, MIN_BYTES)


def _learned(known: float | None, rate: float, at_once: bool) -> float:
    return rate if known is None or at_once else known + _SMOOTHING * (rate - known)


def _rotated(jobs: Sequence[JobState], turn: int) -> Sequence[JobState]:
    first = turn % max(len(jobs), 1)
    return (*jobs[first:], *jobs[:first])


MAX_BATCH_RECORDS = 500_000
"""Upstream records that one batch takes at most, when it has a choice; lanes hold a batch's changes in memory."""
_LIKELY_CHANGE_BYTES = 500.0
"""Decoded; used until a batch has been measured."""


class BatchSizer:
    """The batch sizes of one service.

    `lane_bytes`: memory for the changes of a batch, in each lane. `rate_limit`: rows per second that all jobs together
    read, None for any number.
    """

    def __init__(self, lane_bytes: int, rate_limit: int | None = None) -> None:
        self._lane_bytes, self._rate_limit = lane_bytes, rate_limit
        self._bucket, self._turn = TokenBucket(), 0
        self._change_bytes = _LIKELY_CHANGE_BYTES
        self._budgets: dict[str, SnapshotBudget] = {}
        self._planned: dict[str, Amount] = {}
        self._rest, self._start_delay = OverheadMs(), StartDelay()

    def most_records(self, lanes: int) -> int:
        """Upstream records in a batch of several intervals: half of the lanes' memory, by the size of recent ones."""
        return min(MAX_BATCH_RECORDS, int(self._lane_bytes * lanes / 2 / self._change_bytes))

    def likely_bytes(self, records: int) -> int:
        """Bytes that this many changes take in memory, by the size that changes had so far."""
        return int(records * self._change_bytes)

    @property
    def rest_ms(self) -> float:
        return self._rest.ms

    def plan_jobs(
        self,
        jobs: Sequence[JobState],
        progress: Mapping[str, Mapping[int, Progress]],
        end: AlignedBarrier,
        cut_of: Callable[[JobDefinition], CutFunction],
        now_ms: int,
    ) -> tuple[JobPlan, ...]:
        """The slices of each job, for a batch that begins now and ends with `end`. Call it once a batch.

        `progress[job]` lists the started parts; `cut_of` gives the function that cuts the slices of a job.
        """
        readers = [
            job.name
            for job in jobs
            if job.may_read and not is_complete(progress.get(job.name, {}), job.definition.part_count)
        ]
        late_ms = self._start_delay.delay_ms(end.barrier.injected_at_ms, now_ms)
        load = BatchLoad(max(len(readers), 1), self._rest.ms, late_ms)
        self._planned = {}
        left = None if self._rate_limit is None else self._bucket.fill(now_ms, self._rate_limit)
        self._turn += 1
        slices: dict[str, tuple[Slice, ...]] = {}
        for job in _rotated(jobs, self._turn):
            amount = self._amount(job, now_ms, load)
            if left is not None:
                # Rounded up: with fewer rows than readers, one of them reads, and in the next batch another one.
                share = -(-left // max(len([name for name in readers if name not in slices]), 1))
                amount = replace(amount, rows=min(amount.rows, share))
            chosen = choose_slices(job.definition, progress.get(job.name, {}), amount, cut_of(job.definition))
            self._planned[job.name], slices[job.name] = chosen.amount, chosen.slices
            left = None if left is None else max(left - chosen.amount.rows, 0)
        return tuple(JobPlan(job, slices[job.name]) for job in jobs)

    def _amount(self, job: JobState, now_ms: int, load: BatchLoad) -> Amount:
        budget = self._budgets.setdefault(job.name, SnapshotBudget(job.definition.latency_budget_ms))
        return budget.amount(now_ms, paused=job.paused, rate_limit=job.rate_limit, load=load)

    def learn_batch(
        self, *, changes: int, held_bytes: int, rows: Mapping[str, int], read_ms: float, took_ms: float
    ) -> None:
        """Learn from a batch: its changes and their bytes, snapshot rows by job, and the durations."""
        self.learn_change_bytes(changes, held_bytes)
        self._rest.add(max(took_ms - read_ms, 0.0))
        self._bucket.take(sum(rows.values()))
        for name, count in rows.items():
            if name in self._budgets and count:
                read = Amount(count, self._planned.get(name, NOTHING.amount).size)
                self._budgets[name].learn_read(read, read_ms * count / sum(rows.values()))

    def learn_change_bytes(self, count: int, held_bytes: int) -> None:
        """Learn how large changes are from `count` of them; 0 teaches nothing."""
        if count:
            self._change_bytes = max(1.0, held_bytes / count)

    def learn_overrun(self, took_ms: float) -> None:
        """Learn that the slices of the last plan were given up after `took_ms`: the next ones have to be smaller."""
        read = {name: planned for name, planned in self._planned.items() if planned.rows}
        for name, planned in read.items():
            if name in self._budgets:
                self._budgets[name].learn_overrun(planned, took_ms / len(read))

    def forget(self, job: str) -> None:
        """Drop the estimates of a job that is gone; another one may get its name."""
        self._budgets.pop(job, None)
