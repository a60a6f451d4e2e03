"""Watches of a running service, in threads of their own: of the upstream, and of Spark's jobs.

Broker and JVM may be slow to answer or away, which is one of the things that a watch finds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Self

import structlog
from pyspark.sql import SparkSession

from schemas.errors import BackfillError, Code, EnvironmentProblem
from streaming.core.clocks import Stillness
from streaming.runtime import spark_jobs
from streaming.runtime.session import JVM_GONE
from streaming.runtime.timing import repeated
from streaming.service.vitals import Vitals
from streaming.source.fields.newest_rows import NewestRows
from streaming.source.upstream_checks import UpstreamGuard

_EVERY_S = 5.0
_END_WITHIN_S = 3.0
_CHECKS_UNTIL_LATE, _CHECKS_OF_JOBS = 6, 5

log = structlog.get_logger(__name__)


class UpstreamWatch:
    """Checks the upstream of one run every few seconds: its identity, its ends, how long it keeps unread records.

    Checks are made while `running` is open. Call `check` often: it raises the error that a check has found.
    """

    def __init__(self, guard: UpstreamGuard, vitals: Vitals, fields: NewestRows | None = None) -> None:
        self._guard, self._vitals, self._fields = guard, vitals, fields
        self.next_offsets: Callable[[], Sequence[int]] = tuple
        """The first unhandled offset of each partition; none while the service has not recovered."""
        self._every_s = min(_EVERY_S, vitals.late_s / _CHECKS_UNTIL_LATE)
        self.failure: Exception | None = None

    @contextmanager
    def running(self) -> Iterator[Self]:
        try:
            with repeated(self._step, self._every_s, name="watch", end_within_s=_END_WITHIN_S):
                yield self
        finally:
            if self._fields is not None:
                self._fields.close()

    def check(self) -> None:
        """Log a condition that has changed. Raises: as `UpstreamGuard.look`."""
        self._vitals.log_changes()
        if self.failure is not None:
            raise self.failure

    def _step(self) -> bool:
        try:
            self._check_upstream()
        except Exception as failure:  # noqa: BLE001  # whatever it is, `check` raises it
            self.failure = failure
            return False
        self._vitals.log_changes()
        return True

    def _check_upstream(self) -> None:
        try:
            next_offsets = self.next_offsets()
            marks = self._guard.look(next_offsets)
            margins = self._guard.margins(marks, next_offsets)
        except EnvironmentProblem as problem:
            self._vitals.broker_away(problem)
        else:
            self._vitals.broker_answers(marks, margins)
            if self._fields is not None:
                self._vitals.fields = self._fields.look(marks)


class SparkWatch:
    """Ends Spark's jobs that show no progress for `limit_s`, so that they are tried again, while `running` is open."""

    def __init__(self, spark: Callable[[], SparkSession], vitals: Vitals, limit_s: float) -> None:
        self._spark, self._vitals, self._limit_s = spark, vitals, limit_s
        self._every_s = min(_EVERY_S, limit_s / _CHECKS_OF_JOBS, vitals.late_s / _CHECKS_OF_JOBS)
        self._stillness = Stillness(time.monotonic())

    @contextmanager
    def running(self) -> Iterator[None]:
        with repeated(self._step, self._every_s, name="spark-watch", end_within_s=_END_WITHIN_S):
            yield

    def _step(self) -> bool:
        try:
            session = self._spark()
        except BackfillError:
            return False  # the call that needs Spark raises the same
        with suppress(*JVM_GONE):
            self._check_jobs(session)
        return True

    def _check_jobs(self, session: SparkSession) -> None:
        stillness = self._stillness
        still_s = stillness.update(time.monotonic(), spark_jobs.running(session, stillness.jobs))
        self._vitals.spark_works(busy_since_s=stillness.oldest_s, progress_s=stillness.changed_s)
        for job, seconds in still_s.items():
            if seconds >= self._limit_s:
                log.warning(
                    "spark_job_ended",
                    code=Code.NO_PROGRESS,
                    job=job,
                    found=f"no task that ended or read anything for {seconds:.0f} s",
                    expected="a sign of work within batch_timeout",
                    next_step="nothing: it is tried again; if that goes on, see Spark's log, its executors and the "
                    "storage of `state`",
                )
                spark_jobs.end(session, job)
