"""Decisions of the operator on faults of the table, from the command line and from requests to a suspended service."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.job import JobDefinition
from schemas.kinds.table_changes import TableChange
from schemas.records import RecordId
from schemas.settings.config import ServiceConfig
from state.values.plan import JobState
from streaming.core.jobs import StartPause
from streaming.protocol.lanes.redelivery import LogResets
from streaming.source.barriers.injecting.suspended_requests import (
    AlterAndTryAgain,
    DropAndTryAgain,
    TryAgain,
)


@dataclass
class Decisions:
    """The decisions so far of one process. Each holds until it ends, or the journal has it in a plan.

    `skip_records` are left out if they are invalid, `dropped` are names of jobs, `changes` are those of the table.
    `in_state` are jobs that the state has had since the process began.
    """

    skip_records: frozenset[RecordId]
    log_resets: LogResets
    start_pause: StartPause = field(default_factory=StartPause)
    dropped: frozenset[str] = frozenset()
    changes: tuple[TableChange, ...] = ()
    in_state: frozenset[str] = frozenset()

    def add(self, action: TryAgain | DropAndTryAgain | AlterAndTryAgain) -> None:
        """Add the decision of a request."""
        match action:
            case DropAndTryAgain(job):
                self.dropped |= {job}
            case AlterAndTryAgain(changes):
                self.changes += changes
            case TryAgain(records, accepts):
                self.skip_records |= records
                self.log_resets.times += accepts

    def batch_done(self, jobs: Iterable[JobState]) -> None:
        """Leave open jobs to the state, and those that were dropped, too: a later one of that name is another job.

        The table's changes are in the state as well.
        """
        self.in_state |= self.dropped.union(job.name for job in jobs if job.opened)
        self.dropped, self.changes = frozenset(), ()

    def still_configured(self, jobs: Iterable[JobDefinition]) -> tuple[JobDefinition, ...]:
        """The jobs of the configuration that the state is still to get.

        One that it had may have been dropped since: when the process goes on after trouble, it must not come back.
        """
        left = (job for job in jobs if job.name not in self.dropped | self.in_state)
        return self.start_pause.configured(left)

    def applied_to(self, config: ServiceConfig) -> ServiceConfig:
        """The configuration of the next run, with `still_configured` jobs."""
        return config.model_copy(update={"jobs": self.still_configured(config.jobs)})
