"""Trouble of a running service: the watches that find it, and the policy on what may pass.

The upstream and Spark's jobs are watched in threads of their own, for broker and JVM may be slow to answer or away,
which is one of the things that a watch finds.

A broker that restarts, a network that is cut, a worker that is lost: none of these is a reason to end a service that
could start. Spark's stream ends by itself then, with the last error of its Kafka client, and so may a batch after its
own attempts. The service continues in the same process as it would after a crash: from its journal, with all components
made anew. That holds for the first build as well, which may take hours.

Lasting errors end it at once: invalid input, a configuration, being fenced, a JVM that is gone. So does any error
before its first take-over of the state: then the operator is there to read it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Self

import structlog
from pyspark.sql import SparkSession

from schemas.errors import BackfillError, Code, EnvironmentProblem
from streaming.core.clocks import Stillness
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import admin
from streaming.runtime.session import JVM_GONE, end_job, running_jobs
from streaming.runtime.timing import repeated
from streaming.service.vitals import Vitals
from streaming.source.direct_read import NewestRows
from streaming.source.upstream_checks import UpstreamGuard

_EVERY_S = 5.0
_END_WITHIN_S = 3.0
_CHECKS_UNTIL_LATE, _CHECKS_OF_JOBS = 6, 5
LIMIT_S = 600.0
"""Longest duration of trouble."""
CALM_S = 60.0
"""Trouble after a calm of this length has a beginning of its own."""
MOST_RESTARTS = 5
"""Most restarts without a batch or a calm of `LIMIT_S`, while the broker answers: the trouble is elsewhere then."""
_PASSING = frozenset(
    {
        Code.BROKER_UNREACHABLE,
        Code.OUTCOME_UNKNOWN,
        Code.SPARK_FAILED,
        Code.BARRIER_STALLED,
        Code.REGISTRY_UNREACHABLE,
        Code.ROWS_DISK_FULL,
    }
)
_PAUSE_S = 1.0
_ANSWER_S = 5.0


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
        still_s = stillness.update(time.monotonic(), running_jobs(session, stillness.jobs))
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
                end_job(session, job)


def broker_answers(kafka: KafkaSettings) -> bool:
    """True if the broker answers within some seconds."""
    try:
        admin(replace(kafka, wait_s=min(kafka.wait_s, _ANSWER_S)))
    except EnvironmentProblem:
        return False
    return True


class RestartPolicy:
    """The policy of one service. `stop` ends any wait; `answers` asks whether Kafka can be reached."""

    def __init__(
        self,
        answers: Callable[[], bool],
        stop: threading.Event,
        *,
        registry_answers: Callable[[], bool] = lambda: True,
        limit_s: float = LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry_answers = registry_answers
        self._answers, self._stop, self._limit_s, self._clock = answers, stop, limit_s, clock
        self._has_begun = False
        self._began_s = self._went_on_s = -float("inf")
        self._restarts = 0

    def begins(self) -> None:
        """Report that topics and state are checked: errors from now on may be transient."""
        self._has_begun = True

    def worked(self) -> None:
        """Report the end of a batch, or of a part of a long interval."""
        if self._restarts:
            log.info("recovered", restarts=self._restarts)
        self._restarts, self._began_s, self._went_on_s = 0, -float("inf"), -float("inf")

    def may_pass(self, problem: BackfillError) -> bool:
        """True for a transient problem of a service that has begun."""
        return problem.code in _PASSING and self._has_begun

    def wait(self, problem: BackfillError) -> bool:
        """Wait until a retry makes sense. False if the service was stopped meanwhile.

        Raises: the problem itself, when it can't pass, or has not passed for too long.
        """
        if not self.may_pass(problem):
            raise problem
        self._count()
        log.warning("interrupted", code=problem.code, found=problem.found, restarts=self._restarts)
        # A registry that is away is waited for only where a schema is missing; all else goes on without it.
        missing_schema = problem.code is Code.REGISTRY_UNREACHABLE
        answers = self._registry_answers if missing_schema else self._answers
        while not self._stop.wait(_PAUSE_S * min(self._restarts, 10)):
            if self._clock() > self._began_s + self._limit_s:
                raise problem
            if answers():
                if self._restarts > MOST_RESTARTS:
                    raise problem
                self._went_on_s = self._clock()
                return True
        return False

    def _count(self) -> None:
        calm_s = self._clock() - self._went_on_s
        if calm_s > CALM_S:
            self._began_s = self._clock()
        if calm_s > self._limit_s:
            self._restarts = 0
        self._restarts += 1
