"""Watches Spark's jobs: one that shows no progress for too long is ended, and so tried again.

In a thread of its own, for the JVM may be slow to answer, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import structlog
from pyspark.sql import SparkSession

from schemas.errors import BackfillError, Code
from streaming.core.clocks import Stillness
from streaming.runtime import spark_jobs
from streaming.runtime.periodic import repeated
from streaming.runtime.session import JVM_GONE
from streaming.service.vitals import Vitals

_EVERY_S = 5.0
_LOOKS = 5
_END_WITHIN_S = 3.0

log = structlog.get_logger(__name__)


class SparkWatch:
    """Watches the jobs of one service while `running` is open; ends those without progress for `limit_s`."""

    def __init__(self, spark: Callable[[], SparkSession], vitals: Vitals, limit_s: float) -> None:
        self._spark, self._vitals, self._limit_s = spark, vitals, limit_s
        self._every_s = min(_EVERY_S, limit_s / _LOOKS, vitals.late_s / _LOOKS)
        self._stillness = Stillness(time.monotonic())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Jobs are watched while the block runs."""
        with repeated(self._step, self._every_s, name="spark-watch", end_within_s=_END_WITHIN_S):
            yield

    def _step(self) -> bool:
        try:
            session = self._spark()
        except BackfillError:
            return False  # the call that needs Spark raises the same
        with suppress(*JVM_GONE):
            self._look(session)
        return True

    def _look(self, session: SparkSession) -> None:
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
