"""Which errors of a running service may pass, and how long it waits for that.

A broker that restarts, a network that is cut: nothing of it is a reason to end a service that has worked. Spark's
stream ends by itself then, with whatever its Kafka client said last, and so may a batch after its own attempts. The
service goes on in the same process as it would after a crash: from its journal, with everything else made anew.

What cannot pass ends it at once: the input's faults, a configuration, being fenced, a JVM that is gone. So does
anything that goes wrong before the service has worked at all: then somebody is there to read the error.
"""

from __future__ import annotations

import threading
import time

import structlog

from schemas.errors import BackfillError, Code, EnvironmentProblem
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.topics import admin

LIMIT_S = 600.0
"""Of trouble without a single batch in between."""
MOST_RESTARTS = 5
"""Without a batch in between, while the broker answers: then the trouble is somewhere else."""
_PASSING = frozenset({Code.BROKER_UNREACHABLE, Code.OUTCOME_UNKNOWN, Code.SPARK_FAILED})
_PAUSE_S = 1.0

log = structlog.get_logger()


class Patience:
    """Of one service. `stop` ends any wait."""

    def __init__(self, kafka: KafkaSettings, stop: threading.Event) -> None:
        self._kafka, self._stop = kafka, stop
        self._worked_s: float | None = None
        self._restarts = 0

    def worked(self) -> None:
        """A batch came to its end."""
        if self._restarts:
            log.info("recovered", restarts=self._restarts)
        self._worked_s, self._restarts = time.monotonic(), 0

    def wait(self, problem: BackfillError) -> bool:
        """Wait until it makes sense to go on. False: the service was stopped meanwhile.

        Raises: the problem itself, when it can't pass, or has not passed for too long.
        """
        if problem.code not in _PASSING or self._worked_s is None:
            raise problem
        self._restarts += 1
        log.warning("degraded", code=problem.code, found=problem.found, restarts=self._restarts)
        while not self._stop.wait(_PAUSE_S * min(self._restarts, 10)):
            if time.monotonic() > self._worked_s + LIMIT_S:
                raise problem
            if self._broker_answers():
                if self._restarts > MOST_RESTARTS:
                    raise problem
                return True
        return False

    def _broker_answers(self) -> bool:
        try:
            admin(self._kafka)
        except EnvironmentProblem:
            return False
        return True
