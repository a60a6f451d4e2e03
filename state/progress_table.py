"""The progress table: one row per changed vnode and barrier, an ordinary Delta table that any reader may read.

    job | vnode | position (primary key values, JSON) | backfill_finished | row_count | barrier

The form is that of RisingWave's state table (src/stream/src/executor/backfill/utils.rs) with job and barrier. Rows are
only appended; the newest row of a vnode counts. A job dropped and created again under its name starts at a later
barrier, so `barrier` separates older rows of that name. `vnode` is the part of the job's scan
(`schemas.kinds.configs`): a vnode, where the replica is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from schemas.position import position_from_text, position_to_text
from schemas.table import Column, TableSchema
from state.ledger import Ledger
from state.storage import DataFile, Storage
from state.values.plan import JobState
from state.values.progress import Completed, InProgress, NotStarted, Parts, Progress

PATH = "progress"
SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("vnode", pa.int32()),
        ("position", pa.string()),
        ("backfill_finished", pa.bool_()),
        ("row_count", pa.int64()),
        ("barrier", pa.int64()),
    ]
)
_MERGE_FILES = 128
"""Files at which the table is rewritten into one, which then holds only the newest row of each vnode."""


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """The progress of a vnode that changed."""

    job: str
    vnode: int
    progress: Progress


class ProgressTable:
    """The table of all jobs. `commit` is idempotent per barrier and conditional on the version seen."""

    def __init__(self, storage: Storage, table: TableSchema) -> None:
        self._ledger = Ledger(storage, PATH, SCHEMA)
        self._table = table

    @property
    def epoch(self) -> int:
        """The barrier of the last commit."""
        return self._ledger.epoch

    @property
    def committed_ms(self) -> int | None:
        """The Unix milliseconds of the last commit, by the storage's clock."""
        return self._ledger.committed_ms

    def reload(self) -> None:
        """Open the table at its newest version."""
        self._ledger.reload()

    def load(self, jobs: Iterable[JobState]) -> dict[str, Parts]:
        """The newest progress of each job, by its name: of the parts that have some.

        A job reads nothing before its start, so rows of that very barrier are a dropped job's of the same name.
        """
        known = {job.name: job for job in jobs}
        loaded = {name: dict[int, Progress](job.first_progress) for name, job in known.items()}
        starts = {name: job.start for name, job in known.items()}
        columns = {name: job.definition.scan.position_columns(self._table) for name, job in known.items()}
        for row in _newest(_of_jobs(self._ledger.read(), starts)).to_pylist():
            loaded[row["job"]][row["vnode"]] = _progress(row, columns[row["job"]])
        return {name: Parts(states) for name, states in loaded.items()}

    def commit(
        self, rows: Sequence[ProgressRow], epoch: int, starts: Mapping[str, int] | None = None
    ) -> None:
        """Append the vnodes that changed by barrier `epoch`. Does nothing if that barrier is there already.

        `starts` are all known jobs, each by the barrier of its start: where the table is rewritten, rows of other jobs
        are dropped. None keeps all.
        """
        if epoch <= self.epoch:
            return
        files, kept = self._ledger.files(), self._to_arrow(rows, epoch)
        if merges := len(files) >= _MERGE_FILES:
            every = pa.concat_tables([self._ledger.read(), kept])
            kept = _newest(every if starts is None else _of_jobs(every, starts))
        added = [self._write(kept)] if kept.num_rows else []
        self._ledger.commit(added, files if merges else (), epoch=epoch)

    def _write(self, rows: pa.Table) -> DataFile:
        bounds = ("barrier", "vnode")
        return self._ledger.storage.write_parquet(PATH, rows, stem="progress", bound_columns=bounds)

    @staticmethod
    def _to_arrow(rows: Sequence[ProgressRow], epoch: int) -> pa.Table:
        made = []
        for row in rows:
            at = row.progress.position
            text, is_done = None if at is None else position_to_text(at), isinstance(row.progress, Completed)
            made.append((row.job, row.vnode, text, is_done, row.progress.row_count, epoch))
        return pa.Table.from_pylist([dict(zip(SCHEMA.names, each, strict=True)) for each in made], SCHEMA)


def _progress(row: Mapping[str, object], columns: Sequence[Column]) -> Progress:
    text, count = row["position"], row["row_count"]
    assert isinstance(count, int)
    position = None if text is None else position_from_text(str(text), columns)
    if row["backfill_finished"]:
        return Completed(position, count)
    return NotStarted() if position is None else InProgress(position, count)


def _of_jobs(rows: pa.Table, starts: Mapping[str, int]) -> pa.Table:
    """Rows behind the start of their job; none of other jobs."""
    known = pa.array(list(starts), type=pa.string())
    epochs = pa.array(list(starts.values()), type=pa.int64())
    start = epochs.take(pc.index_in(rows["job"].combine_chunks(), value_set=known))
    return rows.filter(pc.greater(rows["barrier"], start).fill_null(False))


def _newest(rows: pa.Table) -> pa.Table:
    last = rows.group_by(["job", "vnode"]).aggregate([("barrier", "max")])
    last = last.rename_columns({"barrier_max": "barrier"})
    return (
        rows.join(last, ["job", "vnode", "barrier"], join_type="left semi").select(SCHEMA.names).cast(SCHEMA)
    )
