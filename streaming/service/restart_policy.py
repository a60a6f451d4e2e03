"""Policy on transient errors of a running service, and on the time that it waits for them to pass.

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
from collections.abc import Callable
from dataclasses import replace

import structlog

from schemas.errors import BackfillError, Code, EnvironmentProblem
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import admin

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

log = structlog.get_logger()


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
