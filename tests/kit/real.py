"""The service in the test's own process, on a real broker and a real Spark session, driven barrier by barrier.

Tests write to a real topic, wait for what the service tells (batch reports, or its end), and have `verify` judge the
output topic. Nothing here sleeps: every wait is for a condition.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession

from schemas.errors import Code
from schemas.filter.parse import parse_filter
from schemas.records import Barrier
from schemas.settings.config import ServiceConfig, check
from schemas.settings.security import hash_key_of
from state.values.progress import is_complete
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.protocol.report import BatchReport
from streaming.runtime import failpoints
from streaming.service.service import Service
from streaming.verify.findings import Report
from streaming.verify.judge import verify_topics
from tests.kit.real_upstream import RealUpstream

WAIT_S = 240.0  # for one batch; a wait ends as soon as its condition holds
OPTIONS = "compaction_least_rows", "accept_log_reset", "paused"
"""Options of a service that a test may set."""
Error = TypeVar("Error", bound=BaseException)


@dataclass
class Run:
    """A service that runs in a thread of its own. Reports and the error, if any, are kept."""

    service: Service
    reports: list[BatchReport] = field(default_factory=list)
    error: BaseException | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False

    def __post_init__(self) -> None:
        self.service.on_batch = self._take
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)
        self._thread.start()

    def _take(self, report: BatchReport) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            self.service.run()
        except BaseException as error:  # noqa: BLE001  # handed to the test
            self.error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def epoch(self) -> int:
        return self.reports[-1].plan.epoch if self.reports else 0

    def until(self, condition: Callable[[], bool]) -> BatchReport:
        """Wait until the condition holds after a batch; the last report. The service's own error ends the wait."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended or condition(), WAIT_S), "no batch in time"
            if not condition():
                raise self.error or AssertionError("the service ended before")
        return self.reports[-1]

    def reach(self, barrier: Barrier) -> BatchReport:
        """Wait for the batch that takes this barrier."""
        return self.until(lambda: self.epoch >= barrier.curr)

    def await_more(self) -> None:
        """Wait until there is a further batch, or no service any more."""
        with self._changed:
            seen = len(self.reports)
            assert self._changed.wait_for(lambda: self._ended or len(self.reports) > seen, WAIT_S)

    @property
    def is_alive(self) -> bool:
        return not self._ended

    def is_complete(self, job: str) -> bool:
        """True if every part of the job was read to its end."""
        if not self.reports:
            return False
        report = self.reports[-1]
        counts = [each.definition.part_count for each in report.outcome.jobs if each.name == job]
        return any(is_complete(report.progress.get(job, {}), count) for count in counts)

    def end(self) -> BaseException | None:
        """Wait until the service has ended by itself; its error."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended, WAIT_S), "the service did not end"
        return self.error

    def stop(self) -> None:
        """Stop it and wait; raises what went wrong."""
        self.service.stop()
        if (error := self.end()) is not None:
            raise error


@dataclass
class Stage:
    """One upstream, one state folder, and as many runs of the service as a test needs."""

    spark: SparkSession
    upstream: RealUpstream
    folder: Path
    jobs: Sequence[dict[str, Any]] = ()
    lanes: int | None = 2

    def declared(self, **over: Any) -> dict[str, Any]:
        """The configuration as a user writes it."""
        return {
            "kafka": {"bootstrap": self.upstream.kafka.bootstrap},
            "upstream": {"topic": self.upstream.name, **self.upstream.form},
            "barrier_topic": self.upstream.topics.barriers,
            "state": "state",
            "barriers": "embedded",
            "lanes": self.lanes,
            "table": self.upstream.table.to_dict(),
            "jobs": list(self.jobs),
            "on_table_fault": "stop",  # most tests of faults await the error itself
            **self.upstream.sections,
            **over,
        }

    def config(self, **over: Any) -> ServiceConfig:
        return check(self.declared(**over), path=self.folder / "config.yaml")

    def service(
        self,
        *,
        until_complete: bool = False,
        skip: frozenset[tuple[int, int]] = frozenset(),
        **over: Any,
    ) -> Service:
        options = {name: over.pop(name) for name in OPTIONS if name in over}
        self.upstream.flush()  # it finds all that was put
        return Service(
            self.config(**over),
            self.upstream.kafka,
            lambda: self.spark,
            exit_when_complete=until_complete,
            skip_records=skip,
            **options,
        )

    def begun(self, crash: str | None, **how: Any) -> Run:
        """A run whose first batch is done, and that fails at this failpoint later, if one is given."""
        with pytest.MonkeyPatch.context() as patch:
            if crash is not None:
                patch.setenv(failpoints.VARIABLE, crash)
            run = Run(self.service(**how))
            run.reach(self.upstream.barrier())
        return run

    def add_job(self, name: str) -> None:
        """Declare a job like the first one, for the runs from now on."""
        self.jobs = [*self.jobs, {**self.jobs[0], "name": name, "output": f"{self.jobs[0]['output']}-{name}"}]

    @contextmanager
    def running(self, **how: Any) -> Iterator[Run]:
        """A run of the service, stopped at the end of the block; its error, if it had one, is raised there."""
        run = Run(self.service(**how))
        try:
            yield run
        except BaseException:
            run.service.stop()
            run.end()
            raise
        run.stop()

    def fails(
        self, kind: type[Error], code: Code | None = None, where: str | None = None, **how: Any
    ) -> Error:
        """Run the service until it ends by itself with this error, of this code and at this place if given."""
        return expected(Run(self.service(**how)).end(), kind, code, where)

    def finish(self, run: Run, *jobs: str) -> None:
        """Write barriers, and wait for each, until these jobs are complete, or all that are declared."""
        while not all(map(run.is_complete, jobs or [job["name"] for job in self.jobs])):
            run.reach(self.upstream.barrier())

    def assert_lawful(self, *numbers: int, **how: Any) -> None:
        """Have `verify` judge the outputs of these jobs, or of all that are declared."""
        for number in numbers or range(len(self.jobs)):
            report = self.verify(number, **how)
            assert report.clean, (number, report)

    def verify(
        self, number: int = 0, *, output: str | None = None, complete: bool = True, **how: Any
    ) -> Report:
        """The report of `verify` on the output of a job, or on another topic as if it were."""
        config, upstream = self.config(), self.upstream
        job = config.jobs[number]
        given = {"hash_key": hash_key_of(job), "key": job.key, "from_now": job.from_now}
        return verify_topics(
            upstream.kafka,
            upstream.name,
            output or job.output,
            upstream.table,
            columns=job.columns,
            condition=None if job.filter is None else parse_filter(job.filter, upstream.table),
            require_complete=complete,
            **{
                "barriers": (config.topics.barriers, job.barrier_topic),
                "formats": (config.upstream_format, job.format),
                "reads_upstream": job.scan.reads_upstream,
                **given,
                **how,
            },
        )


SetUp = Callable[..., Stage]
"""`set_up(*jobs, table=…, partitions=2, lanes=2, beside=False)`, a fixture of `tests/integration/service`."""


def expected(
    error: BaseException | None, kind: type[Error], code: Code | None = None, where: str | None = None
) -> Error:
    """The error, which has to be of this kind, and of this code and at this place if given."""
    assert isinstance(error, kind), error
    assert code is None or getattr(error, "code", None) is code, error
    assert where is None or getattr(error, "where", None) == where, error
    return error


def records(kafka: KafkaSettings, topic: str) -> list[list[Message]]:
    """Everything committed on a topic, by partition."""
    with RangeReader(kafka) as reader:
        marks = reader.await_stable(topic, timeout_s=WAIT_S)
        found: list[list[Message]] = [[] for _ in marks]
        ranges = {number: (each.earliest, each.stable) for number, each in enumerate(marks)}
        for chunk in reader.read(topic, ranges):
            for message in chunk:
                found[message.partition() or 0].append(message)
    return found


def await_condition(condition: Callable[[], bool], what: str, *, limit_s: float = WAIT_S) -> None:
    """Wait for something that is not reported, by looking often."""
    deadline, ticks = time.monotonic() + limit_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in time"
        ticks.wait(0.02)


def await_answer(
    ask: Callable[[], object], errors: type[Exception], process: subprocess.Popen[bytes] | None, log: Path
) -> None:
    """Wait until a server answers, whose process has to live: until asking raises none of these errors any more."""

    def is_there() -> bool:
        assert process is not None
        assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")[-2_000:]
        try:
            ask()
        except errors:
            return False
        return True

    await_condition(is_there, f"an answer of the server that logs to {log}")
