"""One lane of a batch: the share of one contiguous range of vnodes.

It reads the changes of its vnodes, looks for faults in them, sends what the plan makes of them in one transaction
(`streaming.lane.sending`), and writes all of them, hidden ones too, to log files that the driver commits afterwards.
It decides nothing: the plan is given, and the same plan on the same upstream range sends the same bytes.

How many changes it holds at a time is another matter. A short interval is held whole, and put in order here. A long one
comes from Spark in order (`LaneTask.in_parts`) and goes through part by part, in the same transaction; a fault that
is found in a later part aborts it. Without a job there is no transaction, and no order to keep unless keys may come
from several partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from schemas.kinds.configs import SinkConfig
from state.columns import log_schema
from state.initial.chunks import write_waiting
from state.journal import is_superseded
from state.replica import write_log_file
from state.storage import DataFile
from streaming.lane.changes import count_no_data, log_rows, order_changes
from streaming.lane.complete import Completion, completion_of
from streaming.lane.faults import MOST_FAULTS, Fault, awaited_ids, find_faults
from streaming.lane.live import Shares
from streaming.lane.sending import send_all, send_letters
from streaming.lane.task import (
    Awaits,
    Faulty,
    Lack,
    LaneJob,
    LaneOutcome,
    LaneResult,
    LaneTask,
    Sent,
    Superseded,
    Undone,
    UndoneError,
    places_before,
)
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.timing import Stopwatch
from streaming.sink.output import SinkPartition
from streaming.sink.protocol import Mark
from streaming.source.decoded import Changes, check_decoded

_PART_BYTES = 32 << 20
"""Decoded changes of a part that is sent; encoding it takes some five times as much."""
_LOG_PART_ROWS, _LOG_PART_BYTES = 250_000, 32 << 20
"""Limits of a part that is only written to the log, which takes some ten times as much then: wide rows of
64 MiB a part came to 723 MiB in a worker, of 32 MiB to 557."""


def run_lane(
    task: LaneTask,
    lane: int,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    watch: Stopwatch | None = None,
) -> LaneOutcome:
    """Carry out the lane's part of the plan.

    With `task.in_parts` the rows of `batches` come in the order of interval, partition and offset, else in any. Where
    jobs read the upstream, they are the records of the lane's partitions too, as `history_ranges` has them. `watch` is
    that of whatever makes `batches`, which books its own steps on it while they are made.
    Raises: Fenced and OutcomeUnknown (see `Writer`), StateError when pinned files are gone, DecodedSchemaError
    when `schema`, that of all `batches`, is not `decoded_schema`. What is `Undone`, because of invalid records or for
    want of something, has left nothing visible.
    """
    check_decoded(schema, task.table)
    return _Lane(task, lane, schema, watch or Stopwatch()).run(batches)


@dataclass
class _Lane:
    task: LaneTask
    lane: int
    schema: pa.Schema
    watch: Stopwatch

    def __post_init__(self) -> None:
        self._jobs = [LaneJob.of(self.task, plan, self.lane) for plan in self.task.plan.sent_jobs]
        self._log: list[DataFile] = []
        self._waiting: list[DataFile] = []
        self._faults: list[Fault] = []
        self._awaited: frozenset[int] = frozenset()
        self._changes = self._held_bytes = self._ignored = self._logged = 0
        self._sent, self._already_sent = Sent(), False
        self._ends: Mapping[SinkPartition, Mark] = {}
        self._complete: Completion
        self._unwritten: Changes | None = None
        """The last part that was asked for: it goes to the log after it was sent."""

    @property
    def _stem(self) -> str:
        """The common prefix of the names of the lane's files."""
        return f"{self.task.plan.epoch:020d}-{self.lane}"

    def run(self, batches: Iterable[pa.RecordBatch]) -> LaneOutcome:
        try:
            with completion_of(self.task, self.lane) as self._complete:
                self._run(batches)
        except UndoneError as undone:
            return Undone(self.lane, undone.why)
        complete, reading = self._complete, self._complete.reading
        return LaneResult(
            lane=self.lane,
            log=tuple(self._log),
            waiting=tuple(self._waiting),
            released_rows=0 if reading is None else reading.released_rows,
            sent=self._sent,
            ends=self._ends,
            changes=self._changes,
            held_bytes=self._held_bytes,
            already_sent=self._already_sent,
            seen=complete.seen,
            redelivered=complete.redelivered.count,
            ignored=self._ignored,
            step_ms=self.watch.step_ms,
        )

    def _run(self, batches: Iterable[pa.RecordBatch]) -> None:
        parts = self._parts(batches)
        # Whatever it is sent with, the first part has been looked at before; of a short interval it is all.
        first = next(parts)
        if before := places_before(self.task, self._jobs):
            self._send(chain([first], parts), before)
        else:
            for _ in parts:
                pass
        self._write_log()

    def _parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Shares]:
        """Yields at least one part. The log of each is written when the next one is asked for. Raises: UndoneError."""
        for part in self._split(batches):
            changes = order_changes(part, self.schema, self.task.plan, self.task.table)
            task = self.task
            held_bytes = sum(batch.nbytes for batch in part)
            self._ignored += count_no_data(part, task.plan, task.vnodes(self.lane))
            self._awaited |= awaited_ids(changes)
            self.watch.lap("order")
            if len(self._faults) < MOST_FAULTS and not self._awaited:
                self._faults += find_faults(
                    changes, task.table, task.limits.record_bytes, task.upstream_format
                )
            self.watch.lap("check")
            failpoints.reach(Failpoint.LANE_READ)
            if self._faults or self._awaited:
                continue
            self._write_log()
            shares = Shares.of(changes, task, self.lane)
            # Records from before the batch are not counted.
            self._changes += len(shares.own)
            self._held_bytes += held_bytes * len(shares.own) // max(len(changes), 1)
            own, self._faults = self._complete(shares.own)
            self.watch.lap("before")
            if not self._faults:
                self._unwritten = own
                yield replace(shares, own=own)
            self._write_waiting(_LOG_PART_BYTES)
        if not self._faults and not self._awaited:
            self._release()
        if self._awaited:
            raise UndoneError(Awaits(self._awaited))
        if self._faults:
            raise UndoneError(Faulty(tuple(self._faults)))

    def _release(self) -> None:
        """Bring the rows of released chunks into the log, as of the barrier. Behind the last part."""
        reading = self._complete.reading
        if reading is None:
            return
        self._write_log()
        self._log += [write_log_file(self.task.storage, rows, self._stem) for rows in reading.released()]
        self._faults += self._complete.lacking()
        self._write_waiting()
        self.watch.lap("release")

    def _write_waiting(self, least_bytes: int = 0) -> None:
        reading = self._complete.reading
        if reading is None or (least_bytes and reading.is_anew):
            return
        rows = reading.waiting(least_bytes)
        if rows.num_rows:
            self._waiting.append(write_waiting(self.task.storage, rows, self._stem))

    def _split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
        if not self._jobs and self.task.moves_from is None:
            return _pieces(batches, _LOG_PART_ROWS, _LOG_PART_BYTES)
        if self.task.in_parts:
            return _pieces(batches, self.task.limits.part_records, _PART_BYTES)
        return iter([self._whole(batches)])

    def _whole(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        part: list[pa.RecordBatch] = []
        held = 0
        for batch in batches:
            part.append(batch)
            held += batch.nbytes
            if held > self.task.limits.lane_bytes:
                raise UndoneError(Lack.PARTS)
        return part

    def _send(
        self, parts: Iterable[Shares], before: Mapping[SinkConfig, Mapping[SinkPartition, int | None]]
    ) -> None:
        task = self.task
        with task.open_writers(self.lane, before) as writers:
            self.watch.lap("init")
            failpoints.reach(Failpoint.LANE_OPENED)
            if is_superseded(task.storage, task.journal_version):
                raise UndoneError(Superseded())
            self._already_sent = all(writers.already_sent(before, task.plan.epoch, task.known_ends))
            self.watch.lap("look")
            if self._already_sent:
                self._sent = send_all(task, self._jobs, parts, writers, self.watch)
            else:
                failpoints.reach(Failpoint.LANE_LOOKED)
                with writers.transaction():
                    send_letters(task, self.lane, self._jobs, writers)
                    self._sent = send_all(task, self._jobs, parts, writers, self.watch)
                    failpoints.reach(Failpoint.LANE_SENT)
                failpoints.reach(Failpoint.LANE_COMMITTED)
            self.watch.lap("commit")
            self._ends = writers.ends()

    def _write_log(self) -> None:
        """Write the last part, hidden changes too, to a file that the driver is to commit."""
        changes, task = self._unwritten, self.task
        if changes is None:
            return
        # Nothing is kept of rows without identity: what is committed then only says how far the batches are.
        if len(changes) and task.table.has_key:
            rows = log_rows(changes, task.plan, log_schema(task.table), task.moves_from, self._logged)
            self._log.append(write_log_file(task.storage, rows, self._stem))
        self._logged += len(changes)
        self._unwritten = None
        self.watch.lap("log")
        failpoints.reach(Failpoint.LANE_LOGGED)


def _pieces(
    batches: Iterable[pa.RecordBatch], most_rows: int, most_bytes: int
) -> Iterator[list[pa.RecordBatch]]:
    """Yields as many batches at a time as reach one of the limits; the last piece may be empty."""
    piece: list[pa.RecordBatch] = []
    rows = held = 0
    for batch in batches:
        piece.append(batch)
        rows += len(batch)
        held += batch.nbytes
        if rows >= most_rows or held >= most_bytes:
            yield piece
            piece, rows, held = [], 0, 0
    yield piece
