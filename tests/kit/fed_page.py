"""The status page over a status that is made by hand: without Kafka, without Spark, with a clock that a test sets."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from schemas.epoch import NO_EPOCH, next_epoch
from schemas.errors import Code, EnvironmentProblem
from schemas.job import JobDefinition
from schemas.records import Mutation, Pause, Resume
from schemas.settings.http import HttpConfig
from state.values.last_end import EndKind, FaultReport, LastEnd
from state.values.plan import JobState
from state.values.progress import Completed, InProgress, Progress
from streaming.compaction.maintenance import Maintenance
from streaming.core.jobs import MutationReport
from streaming.kafka.topics import Watermarks
from streaming.observe.api import build
from streaming.observe.gateway import ControlApi, JobEstimate, WayOn
from streaming.observe.metrics import Metrics
from streaming.observe.middleware import ApiAuth
from streaming.observe.models import DiskStatus, OutputStatus, ReaderStatus
from streaming.observe.server import served
from streaming.observe.status_cache import StatusCache
from streaming.service.vitals import Vitals
from streaming.source.retention import Margin
from tests.kit.reports import SOURCE, TABLE, barrier, job, report

TOKEN = "a token of the page"
AWAY = EnvironmentProblem(Code.BROKER_UNREACHABLE, found="no answer", expected="one", next_step="start it")
QUIET = (
    Maintenance("compaction", None, 0, None, 0.0, "see the memory"),
    Maintenance("merge of log files", None, 0, None, 0.0, "see the disk"),
    Maintenance("cleaning", None, 0, None, 0.0, "see the rights"),
)
_GIB = 1 << 30
DISK = DiskStatus(
    age_s=12.0,
    base_bytes=3 * _GIB,
    log_bytes=40 << 20,
    journal_bytes=14 << 20,
    progress_bytes=2 << 20,
    initial_bytes=None,
    rows_bytes=4 * _GIB,
    rows_free_bytes=30 * _GIB,
    free_bytes=50 * _GIB,
    disk_bytes=200 * _GIB,
    is_low=False,
    rows_low=False,
)


Shown = tuple[tuple[JobState, ...], dict[str, dict[int, Progress]], dict[str, int]]
"""Jobs, their progress, and the snapshot rows of the batch by job."""


@dataclass
class FedPage:
    """Its status: set what is to be seen. `batch` tells it of one more batch, with `shown`.

    All its clocks are `now_s` seconds behind its begin, and stand still until a test sets them.
    """

    table = TABLE
    now_s: float = 0.0
    maintenance: tuple[Maintenance, ...] = QUIET
    disk: DiskStatus | None = DISK
    paused: bool = False
    ways: list[WayOn] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    begin_s: float = field(default_factory=time.time)
    shown: Callable[[FedPage], Shown] = lambda fed: fed.two_jobs()
    delay_s: float = 0.25
    reports: tuple[MutationReport, ...] = ()
    cache: StatusCache = field(init=False)

    def __post_init__(self) -> None:
        vitals = Vitals(
            "up", 1_000, late_s=30.0, injects=True, clock=lambda: self.now_s, wall=lambda: self.wall_s
        )
        attach(vitals, lambda: self.maintenance)
        self.cache = StatusCache(
            "up",
            "orders",
            "process 7 on vm",
            4,
            vitals,
            SOURCE,
            can_steer=True,
            clock=lambda: self.wall_s,
            steady=lambda: self.now_s,
        )
        self.cache.columns = lambda: TABLE.columns
        self.cache.disk = lambda _: self.disk

    @property
    def wall_s(self) -> float:
        """Unix time on this page."""
        return self.begin_s + self.now_s

    def two_jobs(self) -> Shown:
        """One under way and one that is complete."""
        done, going = {number: Completed((9,), 10) for number in range(4)}, InProgress((5,), 20)
        declared = {
            "name": "large",
            "output": "large-orders",
            "filter": "amount >= 100 AND region IN ('EU', 'US')",
            "format": "debezium",
            "barrier_topic": "large-orders.barriers",
        }
        jobs = (
            JobState(JobDefinition.declare(declared, TABLE), self.epoch_at(-3_000), opened=True),
            job("copy", rate_limit=500, paused=self.paused, start=self.epoch_at(-300)),
        )
        return jobs, {"copy": {0: done[0], 1: going}, "large": {**done}}, {"copy": 70}

    def epoch_at(self, now_s: float) -> int:
        """The epoch of a barrier at a time of this page."""
        return next_epoch(NO_EPOCH, round((self.begin_s + now_s) * 1_000))

    def batch(self) -> None:
        """One more, whose barrier was injected `delay_s` ago."""
        jobs, progress, rows = self.shown(self)
        at_ms = round((self.wall_s - self.delay_s) * 1_000)
        last = report(jobs, progress, at_ms=at_ms, rows=rows, stored=dict.fromkeys(range(4), 75_000))
        compacted = dataclasses.replace(last.files, compacted_epoch=next_epoch(NO_EPOCH, at_ms - 754_000))
        outcome = dataclasses.replace(last.outcome, reports=self.reports)
        self.reports = ()
        vitals = self.cache.vitals
        vitals.streams()
        self.cache.note(dataclasses.replace(last, files=compacted, outcome=outcome))
        self.looked()
        vitals.batch_done()
        self.cache.newest = lambda: [(barrier(at_ms), 0), (barrier(at_ms), 1)]

    def restore(self) -> None:
        """A start has found the state, some seconds behind its last barrier."""
        jobs, progress, _ = self.shown(self)
        at_ms = round((self.wall_s - 12.0) * 1_000)
        stored = dict.fromkeys(range(4), 75_000)
        self.cache.restore(report(jobs, progress, at_ms=at_ms, stored=stored).state_after)

    def looked(self) -> None:
        """The broker has answered."""
        self.cache.vitals.broker_answers(
            [Watermarks(0, 1_209, 1_209), Watermarks(0, 9, 9)],
            [Margin(0, 9, 500_000.0), Margin(1, 9, 600_000.0)],
        )

    def send(self, mutation: Mutation) -> str:
        """Take effect at once."""
        self.mutations.append(mutation)
        if isinstance(mutation, Pause | Resume):
            self.paused = isinstance(mutation, Pause)
            word = "pause" if self.paused else "resume"
            self.reports = (MutationReport(0, f"{word} {mutation.job}"),)
            self.now_s += 1.0
            self.batch()
        return "request"

    def suspend(self) -> None:
        """A bad record suspends the table."""
        fault = FaultReport(
            Code.UNKNOWN_OP, "up-2@207978", "9 bytes", "a Change", "correct it; or --skip-record 2@207978"
        )
        now_ms = round(self.wall_s * 1_000)
        self.cache.vitals.suspended(
            LastEnd(EndKind.SUSPENDED, "process 7 on vm", now_ms, now_ms - 754_000, 1, fault, times=5)
        )

    def lead_on(self, way: WayOn) -> str:
        """Go on at once."""
        self.ways.append(way)
        self.cache.vitals.suspended(None)
        self.batch()
        return "request"

    @staticmethod
    def output(job: str) -> OutputStatus:
        """One reader that keeps up, and one that has ended."""
        readers = [("warehouse", "EMPTY", 12_345), ("search-index", "STABLE", 0)]
        return OutputStatus(
            offsets=151_234,
            readers=[
                ReaderStatus(group=group, state=state, behind=behind) for group, state, behind in readers
            ],
            unasked=0,
        )

    @staticmethod
    def plan(new: JobDefinition) -> JobEstimate:
        """An estimate of a job, whatever it is."""
        return JobEstimate(
            rows=300_000,
            kept_share=0.5,
            output_rows=150_000,
            output_bytes=6_000_000,
            seconds=65.0,
            output_partitions=new.output_partitions,
            columns=[column.name for column in new.columns],
            form=new.form,
        )

    @contextmanager
    def served(self) -> Iterator[str]:
        """The address, while the block runs."""
        door = ApiAuth(TOKEN, is_local=True)
        app = build(self.cache, Metrics(), cast("ControlApi", self), door, ["127.0.0.1"])
        with served(app, HttpConfig.model_validate({"listen": "127.0.0.1:0"})) as address:
            yield address


def attach(vitals: Vitals, maintenance: Callable[[], tuple[Maintenance, ...]]) -> None:
    """Attach parts of a run whose barriers and batches are never in trouble."""
    vitals.attach(_NoBarriers(), _NoBatches(), _Works(maintenance))  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Works:
    maintenance: Callable[[], tuple[Maintenance, ...]]


class _NoBarriers:
    problem = None
    untaken = 0

    def newest(self) -> list[object]:
        return []


class _NoBatches:
    pending = 0
