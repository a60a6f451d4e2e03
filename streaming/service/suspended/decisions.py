"""Decisions of the operator on faults of the table, from the command line and from requests to a suspended service."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import RecordId
from streaming.protocol.lanes.redelivery import LogResets
from streaming.source.barriers.injecting.suspended_requests import DropAndTryAgain, TryAgain


@dataclass
class Decisions:
    """The decisions so far of one process. Each holds until it ends, or the journal has it in a plan.

    `skip_records` are left out if they are invalid, `dropped` are names of jobs.
    """

    skip_records: frozenset[RecordId]
    log_resets: LogResets
    dropped: frozenset[str] = frozenset()

    def add(self, action: TryAgain | DropAndTryAgain) -> None:
        """Add the decision of a request."""
        if isinstance(action, DropAndTryAgain):
            self.dropped |= {action.job}
            return
        self.skip_records |= action.skip_records
        if action.accept_log_reset:
            self.log_resets.times += 1
