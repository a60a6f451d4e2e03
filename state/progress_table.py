"""The progress table: one row per changed vnode and barrier, an ordinary Delta table for whoever wants to look.

    job | vnode | position (primary key values, JSON) | backfill_finished | row_count | barrier

The form is the original's state table with the job and the barrier added (reference/risingwave.md 3.2). Rows are
only appended; the newest row of a vnode counts. A job dropped and created again under its name starts at a later
barrier, so older rows of that name are told apart by `barrier`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.position import position_from_text, position_to_text
from schemas.table import TableSchema
from state.ledger import Ledger
from state.progress import Completed, InProgress, NotStarted, Progress
from state.storage import DataFile, Storage

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

    def reload(self) -> None:
        """See what others committed."""
        self._ledger.reload()

    def load(self, job: str, start_epoch: int) -> dict[int, Progress]:
        """The newest progress of every vnode that has one, of the job that started at `start_epoch`.

        A job reads nothing before its start, so rows of that very barrier are a dropped job's of the same name.
        """
        newest: dict[int, tuple[int, Progress]] = {}
        for row in self._ledger.read().to_pylist():
            if row["job"] != job or row["barrier"] <= start_epoch:
                continue
            known = newest.get(row["vnode"])
            if known is None or row["barrier"] > known[0]:
                newest[row["vnode"]] = (row["barrier"], self._progress(row))
        return {vnode: progress for vnode, (_, progress) in newest.items()}

    def _progress(self, row: Mapping[str, object]) -> Progress:
        text, count = row["position"], row["row_count"]
        assert isinstance(count, int)
        position = None if text is None else position_from_text(str(text), self._table.key_columns)
        if row["backfill_finished"]:
            return Completed(position, count)
        return NotStarted() if position is None else InProgress(position, count)

    def commit(self, rows: Sequence[ProgressRow], epoch: int) -> None:
        """Append the vnodes that changed by barrier `epoch`. Does nothing if that barrier is there already."""
        if epoch <= self.epoch:
            return
        files = self._ledger.files()
        changed = self._to_arrow(rows, epoch)
        if len(files) < _MERGE_FILES:
            added = [self._write(changed)] if rows else []
            self._ledger.commit(added, epoch=epoch)
            return
        merged = _newest(pa.concat_tables([self._ledger.read(), changed]))
        self._ledger.commit([self._write(merged)], files, epoch=epoch)

    def _write(self, rows: pa.Table) -> DataFile:
        return self._ledger.storage.write_parquet(
            PATH, rows, stem="progress", bound_columns=("barrier", "vnode")
        )

    @staticmethod
    def _to_arrow(rows: Sequence[ProgressRow], epoch: int) -> pa.Table:
        return pa.Table.from_pylist(
            [
                {
                    "job": row.job,
                    "vnode": row.vnode,
                    "position": None
                    if row.progress.position is None
                    else position_to_text(row.progress.position),
                    "backfill_finished": isinstance(row.progress, Completed),
                    "row_count": row.progress.row_count,
                    "barrier": epoch,
                }
                for row in rows
            ],
            schema=SCHEMA,
        )


def _newest(rows: pa.Table) -> pa.Table:
    last = rows.group_by(["job", "vnode"]).aggregate([("barrier", "max")])
    last = last.rename_columns({"barrier_max": "barrier"})
    return (
        rows.join(last, ["job", "vnode", "barrier"], join_type="left semi").select(SCHEMA.names).cast(SCHEMA)
    )
