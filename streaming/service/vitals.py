"""The health of a running service, gathered from its threads, and logged when it changes.

Each thread reports its observations; `health` gives the condition as of that moment (`streaming.core.health`). A
condition that is not fine is logged once when it begins, with the next step, and once when it is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from schemas.error_table import TABLE
from schemas.errors import BackfillError, Code, EnvironmentProblem
from schemas.formats.row_names import FieldsSeen
from state.initial.start import CopyProgress
from state.values.aligned import AlignedBarrier
from state.values.last_end import LastEnd
from streaming.compaction.maintenance import Maintenance
from streaming.core.health import (
    Health,
    HealthCondition,
    HealthFacts,
    Interruption,
    StuckPartition,
    health,
    held_now,
    lasting_held,
)
from streaming.kafka.topics import Watermarks
from streaming.service.events import EventKind, EventLog, ServiceEvent
from streaming.source.barriers.source import BarrierSource, Newest
from streaming.source.retention import Margin

if TYPE_CHECKING:
    from streaming.compaction.compactor import Compactor
    from streaming.compaction.maintenance import BarrierKeeping
    from streaming.postgres.copying import TableStatus
    from streaming.protocol.micro_batches import MicroBatches
    from streaming.service.initial.reading import DatabaseReading

_ORDINARY = frozenset(
    {
        HealthCondition.STARTING,
        HealthCondition.SERVING,
        HealthCondition.STOPPING,
        HealthCondition.SUSPENDED,  # it has a line of its own
    }
)

log = structlog.get_logger(__name__)


class HeldRecordsLog:
    """Logs partitions that an open transaction holds back, when that begins to last and when it is over. Thread-safe.

    With barriers in the data the service stops there, and its condition says so. With barriers in a separate topic it
    goes on, ready, without the records that are held: these two lines, status, page and
    `backfill_upstream_held_seconds` report it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int], StuckPartition] = {}

    def update(self, facts: HealthFacts, now_s: float) -> None:
        """Log changes since the last call."""
        lasting = {(each.partition, each.stable): each for each in lasting_held(facts, now_s)}
        with self._lock:
            known, self._known = self._known, lasting
        for key, held in lasting.items():
            if key not in known:
                self._log_begin(facts.upstream, held, now_s)
        for key, held in known.items():
            if key not in lasting:
                lasted_s = round(now_s - held.since_s)
                log.info("records_held_over", where=_where(facts.upstream, held), lasted_s=lasted_s)

    def _log_begin(self, upstream: str, held: StuckPartition, now_s: float) -> None:
        held_s = now_s - held.since_s
        log.warning(
            "records_held",
            where=_where(upstream, held),
            since=(datetime.now(UTC) - timedelta(seconds=held_s)).isoformat(timespec="seconds"),
            late_s=round(held_s),
            records=held.high - held.stable,
            next_step=TABLE[Code.BARRIER_STALLED].next_step,
        )


def _where(upstream: str, held: StuckPartition) -> str:
    return f"{upstream}-{held.partition}@{held.stable}"


