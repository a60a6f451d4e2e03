"""Jobs, progress and rows from the state folder, for any process that can read it.

Only the tables that the service commits are read, whether it runs or not, and nothing is locked or written. A view
shows the end of the last batch that is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas.errors import Code, StateError
from schemas.table import TableSchema
from state.initial.start import CopyProgress, DatabaseStart, Start, TopicStart, progress_of
from state.journal import PATH as JOURNAL_PATH
from state.journal import Journal
from state.progress_table import PATH as PROGRESS_PATH
from state.progress_table import ProgressTable
from state.replica import BASE_PATH, LOG_PATH, Replica
from state.storage import Storage
from state.values.last_end import LastEnd
from state.values.plan import BatchPlan, JobState
from state.values.progress import Progress, is_complete, parts_done
from state.values.reading import TableRead
from streaming.core.forecast import Extent, Phase, extent, phase, records_stored
from streaming.core.jobs import JobsOutcome, MutationReport, jobs_after


@dataclass(frozen=True)
class JobView:
    """A job, the progress of its parts that were started, and its extent. `stored` estimates the rows of each part."""

    state: JobState
    progress: Mapping[int, Progress]
    extent: Extent
    stored: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_read(self) -> bool:
        """True if every part is read to its end."""
        return is_complete(self.progress, self.state.definition.part_count)

    @classmethod
    def of(
        cls,
        state: JobState,
        progress: Mapping[int, Progress],
        by_vnode: Mapping[int, int],
        upstream_ends: Sequence[int],
    ) -> JobView:
        """`by_vnode` estimates the replica's rows; up to `upstream_ends` the upstream is in it."""
        stored = by_vnode
        if state.definition.scan.reads_upstream:
            stored = records_stored(progress, upstream_ends)
        return cls(state, progress, extent(progress, state.definition.part_count, stored), stored)

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def phase(self) -> Phase:
        return phase(self.state, self.extent)

    @property
    def vnodes_done(self) -> int:
        """Number of vnodes that are Completed."""
        return parts_done(self.progress)


@dataclass(frozen=True)
class StateView:
    """The state at one time. `epoch` is the barrier of the last batch that is done, 0 before the first.

    `start` is the Delta table that the state starts from, if any, and `copy` the progress of its copy, None once it is
    done. `database` is the start from a database, and `read` the progress of its reading. `rows_stored` are the rows of
    the base, or before the first compaction the changes of the log: later changes are not counted. `end` is how the
    last process ended, None once a batch was finished behind it.
    """

    owner: str
    lanes: int
    epoch: int
    jobs: tuple[JobView, ...]
    rows_stored: int
    plan: BatchPlan | None
    start: Start | None = None
    earliest: TopicStart | None = None
    database: DatabaseStart | None = None
    copy: CopyProgress | None = None
    end: LastEnd | None = None
    lanes_set: int | None = None
    """Number that the last `backfill lanes` has set; None where the configuration's holds."""
    done_ms: int | None = None
    """The end of the last batch that is done, in Unix milliseconds by the storage's clock."""

    @property
    def is_suspended(self) -> bool:
        """True if a fault of the table keeps batches from ending, whether its process is up or not."""
        return self.end is not None and self.end.is_suspended

    @property
    def next_offsets(self) -> tuple[int, ...]:
        """The first record of each upstream partition that a restart would need; none before the first plan."""
        if self.plan is None:
            return ()
        return self.plan.end_offsets if self.epoch >= self.plan.epoch else self.plan.first_offsets

    @property
    def read(self) -> TableRead | None:
        """Progress of the reading from a database; None once it is done, and before the first plan."""
        reading = None if self.plan is None else self.plan.reading
        if self.plan is None or reading is None:
            return None
        read = reading.read.release(reading.due) if self.epoch >= self.plan.epoch else reading.read
        return None if read.is_done else read


