"""Maintenance in parallel with batches: compacting the log into the base, merging small log files, deleting dead ones.

Each of the three has its own `Turn`, so neither a compaction of hours nor one that fails keeps the others waiting.
Results are committed by the batch thread, between two batches, so the replica keeps a single writer:

    compact  log up to barrier e ⊕ base  ──▶  new base files; then log files that end at e or before leave the log
    merge    log files of about one size ──▶  one. While a compaction to e is under way, only those that begin behind e:
             then no file has rows on both sides of e, and all compacted rows leave the log with the compaction
    clean    files that no version has named for longer than the retention

A compaction is one short piece of work after another, each begun in the pause that follows a batch. With 5,000
changes/s the p99 of changes during compactions was 3.2 s while a compaction took all slots at once and went on beside
the batches, 1.9 s since; it is 1.5 s without compactions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass

import structlog

from schemas.errors import Code, CommitConflict
from schemas.formats.protocol import Images
from state.columns import EPOCH
from state.initial.chunks import CHUNKS_PATH
from state.maintenance.cleaning import STATE_TABLES, Cleaned, clean_state
from state.maintenance.compaction import CompactionPart, CompactionResult, parts_of
from state.maintenance.merge import Merge, Merged, choose_merges
from state.replica import BASE_PATH, LOG_PATH, Replica, ReplicaFiles
from state.storage import now_ms
from streaming.compaction.maintenance import Maintenance, Turn
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.timing import Stopwatch

COMPACTION_LEAST_ROWS = 100_000
"""A log below this is never compacted: a slice reads it in a moment."""
COMPACTION_SHARE = 0.25
"""Log rows per base row at which the log is compacted: a slice reads them on top of the base."""
COMPACTION_LEAST_BYTES, COMPACTION_BYTES_SHARE = 1 << 30, 0.5
"""Both limits in bytes, for wide rows: narrow ones reach their share of rows first."""
LONGEST_WAIT_S = 1.0
"""The longest wait of a piece of a compaction for the end of the batch under way: long batches do not stop it."""
MOST_LOG_FILES = 200
"""Log files at which batches wait for merges: a slice opens all of them."""
KEEP_UP_S = 10.0
"""The longest wait of batches for merges: where these fail, batches go on with more files."""
CLEANING_INTERVAL_S = 600.0
"""Time between two rounds of deleting files that no version needs any more."""
FIRST_CLEANING_S = 30.0
"""Until the first one after a start, so that a service that is killed often cleans as well."""

log = structlog.get_logger()


_CONTRADICTIONS = frozenset({Code.INSERT_EXISTING_KEY, Code.DELETE_MISSING_KEY, Code.OLD_ROW_MISMATCH})


@dataclass(frozen=True)
class CompactionReport:
    """A finished compaction: the base was complete up to barrier `read_at`, and is up to `epoch` once it is committed.

    `took_ms` includes the waits for pauses between batches, and not the commit.
    """

    epoch: int
    read_at: int
    result: CompactionResult
    took_ms: float


RunCompaction = Callable[[Sequence[CompactionPart]], CompactionResult]
"""Compacts parts in parallel."""
RunMerges = Callable[[Sequence[Merge]], Sequence[Merged]]
"""Carries out merges in parallel."""


class Compactor:
    """Call `batch_begins` and `between_batches` from the batch thread only; the latter may wait, see its docstring.

    `slots` gives the number of parts that can be compacted at once; while batches run, a compaction takes at most half
    of them, and so do merges, unless batches wait for them. `cleaning_s` and `first_cleaning_s` are times between
    cleanings, and until the first. `chunks_since_ms` gives the start of the oldest chunk of the table that is in no
    plan yet.
    """

    def __init__(
        self,
        run_compaction: RunCompaction,
        run_merges: RunMerges,
        replica: Replica,
        on_compaction: Callable[[CompactionReport], None],
        *,
        compaction_least_rows: int = COMPACTION_LEAST_ROWS,
        slots: Callable[[], int] = lambda: 1,
        cleaning_s: float = CLEANING_INTERVAL_S,
        first_cleaning_s: float = FIRST_CLEANING_S,
        chunks_since_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._run_compaction, self._run_merges = run_compaction, run_merges
        self._replica, self._on_compaction, self._slots = replica, on_compaction, slots
        self._compaction_least_rows, self._cleaning_s = compaction_least_rows, cleaning_s
        self._next_cleaning_s = time.monotonic() + first_cleaning_s
        self._chunks_since_ms = chunks_since_ms
        self._pause = threading.Event()
        self._closed = False
        self._compacting_to: int | None = None
        self._compaction = Turn[CompactionReport](
            "compaction", "see that workers have memory for the largest vnode, and the state's disk has room"
        )
        self._merges = Turn[Sequence[Merged]](
            "merge of log files", "see that the state can be read and its disk has room"
        )
        self._cleaning = Turn[Cleaned]("cleaning", "see that files of the state may be deleted by this user")

    def batch_begins(self) -> None:
        """Hold back further pieces of a compaction."""
        self._pause.clear()

    def between_batches(self, epoch: int, *, wait_for_compaction: bool) -> None:
        """Commit finished work and begin due work. `epoch`: the barrier that the log is complete up to.

        `wait_for_compaction` is for a replica that no job reads yet: its first compaction should come before the first
        slice. Waits for merges too, while there are more log files than slices should open.
        """
        if self._closed:
            return
        self._pause.set()
        self._collect()
        files = self._files()
        if self._compaction.is_free and self._compaction_due(files):
            self._compacting_to = epoch
            self._compaction.begin(lambda: self._compact(files, epoch, at_once=wait_for_compaction))
            if wait_for_compaction:
                self._compaction.wait()
                self._collect()
        self._begin_merges()
        self._keep_up()
        if self._cleaning.is_free and time.monotonic() > self._next_cleaning_s:
            self._next_cleaning_s = time.monotonic() + self._cleaning_s
            self._begin_cleaning()

    def _files(self) -> ReplicaFiles:
        return self._replica.files(self._replica.pin())

    def _compaction_due(self, files: ReplicaFiles) -> bool:
        many = files.log_rows > max(self._compaction_least_rows, COMPACTION_SHARE * files.base_rows)
        return many or files.log_bytes > max(
            COMPACTION_LEAST_BYTES, COMPACTION_BYTES_SHARE * files.base_bytes
        )

    def _begin_merges(self) -> None:
        if not self._merges.is_free:
            return
        files = self._files().log
        after = self._compacting_to or 0
        free = [file for file in files if file.bounds[EPOCH][0] > after]
        groups = choose_merges(free, others=len(files) - len(free))
        if groups:
            storage, table = self._replica.storage, self._replica.table
            merges = [Merge(storage, table, group) for group in groups]
            share = 1 if len(files) > MOST_LOG_FILES else 2  # no batch begins before these are done
            self._merges.begin(lambda: self._run_merges(merges[: self._width(share)]))

    def _width(self, share: int = 2) -> int:
        """The number of parts that may run at once: one `share`-th of the slots."""
        return max(self._slots() // share, 1)

    def _keep_up(self) -> None:
        deadline_s = time.monotonic() + KEEP_UP_S
        while self._merges.is_running and len(self._files().log) > MOST_LOG_FILES:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return
            self._merges.wait(left_s)
            self._collect()
            self._begin_merges()

    def _begin_cleaning(self) -> None:
        storage, table = self._replica.storage, self._replica.table
        began_ms = dict.fromkeys((*STATE_TABLES, CHUNKS_PATH), now_ms())
        for path, at in (
            (BASE_PATH, self._compaction.began_ms),
            (LOG_PATH, self._merges.began_ms),
            (CHUNKS_PATH, self._chunks_since_ms()),
        ):
            began_ms[path] = began_ms[path] if at is None else at
        self._cleaning.begin(lambda: clean_state(storage, table, began_ms, lambda: self._closed))

    def maintenance(self) -> tuple[Maintenance, ...]:
        """The state of its three kinds of work. For any thread."""
        return self._compaction.maintenance(), self._merges.maintenance(), self._cleaning.maintenance()

    def finish(self) -> None:
        """Wait for the work under way, and commit it."""
        for turn in (self._compaction, self._merges, self._cleaning):
            turn.wait()
        self._collect()

    def close(self) -> None:
        """Release the threads, without waiting for the work under way; nothing is committed any more."""
        self._closed = True
        self._pause.set()
        for turn in (self._compaction, self._merges, self._cleaning):
            turn.close()

    def _compact(self, files: ReplicaFiles, epoch: int, *, at_once: bool) -> CompactionReport:
        clock = Stopwatch()
        parts = parts_of(self._replica.storage, self._replica.table, files)
        result = self._run_compaction(parts) if at_once else self._compact_in_pauses(parts)
        clock.lap("compaction")
        return CompactionReport(epoch, files.compacted_epoch, result, clock.step_ms["compaction"])

    def _compact_in_pauses(self, parts: Sequence[CompactionPart]) -> CompactionResult:
        result, width = CompactionResult(), self._width()
        for first in range(0, len(parts), width):
            self._pause.wait(LONGEST_WAIT_S)
            self._pause.clear()
            if self._closed:
                raise CancelledError
            result |= self._run_compaction(parts[first : first + width])
        return result

    def _collect(self) -> None:
        self._cleaning.take()
        try:
            for merged in self._merges.take() or ():
                self._commit_merge(merged)
            report = self._compaction.take()
            if not self._compaction.is_running:
                self._compacting_to = None
            if report is not None:
                self._commit_compaction(report)
        except CommitConflict:
            # Of a successor, which the next plan will find, or of the instance before this one.
            log.warning("maintenance refused, to be tried again")
            self._replica.reload()

    def _commit_compaction(self, report: CompactionReport) -> None:
        made, replica = report.result, self._replica
        if replica.commit_compaction(made.added, made.removed, report.epoch, read_at=report.read_at):
            failpoints.reach(Failpoint.COMPACTED)
            replica.trim()
            self._on_compaction(report)

    def _commit_merge(self, merged: Merged) -> None:
        """Commit a merge, unless its files have left the log: by a compaction, or by another instance's merge."""
        failpoints.reach(Failpoint.MERGED)
        there = {file.path for file in self._replica.log.files()}
        if there.issuperset(file.path for file in merged.files):
            self._replica.replace_log_files(merged.files, merged.into)


def log_compaction(upstream: str, images: Images, report: CompactionReport) -> None:
    """One line for a compaction, and one for each kind of change that contradicts the table.

    In an upstream without rows before, no change can contradict it.
    """
    result = report.result
    log.info(
        "compaction",
        epoch=report.epoch,
        vnodes=result.vnodes,
        rows=result.rows_read,
        took_ms=round(report.took_ms),
    )
    left_out = _CONTRADICTIONS if images is Images.AFTER_ONLY else frozenset()
    for code, illegal in result.illegal.items():
        if code in left_out:
            continue
        partition, offset = illegal.first
        first = f"{upstream}-{partition}@{offset}"
        log.warning("illegal_changes", code=code, count=illegal.count, first=first)