class Vitals:
    """The facts of one service, for all its runs; for any thread. `late_s` as `streaming.core.health.late_after_s`.

    `events` has what happened, of which conditions come from here.
    """

    def __init__(
        self,
        upstream: str,
        interval_ms: int,
        *,
        late_s: float,
        injects: bool,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._wall, self._lock = clock, wall, threading.Lock()
        self._facts = HealthFacts(upstream, interval_ms, late_s, clock(), injects=injects)
        self.marks: tuple[Watermarks, ...] = ()
        """The watermarks of each upstream partition, as of the last check; none before the first."""
        self._margins: tuple[Margin, ...] = ()
        self._looked_s: float | None = None
        self.step: str | None = None
        """The step of the start under way; None from the first batch on."""
        self.start: str | None = None
        """The start of a state whose configuration does not have it."""
        self._barriers: BarrierSource | None = None
        self._batches: MicroBatches | None = None
        self._works: tuple[Compactor | BarrierKeeping, ...] = ()
        self._stopping = False
        self.last_end: LastEnd | None = None
        """The last end of this state, until the next batch is done."""
        self.copy: CopyProgress | None = None
        """Progress of the copy of the table that the state starts from; None before and after."""
        self.reads: DatabaseReading | None = None
        """The reading of the table from its database; None without one, and between two runs."""
        self.fields = FieldsSeen()
        """Fields of the upstream's newest rows, as of the last check."""
        self.rows_folder: Path | None = None
        """The folder with the rows by key of this state, here; None before the first run."""
        self._held_log = HeldRecordsLog()
        self._logged = Health(HealthCondition.STARTING, ready=False, reason=None, idle_s=0.0)
        self._logged_s = clock()
        self.events = EventLog()
        self.events.note(ServiceEvent(wall(), EventKind.STARTED, "", HealthCondition.STARTING))

    @property
    def late_s(self) -> float:
        """Age of the last batch above which the service is late."""
        return self._facts.late_s

    def look_age_s(self) -> float | None:
        """Seconds since the last check of the upstream that it answered; None before the first."""
        return None if self._looked_s is None else self._clock() - self._looked_s

    def idle_s(self) -> float | None:
        """Seconds since the last batch; None before the first."""
        last_s = self._facts.last_batch_s
        return None if last_s is None else max(0.0, self._clock() - last_s)

    def reading(self) -> TableStatus | None:
        """Status of the reading of the table from its database; None unless one is under way."""
        reads = self.reads
        return reads.status() if reads is not None and reads.is_on else None

    def maintenance(self) -> tuple[Maintenance, ...]:
        """Status of compaction and of deleting barriers; empty between two runs."""
        return tuple(each for work in self._works for each in work.maintenance())

    def held_s(self) -> dict[int, float]:
        """Seconds for which an open transaction has held back each partition that is held."""
        now_s = self._clock()
        return {each.partition: now_s - each.since_s for each in self._facts.held}

    def margins_s(self) -> dict[int, float]:
        """Seconds for which each partition that deletes records keeps unread ones, as of the last check."""
        return {each.partition: each.seconds for each in self._margins}

    # Reported by the service's threads -----------------------------------------------------------------------

    def attach(
        self,
        barriers: BarrierSource,
        batches: MicroBatches,
        compactor: Compactor,
        reads: DatabaseReading | None = None,
        *works: BarrierKeeping,
    ) -> None:
        """Set the components of a run, whose queues are part of `health`."""
        self._barriers, self._batches, self.reads = barriers, batches, reads
        self._works = (compactor, *works)

    def detach(self) -> None:
        """End the run that was attached."""
        self._barriers = self._batches = self.reads = None
        self._works = ()
        self._update(streaming_since_s=None)

    def begins(self, step: str) -> None:
        """Report a step of the start, by what it waits for; the one before it is over."""
        self.step = step
        log.info("starting", step=step)

    def catches_up(self, known: Sequence[AlignedBarrier], next_offsets: Sequence[int]) -> None:
        """Report that the batches of these barriers come next, from these offsets on."""
        records = sum(known[-1].ends) - sum(next_offsets) if known else 0
        if records:
            self.begins(f"reading {records:,} records")

    def streams(self) -> None:
        """Report that the start is over, but for the first batch where none has ended. It is a sign of work."""
        now_s = self._clock()
        self._update(streaming_since_s=now_s, progress_s=now_s)
        self.step = None
        if self._facts.last_batch_s is None:
            self.begins("waiting for a barrier")

    def batch_done(self) -> None:
        self.last_end = None
        self.step = None
        self._update(last_batch_s=self._clock(), trouble=None)
        self.log_changes()

    def interrupted(self, problem: BackfillError) -> None:
        """Report transient trouble that has ended the stream."""
        self._update(trouble=Interruption(problem, self._clock()))
        self.log_changes()

    @property
    def is_suspended(self) -> bool:
        return self._facts.suspended is not None

    def suspended(self, end: LastEnd | None) -> None:
        """Report that the table is suspended; None: it goes on."""
        self.last_end = end
        fault = None if end is None else end.fault
        self._update(suspended=None if fault is None else fault.to_error(), trouble=None)
        self.log_changes()

    def broker_answers(self, marks: Sequence[Watermarks], margins: Sequence[Margin] = ()) -> None:
        self.marks, self._margins, self._looked_s = tuple(marks), tuple(margins), self._clock()
        held = held_now(self._facts.held, [(each.stable, each.high) for each in marks], self._clock())
        away, now_s = self._facts.away, self._clock()
        if away is not None and away.until_s is None:
            away = replace(away, until_s=now_s)
        self._update(away=away, held=held)

    def broker_away(self, problem: EnvironmentProblem) -> None:
        """Report a check of the upstream that has failed."""
        away = self._facts.away
        if away is None or away.until_s is not None:
            self._update(away=Interruption(problem, self._clock()))

    def spark_works(self, *, busy_since_s: float | None, progress_s: float) -> None:
        """Report the begin of Spark's oldest job, None without one, and the time of its last sign of work."""
        known_s = self._facts.progress_s
        latest_s = progress_s if known_s is None else max(known_s, progress_s)
        self._update(busy_since_s=busy_since_s, progress_s=latest_s)

    def stops(self) -> None:
        """Report that the service is to stop. Safe in a signal handler: it waits for no lock."""
        self._stopping = True

    def _update(self, **news: object) -> None:
        with self._lock:
            self._facts = replace(self._facts, **news)  # type: ignore[arg-type]

    # Read by any thread --------------------------------------------------------------------------------------

    def health(self) -> Health:
        barriers, batches = self._barriers, self._batches
        facts = replace(
            self._facts,
            stopping=self._stopping,
            pending=(batches.pending if batches else 0) + (barriers.untaken if barriers else 0),
            missing=self._missing(barriers.newest()) if barriers else (),
            hindered=barriers.problem if barriers else None,
        )
        return health(facts, self._clock())

    def _missing(self, newest: Newest) -> tuple[tuple[int, int], ...]:
        due = max((barrier.partitions for barrier, _ in newest if barrier), default=0)
        waiting = [count for _, count in newest[:due]]
        if not any(waiting):
            return ()
        known = dict(enumerate(self.marks))
        return tuple(
            (number, known[number].stable if number in known else 0)
            for number, count in enumerate(waiting)
            if not count
        )

    def log_changes(self) -> None:
        """Log a condition that has begun or is over, and held records. Call it often."""
        self._held_log.update(self._facts, self._clock())
        with self._lock:
            now, before, self_s = self.health(), self._logged, self._clock()
            if _kind(now) == _kind(before):
                return
            self._logged, began_s, self._logged_s = now, self._logged_s, self_s
        self.events.note_condition(self._wall(), now.condition, now.reason)
        if before.condition not in _ORDINARY:
            lasted_s = round(self_s - began_s)
            log.info(
                "condition_over", was=before.condition.value, is_now=now.condition.value, lasted_s=lasted_s
            )
        if now.condition not in _ORDINARY:
            _log(now)


def _kind(health: Health) -> tuple[HealthCondition, str | None]:
    return health.condition, health.reason.code if health.reason else None


def _log(health: Health) -> None:
    reason = health.reason
    if reason is None:
        log.info("condition", is_now=health.condition.value, since_batch_s=round(health.idle_s))
        return
    log.warning("condition", is_now=health.condition.value, code=reason.code, **reason.texts)
