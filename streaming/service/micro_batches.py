"""The function that Structured Streaming calls with each micro-batch: find barriers, run the batches that they allow.

A micro-batch is Spark's unit, a batch is ours; they need not match. Rows of a micro-batch are looked through for
barriers, unless they are our own and known already (`own_barriers`), and every barrier that has become aligned ends a
batch. So a micro-batch may run no batch at all (nothing aligned yet), or several; Spark takes 0.2 s from one to the
next, which whoever is behind does without. Nothing is lost if Spark forgets or repeats a micro-batch: where we are is
in the journal, and the aligner ignores barriers that it has seen.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from schemas.errors import BackfillError, Code, EnvironmentProblem
from state.plan import AlignedBarrier
from streaming.core.alignment import Aligner
from streaming.runtime.session import JVM_GONE
from streaming.service.barriers import FoundBarrier
from streaming.service.batches import Batches
from streaming.service.maintenance import Upkeep
from streaming.service.report import BatchReport

OnBatch = Callable[[BatchReport], None]


class Finder(Protocol):
    """Whoever knows of the barriers that have come."""

    def barriers(self, records: DataFrame) -> Iterable[FoundBarrier]:
        """Those among some records, or that have come meanwhile; of a partition in offset order. May wait for some."""

    @property
    def has_more(self) -> bool:
        """Whether barriers have come since that need no further records to be found."""

    def close(self) -> None:
        """Wait no longer, now or later."""


class MicroBatches:
    """Give it to `foreachBatch`. `failure` holds the error that ended it; Spark is only told its code."""

    def __init__(
        self, finder: Finder, aligner: Aligner, batches: Batches, upkeep: Upkeep, on_batch: OnBatch
    ) -> None:
        self._finder, self._aligner, self._batches, self._upkeep = finder, aligner, batches, upkeep
        self._on_batch = on_batch
        self._waiting: deque[AlignedBarrier] = deque()
        self._busy = threading.Lock()
        self._closed = False
        self.failure: BaseException | None = None

    def __call__(self, records: DataFrame, micro_batch_id: int) -> None:
        """Called by Spark, one micro-batch at a time; returning lets it commit the micro-batch's offsets.

        Spark matches the message of what is raised here with a regular expression that can exhaust its stack, so
        the cause is kept and only its code is raised.
        """
        with self._busy:
            if self._closed:
                return
            try:
                self._look(records)
                while self._finder.has_more and not self._closed:
                    self._look(records)
            except BaseException as failure:  # noqa: BLE001  # whatever it is, `run` raises it
                self.failure = failure
                self._closed = True
                code = failure.code if isinstance(failure, BackfillError) else type(failure).__name__
                raise RuntimeError(str(code)) from None

    def _look(self, records: DataFrame) -> None:
        self.take(self._finder.barriers(records))
        self.drain()

    def take(self, barriers: Iterable[FoundBarrier]) -> None:
        """Take barriers, those of a partition in offset order."""
        for found in barriers:
            if found.barrier is None:
                self._aligner.leave_out(found.partition, found.offset)
            else:
                self._aligner.feed(found.partition, found.offset, found.barrier)

    def drain(self) -> None:
        """Run every batch that aligned barriers allow."""
        self._waiting.extend(self._aligner.aligned())
        while self._waiting and not self._closed:
            self._upkeep.batch_begins()
            report = self._batches.run(tuple(self._waiting), self._aligner.take_duplicates)
            for _ in report.plan.barriers:
                self._waiting.popleft()
            self._after(report)

    def _after(self, report: BatchReport) -> None:
        nobody_reads = not any(job.state.opened for job in report.plan.jobs)
        self._upkeep.between_batches(report.plan.epoch, wait_for_fold=nobody_reads)
        self._on_batch(report)
        if report.outcome.stop:
            self._closed = True

    def close(self, timeout_s: float) -> bool:
        """Let no further batch begin and wait for the open one. False if it is still running."""
        self._closed = True
        self._finder.close()
        if self._busy.acquire(timeout=timeout_s):
            self._busy.release()
            return True
        return False

    def drop(self) -> None:
        """Let the open batch end by whatever goes wrong next; the next start finishes it."""
        self._batches.give_up = True


def spark_failure(query: StreamingQuery) -> EnvironmentProblem:
    """The error for a stream that ended by itself, without one of ours."""
    try:
        exception = query.exception()
        found = f"the stream ended with {type(exception).__name__ if exception else 'no exception'}"
    except JVM_GONE:
        found = "Spark's JVM is gone"
    return stream_ended(found)


def stream_ended(found: str) -> EnvironmentProblem:
    """The error for a Spark that does not go on."""
    return EnvironmentProblem(
        Code.SPARK_FAILED,
        found=found,
        expected="a stream that goes on",
        next_step="read the log file of Spark; start again, the service goes on where it was",
    )
