"""The copy of a table into a new state, by Spark: some parts at a time, in the Python workers that lanes run in.

It comes before barriers are written or read, so that the changes that gather meanwhile are one long interval.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog
from pyspark.sql import SparkSession

from schemas.errors import CommitConflict
from state.initial.copy import TableCopy, copy_part
from state.initial.start import CopyProgress, progress_of
from state.initial.table import SourceTable
from state.journal import Journal
from state.maintenance.compaction import CompactionResult, compact_part
from state.replica import Replica
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.session import run_each
from streaming.runtime.timing import Stopwatch

Part = TypeVar("Part")
Result = TypeVar("Result")
_ATTEMPTS = 3
OnCopied = Callable[[CopyProgress | None], None]
"""Called after some parts; None once the copy is done."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SparkWorkers:
    """Runs each part as a task of Spark. `spark()` blocks until the session is there."""

    spark: Callable[[], SparkSession]

    @property
    def slots(self) -> int:
        """Parts that run at once."""
        return self.spark().sparkContext.defaultParallelism

    def each(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        """The results of `work` for each part, in no order. Raises: EnvironmentProblem(SPARK_FAILED)."""
        tasks = self.spark().range(0, len(parts), 1, len(parts))
        return run_each(tasks, lambda number, batches: work(parts[number]))


@dataclass(frozen=True)
class Copying:
    """The copy at one start.

    `source` opens the table, if it is needed. A part has about `most_rows`. `stopping` is called between parts.
    """

    workers: SparkWorkers
    journal: Journal
    replica: Replica
    source: Callable[[], SourceTable]
    most_rows: int
    on_copied: OnCopied
    stopping: Callable[[], bool]

    def copy(self) -> bool:
        """Copy the rest of the table. False if it was stopped before the end.

        Raises: ConfigError for an incompatible table (`TableCopy`, `SourceTable`); Fenced;
        EnvironmentProblem(SPARK_FAILED).
        """
        if progress_of(self.replica, None) is None:
            return True
        source, clock = self.source(), Stopwatch()
        if not self._copy(source):
            return False
        clock.lap("copy")
        log.info(
            "copied",
            table=source.uri,
            version=source.version,
            rows=sum(file.rows for file in self.replica.base.files()),
            took_ms=round(clock.step_ms["copy"]),
        )
        self.on_copied(None)
        return True

    def _copy(self, source: SourceTable) -> bool:
        """Copy, and again after a conflict: the instance before may still commit a part."""
        for attempt in range(1, _ATTEMPTS + 1):
            if progress_of(self.replica, None) is None:
                return True
            try:
                return self._parts(TableCopy(self.replica, source, self.most_rows))
            except CommitConflict as conflict:
                if self.journal.is_superseded:
                    raise self.journal.fenced() from conflict
                if attempt == _ATTEMPTS:
                    raise
                self.replica.reload()
        raise AssertionError("the last attempt returned or raised")

    def _parts(self, copy: TableCopy) -> bool:
        width = self.workers.slots
        self.on_copied(copy.progress)
        while parts := copy.to_copy(width):
            if self._is_over():
                return False
            copy.commit_copied(self.workers.each(copy_part, parts))
            self._done(copy)
        while to_sort := copy.to_sort(width):
            if self._is_over():
                return False
            results = self.workers.each(compact_part, to_sort)
            copy.commit_sorted(len(to_sort), functools.reduce(operator.or_, results, CompactionResult()))
            self._done(copy)
        copy.commit_end()
        return True

    def _is_over(self) -> bool:
        if self.journal.is_superseded:
            raise self.journal.fenced()
        return self.stopping()

    def _done(self, copy: TableCopy) -> None:
        failpoints.reach(Failpoint.COPIED)
        self.on_copied(copy.progress)
