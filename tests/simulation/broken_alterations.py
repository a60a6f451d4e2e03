"""Tables that grow, and get one thing wrong: what rows of before have, and what outlives a crash."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa

from state.columns import OFFSET, PARTITION
from state.journal import Journal
from state.replica import Replica
from state.values.bound_table import BoundTable
from state.values.plan import JobState
from streaming.lane.task import LaneTask
from streaming.protocol.batches import Batches
from streaming.source.decoded import AFTER, BEFORE
from tests.simulation.altering import AddsItself, Altering, GrowingChangelog, Ignoring


class FillsByTheSwitch(Altering):
    """A process that finds the column in its table takes what a record lacks for null."""

    def take_over(self, journal: Journal) -> Batches:
        known = journal.current
        self.grew = known is None or "c" not in BoundTable.from_binding(known.table).table.by_name
        return super().take_over(journal)

    def lane_rows(self, task: LaneTask, lane: int) -> pa.RecordBatch:
        rows, changelog = super().lane_rows(task, lane), self.arrivals.changelog
        assert isinstance(changelog, GrowingChangelog)
        if "c" not in task.table.by_name or self.grew:
            return rows
        found = rows.to_pylist()
        for row in found:
            if (row[PARTITION], row[OFFSET]) not in changelog.with_c:
                row.update({half: row[half] and {**row[half], "c": None} for half in (BEFORE, AFTER)})
        return pa.RecordBatch.from_pylist(found, schema=rows.schema)


class ReadsWhatWasIgnored(Ignoring):
    """Lanes read each record by the names of the table, also those that are read again."""

    def lane_rows(self, task: LaneTask, lane: int) -> pa.RecordBatch:
        table = replace(task.table, columns=tuple(replace(each, read_as=()) for each in task.table.columns))
        return super().lane_rows(replace(task, table=table), lane)


class KeepsTheVersionInMemory(Altering):
    """The journal has the table of the file."""

    def bound(self) -> str:
        return json.dumps(BoundTable.first(self.file_table, ()).to_dict())


class _LeavesDeltaAsItWas(Replica):
    def adopt_schema(self) -> None:
        """Nothing: files of the log have the column, and the table's schema has not."""


class _Unaltered(Batches):
    replica_type = _LeavesDeltaAsItWas


class TellsInOneBatch(AddsItself):
    """Barriers tell a new column in the batch that was open alone, which some lanes may have sent before."""

    def with_new_columns(self, job: JobState) -> JobState:
        grown = super().with_new_columns(job)
        return replace(grown, tells=min(grown.tells, 1))


class GrowsAtTheNextStart(AddsItself):
    """The batch that was open, and those behind it, go on with the columns that jobs had."""

    def take_over(self, journal: Journal) -> Batches:
        known = journal.current
        self.had = known is not None and "c" in BoundTable.from_binding(known.table).table.by_name
        return super().take_over(journal)

    def with_new_columns(self, job: JobState) -> JobState:
        return super().with_new_columns(job) if self.had else job


class AltersDeltaOnce(Altering):
    """Only the process that was asked changes Delta's tables."""

    def take_over(self, journal: Journal) -> Batches:
        self.batches_type = Batches if self.decisions.changes else _Unaltered
        return super().take_over(journal)