class StateReader:
    """Reads one state folder again and again.

    Raises: StateError(STATE_PATH_INVALID) when no service has ever used the folder.
    """

    def __init__(self, storage: Storage, table: TableSchema) -> None:
        self._storage, self._table = storage, table
        parts = (JOURNAL_PATH, PROGRESS_PATH, BASE_PATH, LOG_PATH)
        # Opening a table that is not there would create it.
        if not all(storage.exists(part, "_delta_log") for part in parts):
            raise StateError(
                Code.STATE_PATH_INVALID,
                where=storage.root,
                found="no state of a service",
                expected="the folder that `state` names in the service's configuration",
                next_step="start the service with `backfill run`, or correct `state`",
            )

    def read(self) -> StateView:
        journal = Journal(self._storage, self._table)
        entry = journal.current
        done = ProgressTable(self._storage, self._table)  # after the journal: at least as new
        replica = Replica(self._storage, self._table)
        files = replica.files(replica.pin())
        plan = None if entry is None else entry.plan
        table = self._table.with_partitions(0 if plan is None else len(plan.first_offsets))
        stored = files.rows_by_vnode(table.vnode_count or 1)
        is_done = plan is not None and plan.is_done(done.epoch, replica.log_epoch)
        epoch = 0 if plan is None else plan.finished_epoch(is_done=is_done)
        start = None if entry is None else Start.from_binding(entry.table)
        outcome = self._outcome(plan, is_done=is_done)
        states = outcome.jobs
        every = done.load(states)
        # The end of the upstream's records that are in the replica.
        ends = () if plan is None else plan.end_offsets if is_done else plan.first_offsets
        jobs = [JobView.of(state, every[state.name], stored, ends) for state in states]
        return StateView(
            owner="" if entry is None else entry.owner,
            lanes=outcome.lanes or (plan.lanes if plan else 0),
            lanes_set=outcome.lanes,
            epoch=epoch,
            jobs=tuple(jobs),
            rows_stored=files.base_rows or files.log_rows,
            plan=plan,
            start=start,
            earliest=None if entry is None else TopicStart.from_binding(entry.table),
            database=None if entry is None else DatabaseStart.from_binding(entry.table, self._table),
            copy=None if start is None else progress_of(replica, start.rows),
            end=journal.end_since(epoch),
            done_ms=(done if done.epoch >= epoch else replica.log).committed_ms,
        )

    def last_end(self) -> LastEnd | None:
        """The last end alone, None once a batch was finished behind it."""
        journal = Journal(self._storage, self._table)
        plan = None if journal.current is None else journal.current.plan
        return journal.end_since(0 if plan is None else plan.finished_epoch(is_done=self._is_done(plan)))

    def suspended_end(self) -> LastEnd | None:
        """The last end of a table that waits for a decision; None of any other."""
        end = self.last_end()
        return end if end is not None and end.is_suspended else None

    def owner(self) -> str:
        """The owner of the state, empty before the first one: opens one table."""
        entry = Journal(self._storage, self._table).current
        return "" if entry is None else entry.owner

    def jobs(self) -> tuple[JobState, ...]:
        """The jobs without their progress."""
        entry = Journal(self._storage, self._table).current
        plan = None if entry is None else entry.plan
        return self._outcome(plan, is_done=plan is not None and self._is_done(plan)).jobs

    def _is_done(self, plan: BatchPlan) -> bool:
        """True if the tables hold all of the plan. Read them after the journal: they are at least as new then."""
        if not plan.raises_positions and plan.is_done(0, Replica(self._storage, self._table).log_epoch):
            return True  # commands ask again and again: the second table is opened where the first does not decide
        return plan.is_done(ProgressTable(self._storage, self._table).epoch, 0)

    def _outcome(self, plan: BatchPlan | None, *, is_done: bool) -> JobsOutcome:
        """The jobs and lanes behind the last batch that is done."""
        if plan is None:
            return JobsOutcome(())
        if is_done:
            return jobs_after(plan, self._table)
        return JobsOutcome(tuple(job.state for job in plan.jobs), lanes=plan.lanes_set)

    def report_on(self, epoch: int) -> MutationReport | None:
        """The report on the mutation of this barrier; None while its batch is not done."""
        plan = Journal(self._storage, self._table).plan_with(epoch)
        if plan is None or not self._is_done(plan):
            return None
        reports = jobs_after(plan, self._table).reports
        return next((report for report in reports if report.epoch == epoch), None)
