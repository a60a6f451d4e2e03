"""Upkeep of the replica beside the batches: folding the log into the base, merging small log files.

The work is begun and awaited by one background thread; what was made is committed by the batch thread, between two
batches, so the replica keeps a single writer.

A fold is one short piece of work after another, each begun in the pause that follows a batch. With 5,000 changes/s the
p99 of changes during folds was 3.2 s while a fold took all slots at once and went on beside the batches, 1.9 s since;
it is 1.5 s without folds.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from schemas.errors import CommitConflict
from schemas.table import TableSchema
from state.columns import OFFSET, VNODE
from state.fold import FoldPart, FoldResult, parts_of
from state.journal import PATH as JOURNAL_PATH
from state.ledger import delete_unused
from state.progress_table import PATH as PROGRESS_PATH
from state.replica import BASE_PATH, LOG_PATH, Replica, ReplicaFiles, write_log_file
from state.storage import DataFile, Storage
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.stopwatch import Stopwatch

FOLD_LEAST_ROWS = 100_000
"""A log below this is never folded: a slice reads it in a moment."""
FOLD_SHARE = 0.25
"""Log rows per base row at which the log is folded: what a slice reads on top stays a fraction of it."""
PATIENCE_S = 1.0
"""How long a piece of a fold waits for the end of the batch under way: a fold goes on beside long batches too."""
MERGE_FILES = 16
"""Log files of about one size that are merged into one, as in a size-tiered LSM tree."""
CLEANING_INTERVAL_S = 600.0
"""Time between two rounds of deleting files that no version needs any more."""

log = structlog.get_logger()


@dataclass(frozen=True)
class _Merged:
    files: tuple[DataFile, ...]
    into: DataFile


@dataclass(frozen=True)
class FoldReport:
    """A fold that was committed: the base is complete up to `epoch`.

    `took_ms` is with the waits for pauses between its pieces, and without the commit.
    """

    epoch: int
    result: FoldResult
    took_ms: float


_Done = FoldReport | _Merged | None
RunFold = Callable[[Sequence[FoldPart]], FoldResult]
"""Folds parts somewhere, all side by side."""


class Upkeep:
    """Call `batch_begins` and `between_batches` from the batch thread only; they never wait unless told to.

    `slots` tells how many parts can be folded at once; beside batches a fold takes no more than half of them.
    """

    def __init__(
        self,
        run_fold: RunFold,
        replica: Replica,
        on_fold: Callable[[FoldReport], None],
        *,
        fold_least_rows: int = FOLD_LEAST_ROWS,
        slots: Callable[[], int] = lambda: 1,
    ) -> None:
        self._run_fold, self._replica, self._on_fold, self._slots = run_fold, replica, on_fold, slots
        self._fold_least_rows = fold_least_rows
        self._next_cleaning_s = time.monotonic() + CLEANING_INTERVAL_S
        self._pause = threading.Event()
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="upkeep")
        self._running: Future[_Done] | None = None

    def batch_begins(self) -> None:
        """Let no further piece of a fold begin."""
        self._pause.clear()

    def between_batches(self, epoch: int, *, wait_for_fold: bool) -> None:
        """Commit what is ready and begin what is due. `epoch`: the barrier that the log is complete up to.

        `wait_for_fold` is for a replica that nobody reads yet: its first fold should come before the first slice.
        """
        self._pause.set()
        self._collect()
        if self._running is not None:
            return
        files = self._replica.files(self._replica.pin())
        if self._fold_due(files):
            self._begin(lambda: self._fold(files, epoch, at_once=wait_for_fold))
            if wait_for_fold:
                self.finish()
            return
        tier = _merge_due(files)
        storage, table = self._replica.storage, self._replica.table
        if tier:
            self._begin(lambda: _merge(storage, table, tier))
        elif time.monotonic() > self._next_cleaning_s:
            self._next_cleaning_s = time.monotonic() + CLEANING_INTERVAL_S
            self._begin(lambda: _clean(storage))

    def _fold_due(self, files: ReplicaFiles) -> bool:
        return files.log_rows > max(self._fold_least_rows, FOLD_SHARE * files.base_rows)

    def finish(self) -> None:
        """Wait for what is running, and commit it."""
        if self._running is not None:
            self._running.exception()
            self._collect()

    def close(self) -> None:
        """Let go of the thread, without waiting for the piece of work under way; nothing is committed any more."""
        self._closed = True
        self._pause.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self, work: Callable[[], _Done]) -> None:
        self._running = self._thread.submit(work)

    def _fold(self, files: ReplicaFiles, epoch: int, *, at_once: bool) -> FoldReport:
        clock = Stopwatch()
        parts = parts_of(self._replica.storage, self._replica.table, files)
        result = self._run_fold(parts) if at_once else self._fold_in_pauses(parts)
        clock.lap("fold")
        return FoldReport(epoch, result, clock.step_ms["fold"])

    def _fold_in_pauses(self, parts: Sequence[FoldPart]) -> FoldResult:
        result, width = FoldResult(), max(self._slots() // 2, 1)
        for first in range(0, len(parts), width):
            self._pause.wait(PATIENCE_S)
            self._pause.clear()
            if self._closed:
                raise CancelledError
            result |= self._run_fold(parts[first : first + width])
        return result

    def _collect(self) -> None:
        if self._running is None or not self._running.done():
            return
        ended, self._running = self._running, None
        failure = ended.exception()
        if failure is not None:
            # Batches go on without it, only slower; the cause, a full disk say, will show there if it lasts.
            log.warning("upkeep failed, to be tried again", error=type(failure).__name__)
            return
        try:
            self._commit(ended.result())
        except CommitConflict:  # a successor, as the next plan will find, or one whom we took over from
            log.warning("upkeep refused, to be tried again")
            self._replica.reload()

    def _commit(self, done: _Done) -> None:
        match done:
            case _Merged(files, into):
                self._replica.replace_log_files(files, into)
            case FoldReport() as report:
                self._replica.commit_fold(report.result.added, report.result.removed, report.epoch)
                failpoints.reach(Failpoint.FOLDED)
                self._replica.trim()
                self._on_fold(report)
            case None:
                pass


def _merge_due(files: ReplicaFiles) -> list[DataFile]:
    """The lowest tier with enough files; a tier spans a factor of `MERGE_FILES` in rows."""
    tiers: dict[int, list[DataFile]] = defaultdict(list)
    for file in files.log:
        tiers[int(math.log(max(file.rows, 1), MERGE_FILES))].append(file)
    return next((tier for _, tier in sorted(tiers.items()) if len(tier) >= MERGE_FILES), [])


def _clean(storage: Storage) -> None:
    for path in (JOURNAL_PATH, PROGRESS_PATH, LOG_PATH, BASE_PATH):
        delete_unused(storage, path)


def _merge(storage: Storage, table: TableSchema, files: list[DataFile]) -> _Merged:
    parts = [
        pq.read_table(storage.path(LOG_PATH, file.path), filesystem=storage.filesystem, partitioning=None)
        for file in files
    ]
    rows = pa.concat_tables(parts)
    rows = rows.sort_by([(VNODE, "ascending"), (OFFSET, "ascending")])
    return _Merged(tuple(files), write_log_file(storage, rows, "merged"))
