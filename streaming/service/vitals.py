"""The health of a running service, gathered from its threads, and logged when it changes.

Each thread reports what it sees; `health` gives the condition as of that moment (`streaming.core.health`). A condition
that is not fine goes to the log once when it begins, with what to do about it, and once when it is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog

from schemas.errors import BackfillError, EnvironmentProblem
from schemas.formats.names.lost import FieldsSeen
from state.initial.copy import CopyProgress
from streaming.compaction.turns import Maintenance
from streaming.core.health import Health, HealthCondition, HealthFacts, Interruption, health, held_now
from streaming.kafka.topics import Watermarks
from streaming.service.held_log import HeldRecordsLog
from streaming.source.barriers.source import BarrierSource
from streaming.source.retention import Margin

if TYPE_CHECKING:
    from streaming.service.initial.reading import DatabaseReading, TableStatus

_ORDINARY = frozenset({HealthCondition.STARTING, HealthCondition.SERVING, HealthCondition.STOPPING})

log = structlog.get_logger(__name__)


class Batching(Protocol):
    """The part of `MicroBatches` that is used here."""

    @property
    def pending(self) -> int: ...


class Maintains(Protocol):
    """As `Compactor`."""

    def maintenance(self) -> tuple[Maintenance, ...]: ...  # noqa: D102


class Vitals:
    """The facts of one service, for all its runs; for any thread. `late_s` as `streaming.core.health.late_after_s`."""

    def __init__(
        self,
        upstream: str,
        interval_ms: int,
        *,
        late_s: float,
        injects: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._facts = HealthFacts(upstream, interval_ms, late_s, clock(), injects=injects)
        self._marks: tuple[Watermarks, ...] = ()
        self._margins: tuple[Margin, ...] = ()
        self.start: str | None = None
        """What the state starts from, where only the state knows it."""
        self._barriers: BarrierSource | None = None
        self._batches: Batching | None = None
        self._maintains: tuple[Maintains, ...] = ()
        self._stopping = False
        self.copy: CopyProgress | None = None
        """How far the table is copied that the state starts from; None before that and behind it."""
        self.reads: DatabaseReading | None = None
        """What reads the table from its database; None where there is none, and between two runs."""
        self.fields = FieldsSeen()
        """Of the upstream's newest rows, as of the last look."""
        self.rows_folder: Path | None = None
        """The folder with the rows by key of this state, here; None before the first run."""
        self._held_log = HeldRecordsLog()
        self._logged: Health | None = None
        self._logged_s = 0.0

    @property
    def late_s(self) -> float:
        """A batch that is older makes the service late."""
        return self._facts.late_s

    @property
    def marks(self) -> tuple[Watermarks, ...]:
        """The watermarks of each upstream partition, as of the last check; none before the first."""
        return self._marks

    def idle_s(self) -> float | None:
        """Seconds since the last batch; None before the first."""
        last_s = self._facts.last_batch_s
        return None if last_s is None else max(0.0, self._clock() - last_s)

    def reading(self) -> TableStatus | None:
        """How far the table is read from its database; None where nothing is, or no more."""
        reads = self.reads
        return reads.status() if reads is not None and reads.is_on else None

    def maintenance(self) -> tuple[Maintenance, ...]:
        """How the work beside the batches goes; nothing between two runs."""
        return tuple(each for work in self._maintains for each in work.maintenance())

    def held_s(self) -> dict[int, float]:
        """For how long each partition was seen to be held by an open transaction; those that are."""
        now_s = self._clock()
        return {each.partition: now_s - each.since_s for each in self._facts.held}

    def margins_s(self) -> dict[int, float]:
        """For how long each partition keeps what was not read yet, as of the last look; those that delete something."""
        return {each.partition: each.seconds for each in self._margins}

    # Reported by the service's threads -----------------------------------------------------------------------

    def attach(
        self,
        barriers: BarrierSource,
        batches: Batching,
        maintains: Maintains,
        reads: DatabaseReading | None = None,
        *also: Maintains,
    ) -> None:
        """Set the components of a run, which `health` asks for what waits in them."""
        self._barriers, self._batches, self.reads = barriers, batches, reads
        self._maintains = (maintains, *also)

    def detach(self) -> None:
        """The run is over."""
        self._barriers = self._batches = self.reads = None
        self._maintains = ()
        self._know(streaming=False)

    def copies(self, progress: CopyProgress | None) -> None:
        """Parts of the table that the state starts from were copied."""
        self.copy = progress

    def streams(self) -> None:
        """Start-up is over."""
        self._know(streaming=True)

    def batch_done(self) -> None:
        """A batch came to its end."""
        self._know(last_batch_s=self._clock(), trouble=None)
        self.look()

    def interrupted(self, problem: BackfillError) -> None:
        """Trouble that may pass has ended the stream."""
        self._know(trouble=Interruption(problem, self._clock()))
        self.look()

    def broker_answers(self, marks: Sequence[Watermarks], margins: Sequence[Margin] = ()) -> None:
        """The upstream was looked at."""
        self._marks, self._margins = tuple(marks), tuple(margins)
        held = held_now(self._facts.held, [(each.stable, each.high) for each in marks], self._clock())
        self._know(away=None, held=held)

    def broker_away(self, problem: EnvironmentProblem) -> None:
        """The upstream could not be looked at."""
        if self._facts.away is None:
            self._know(away=Interruption(problem, self._clock()))

    def spark_works(self, *, busy_since_s: float | None, progress_s: float) -> None:
        """Since when Spark has been at a job, None if it has none, and when it last showed a sign of work."""
        self._know(busy_since_s=busy_since_s, progress_s=progress_s)

    def stops(self) -> None:
        """It was asked to stop. Safe in a signal handler: it waits for no lock."""
        self._stopping = True

    def _know(self, **news: object) -> None:
        with self._lock:
            self._facts = replace(self._facts, **news)  # type: ignore[arg-type]

    # Read by any thread --------------------------------------------------------------------------------------

    def health(self) -> Health:
        """As of now."""
        barriers, batches = self._barriers, self._batches
        facts = replace(
            self._facts,
            stopping=self._stopping,
            pending=(batches.pending if batches else 0) + (barriers.untaken if barriers else 0),
            missing=self._missing([count for _, count in barriers.newest()]) if barriers else (),
            hindered=barriers.hindrance if barriers else None,
        )
        return health(facts, self._clock())

    def _missing(self, waiting: Sequence[int]) -> tuple[tuple[int, int], ...]:
        if not any(waiting):
            return ()
        known = dict(enumerate(self._marks))
        return tuple(
            (number, known[number].stable if number in known else 0)
            for number, count in enumerate(waiting)
            if not count
        )

    def look(self) -> None:
        """Log a condition that has begun or is over, and held records; to be called often."""
        self._held_log.update(self._facts, self._clock())
        with self._lock:
            now, before, self_s = self.health(), self._logged, self._clock()
            if before is not None and _kind(now) == _kind(before):
                return
            self._logged, began_s, self._logged_s = now, self._logged_s, self_s
        if before is not None and before.condition not in _ORDINARY:
            lasted_s = round(self_s - began_s)
            log.info(
                "condition_over", was=before.condition.value, is_now=now.condition.value, lasted_s=lasted_s
            )
        if now.condition not in _ORDINARY:
            _log(now)


def _kind(seen: Health) -> tuple[HealthCondition, str | None]:
    return seen.condition, seen.reason.code if seen.reason else None


def _log(seen: Health) -> None:
    reason = seen.reason
    if reason is None:
        log.info("condition", is_now=seen.condition.value, since_batch_s=round(seen.idle_s))
        return
    log.warning(
        "condition",
        is_now=seen.condition.value,
        code=reason.code,
        **reason.texts,
    )
