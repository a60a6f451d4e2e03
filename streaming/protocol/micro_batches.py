"""Spark's stream of micro-batches, and the function that it calls with each: it runs a batch for each aligned barrier.

A micro-batch is Spark's unit, a batch is ours; they need not match. A micro-batch may run no batch at all (no barrier
is aligned yet), or several: Spark takes 0.2 s from one to the next, and asks the broker for news ten times a second
meanwhile. So where the source itself waits for barriers, a micro-batch takes later ones as well, for a while. Nothing
is lost if Spark forgets or repeats a micro-batch: the position is in the journal, and a source gives each barrier once.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.errors import BackfillError, Code, EnvironmentProblem, Fenced
from state.values.aligned import AlignedBarrier
from streaming.compaction.compactor import Compactor
from streaming.protocol.batches import Batches
from streaming.protocol.report import BatchReport
from streaming.runtime.session import JVM_GONE
from streaming.source.barriers.source import BarrierSource

OnBatch = Callable[[BatchReport], None]

_TURN_S = 10.0
"""Long against the 0.2 s between two micro-batches."""
_TRIGGER_INTERVAL = "100 milliseconds"
_DRAIN_TIMEOUT_S = 20.0
_POLL_S = 0.2

log = structlog.get_logger()


class MicroBatches:
    """Runs batches within `foreachBatch`. `failure` holds the error that ended it; Spark gets only its code.

    `turn_s`: how long a micro-batch waits for further barriers, if the source waits by itself. It ends with the batch
    under way at that time, so an idle source may keep it for longer.
    """

    def __init__(
        self,
        source: BarrierSource,
        batches: Batches,
        compactor: Compactor,
        on_batch: OnBatch,
        *,
        turn_s: float = _TURN_S,
    ) -> None:
        self._turn_s = turn_s
        self._source, self._batches, self._compactor, self._on_batch = source, batches, compactor, on_batch
        self._waiting: deque[AlignedBarrier] = deque()
        self._busy = threading.Lock()
        self._closed = self._settling = False
        self.failure: BaseException | None = None

    def __call__(self, records: DataFrame, micro_batch_id: int) -> None:
        """Called by Spark, one micro-batch at a time; returning lets it commit the micro-batch's offsets."""
        with self._busy:
            if self._closed:
                return
            try:
                began = time.monotonic()
                self.run_batches(self._source.aligned(records))
                while self._goes_on(time.monotonic() - began) and not self._closed:
                    self.run_batches(self._source.aligned(records))
            except BaseException as failure:  # noqa: BLE001  # whatever it is, the stream's owner raises it
                self.failure = failure
                self._closed = True
                # Spark matches the message with a regular expression that can exhaust its stack: only the code is sent.
                code = failure.code if isinstance(failure, BackfillError) else type(failure).__name__
                raise RuntimeError(str(code)) from None

    def _goes_on(self, turn_s: float) -> bool:
        return self._source.has_more or (self._source.waits and turn_s < self._turn_s)

    @property
    def pending(self) -> int:
        """Aligned barriers that no batch has done; those of the open batch count, until what follows it is done too."""
        return len(self._waiting) + self._settling

    def run_batches(self, aligned: Iterable[AlignedBarrier]) -> None:
        """Run the batches of these barriers, and of those that wait."""
        self._waiting.extend(aligned)
        while self._waiting and not self._closed:
            self._compactor.batch_begins()
            report = self._batches.run_batch(tuple(self._waiting), self._source.take_duplicates)
            if report is None:
                return
            for _ in report.plan.barriers:
                self._waiting.popleft()
            self._after(report)

    def _after(self, report: BatchReport) -> None:
        has_readers = any(job.state.opened for job in report.plan.open_jobs)
        if self._batches.reads_on(report):
            self._source.hasten(report.plan.epoch)
        self._settling = True
        self._compactor.between_batches(report.plan.epoch, wait_for_compaction=not has_readers)
        self._settling = False
        self._on_batch(report)
        if report.outcome.stop:
            self._closed = True

    def close(self, timeout_s: float) -> bool:
        """Begin no further batch, and wait for the open one. False if it is still running."""
        self._closed = self._batches.ending = True
        self._source.wakeup()
        if self._busy.acquire(timeout=timeout_s):
            self._busy.release()
            return True
        return False

    def drop(self) -> None:
        """End the open batch at its next error; the next start finishes it."""
        self._batches.give_up()


def spark_failure(query: StreamingQuery) -> EnvironmentProblem:
    """The error for a stream that ended without an error of ours."""
    try:
        exception = query.exception()
        found = f"the stream ended with {type(exception).__name__ if exception else 'no exception'}"
    except JVM_GONE:
        found = "Spark's JVM is gone"
    return stream_ended(found)


def stream_ended(found: str) -> EnvironmentProblem:
    return EnvironmentProblem(Code.SPARK_FAILED, found=found)


class Stream:
    """The stream of one run, from its first trigger to its end. `stop` ends it between two batches.

    The journal is the only position: Spark's own checkpoint lives as long as a stream. In a shared checkpoint, an
    instance that has yet to notice that it is fenced would commit offsets that its successor has not handled, and the
    successor would skip them.
    """

    def __init__(
        self, spark: SparkSession, barriers: BarrierSource, micro_batches: MicroBatches, stop: threading.Event
    ) -> None:
        self._spark, self._barriers, self._micro_batches, self._stop = spark, barriers, micro_batches, stop

    def serve(self, on_started: Callable[[], None], check: Callable[[], None]) -> None:
        """Run the stream until `stop` is set. `check` is called every 0.2 s, and an error of its ends the stream.

        Raises: the error that has ended the stream otherwise; the journal then has the batch that may be half done.
        """
        dropped, drain_s = False, _DRAIN_TIMEOUT_S
        with self._started() as query:
            on_started()
            try:
                self._wait(query, check)
            except Fenced:
                drain_s = 0.0  # the open batch is the successor's
                raise
            finally:
                dropped = self._end(query, drain_s)
        failure = self._micro_batches.failure
        if not self._stop.is_set():
            raise failure or spark_failure(query)
        # A group of processes is often ended together: Spark may have gone before the batch came to its end.
        if failure is not None and not dropped and not isinstance(failure, (EnvironmentProblem, *JVM_GONE)):
            raise failure
        log.info("stopped", open_batch="dropped" if dropped or failure else "none")

    @contextmanager
    def _started(self) -> Iterator[StreamingQuery]:
        scratch = self._spark.conf.get("spark.local.dir")
        with tempfile.TemporaryDirectory(
            dir=scratch, prefix="stream-", ignore_cleanup_errors=True
        ) as checkpoint:
            stream = self._barriers.stream().writeStream.foreachBatch(self._micro_batches)
            stream = stream.option("checkpointLocation", Path(checkpoint).as_uri())
            yield stream.trigger(processingTime=_TRIGGER_INTERVAL).start()

    def _wait(self, query: StreamingQuery, check: Callable[[], None]) -> None:
        with suppress(*JVM_GONE):
            while query.isActive and not self._stop.wait(_POLL_S):
                check()

    def _end(self, query: StreamingQuery, drain_s: float) -> bool:
        """End the query, between two batches if possible. True: the open batch was dropped, for the next start."""
        in_time = self._micro_batches.close(drain_s)
        with suppress(*JVM_GONE):
            if not in_time:
                self._micro_batches.drop()
                self._spark.sparkContext.cancelAllJobs()
            query.stop()
        return not in_time
