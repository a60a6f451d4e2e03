"""One lane of a batch: the part that falls to one contiguous range of vnodes.

It reads the changes of its vnodes, looks for faults in them, sends what the plan makes of them in one transaction
(`streaming.lane.sending`), and writes all of them, hidden ones too, to a log file that the driver commits afterwards.
It decides nothing: the plan is given, and the same plan on the same upstream range sends the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from schemas.errors import Code, InputError
from state.columns import log_schema
from state.journal import is_superseded
from state.replica import write_log_file
from state.storage import DataFile
from streaming.lane.changes import Changes, log_rows, order_changes
from streaming.lane.faults import find_faults
from streaming.lane.sending import Silent, send_all, send_letters
from streaming.lane.task import LaneJob, LaneResult, LaneTask
from streaming.runtime import failpoints
from streaming.runtime.failpoints import Failpoint
from streaming.runtime.stopwatch import Stopwatch

_LOG_PART_ROWS = 250_000
_LOG_PART_BYTES = 64 << 20


def run_lane(task: LaneTask, lane: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> LaneResult:
    """Carry out the lane's part of the plan.

    Raises: Fenced and OutcomeUnknown (see `LaneOutput`), InputError(EPOCH_TOO_LARGE), StateError when pinned files
    are gone. With upstream records at fault nothing is sent and the result lists them.
    """
    failpoints.obey(task.failpoint)
    watch, result = Stopwatch(), LaneResult(lane)
    jobs = [LaneJob(task, plan, lane) for plan in task.plan.jobs]
    for part in _whole(batches, task) if jobs else _parts(batches):
        result.held_bytes += sum(batch.nbytes for batch in part)
        changes = order_changes(part, schema, task.plan, task.table)
        result.changes += len(changes)
        result.faults += find_faults(changes, task.table, task.limits.record_bytes)
        watch.lap("order")
        failpoints.reach(Failpoint.LANE_READ)
        if not result.faults:
            _send(task, lane, jobs, changes, result, watch)
            result.log += write_log(task, lane, changes)
            watch.lap("log")
            failpoints.reach(Failpoint.LANE_LOGGED)
    result.step_ms = watch.step_ms
    return result


def _whole(batches: Iterable[pa.RecordBatch], task: LaneTask) -> Iterator[list[pa.RecordBatch]]:
    """All changes at once: a job wants them in order."""
    part: list[pa.RecordBatch] = []
    held, limit = 0, task.limits.lane_bytes
    for batch in batches:
        part.append(batch)
        held += batch.nbytes
        if held > limit:
            raise InputError(
                Code.EPOCH_TOO_LARGE,
                where=f"barrier {task.plan.epoch}",
                found=f"more than {limit} bytes of changes for one lane since the barrier before",
                expected="an interval that a lane can hold, as limits.lane_bytes says",
                next_step="raise limits.lane_bytes if the memory is there; let barriers come more often",
            )
    yield part


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """To build the log alone, as many at a time as fit in memory."""
    part: list[pa.RecordBatch] = []
    rows = held = 0
    for batch in batches:
        part.append(batch)
        rows += len(batch)
        held += batch.nbytes
        if rows >= _LOG_PART_ROWS or held >= _LOG_PART_BYTES:
            yield part
            part, rows, held = [], 0, 0
    yield part


def _send(
    task: LaneTask, lane: int, jobs: list[LaneJob], changes: Changes, result: LaneResult, watch: Stopwatch
) -> None:
    start = None if task.plan.start is None else task.plan.start.epoch
    before = {place: None if job.opens else start for job in jobs for place in job.places()}
    if not before:
        return
    with task.open_output(f"{task.transactional_id}-{lane}") as output:
        watch.lap("init")
        failpoints.reach(Failpoint.LANE_OPENED)
        result.superseded = is_superseded(task.storage, task.journal_version)
        if result.superseded:
            return
        result.already_sent = output.already_sent(before, task.plan.epoch, task.known_ends)
        watch.lap("look")
        if result.already_sent:
            send_all(task, jobs, changes, Silent(), result, watch)
        else:
            failpoints.reach(Failpoint.LANE_LOOKED)
            with output.transaction():
                send_letters(task, lane, jobs, output)
                send_all(task, jobs, changes, output, result, watch)
                failpoints.reach(Failpoint.LANE_SENT)
            failpoints.reach(Failpoint.LANE_COMMITTED)
        watch.lap("commit")
        result.ends = output.ends()


def write_log(task: LaneTask, lane: int, changes: Changes) -> list[DataFile]:
    """All changes of a lane, hidden ones too, in a file (none without changes) that the driver is to commit."""
    if not len(changes):
        return []
    rows = log_rows(changes, task.plan, log_schema(task.table))
    return [write_log_file(task.storage, rows, f"{task.plan.epoch:020d}-{lane}")]
