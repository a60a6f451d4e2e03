"""The stream of micro-batches from its first trigger to its end, in the order that keeps the open batch whole.

Step 6 of `streaming.service.service`. The journal is the only position: Spark's own checkpoint lives as long as a
stream. In a shared checkpoint, an instance that has yet to notice that it is fenced would commit offsets that its
successor has not handled, and the successor would skip them.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.errors import EnvironmentProblem, Fenced
from streaming.protocol.micro_batches import MicroBatches, spark_failure
from streaming.runtime.session import JVM_GONE
from streaming.source.barriers.source import BarrierSource

_TRIGGER_INTERVAL = "100 milliseconds"
_DRAIN_TIMEOUT_S = 20.0
_POLL_S = 0.2

log = structlog.get_logger()


class Stream:
    """The stream of one run. `stop` ends it between two batches."""

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
