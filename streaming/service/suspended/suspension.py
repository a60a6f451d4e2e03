"""A suspended table: its end in the journal, and the requests to its service, which lead on.

A fault of the table (a record, its schema, lost data, an output) does not pass by itself, and is not the process's. So
the process stays up without batches: it shows what is wrong, and takes requests. A request has its
effect when the service goes on from its state, as after a crash: the plan of the open batch is written anew, without
the records or the job that were named. A crash before that plan is written finds the request again, for the journal
says from which offset on requests were not acted on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from schemas.errors import BackfillError, Code, InputError, TopicError
from state.journal import Journal
from state.storage import now_ms
from state.values.last_end import EndKind, FaultReport, LastEnd
from streaming.source.barriers.injecting.suspended_requests import SuspendedAction


def is_table_fault(error: BackfillError) -> bool:
    """True for a fault of the table: of a record, of its topic or of an output."""
    return isinstance(error, InputError | TopicError)


class SuspendedRequests(Protocol):
    """The control topic, as a suspended service reads it."""

    def end(self) -> int:
        """The offset behind all records that are there. Raises: EnvironmentProblem, TopicError."""

    def since(self, offset: int) -> Iterable[tuple[int, SuspendedAction]]:
        """The requests to a suspended service from an offset on, oldest first, each with the offset behind it.

        Raises: EnvironmentProblem, TopicError.
        """

    def close(self) -> None:
        """Leave the topic; it is opened again when it is read."""


class Suspension:
    """The suspensions of one process, one after another."""

    def __init__(self, requests: SuspendedRequests, owner: str, clock: Callable[[], int] = now_ms) -> None:
        self._requests, self._owner, self._clock = requests, owner, clock
        self.next_offset = 0
        """The first request that was not taken."""

    def begin(self, journal: Journal, fault: BackfillError, epoch: int) -> LastEnd:
        """Write that the table is suspended; `epoch` is that of the last finished batch.

        Raises: Fenced; as `SuspendedRequests.end`.
        """
        at_ms, before = self._clock(), journal.last_end
        end = LastEnd(EndKind.SUSPENDED, self._owner, at_ms, at_ms, epoch, FaultReport.from_error(fault))
        # A request that came before a crash is still to be acted on.
        goes_on = before is not None and before.is_suspended and end.repeats(before)
        first = before.requests_from if before is not None and goes_on else self._requests.end()
        self.next_offset = max(self.next_offset, first)
        end = replace(end.after(before), requests_from=self.next_offset)
        journal.write_end(end)
        return end

    def join(self, journal: Journal, end: LastEnd, code: Code) -> LastEnd:
        """Add a fault that came up meanwhile; the first one stays the cause. Raises: Fenced."""
        if end.fault is None or code in (end.fault.code, *end.joined):
            return end
        joined = replace(end, joined=(*end.joined, code))
        journal.write_end(joined)
        return joined

    def next_action(self) -> SuspendedAction | None:
        """The oldest action that was not taken, None if there is none. Raises: as `SuspendedRequests.since`."""
        for behind, action in self._requests.since(self.next_offset):
            self.next_offset = behind
            return action
        return None

    def settle(self, journal: Journal, end: LastEnd) -> None:
        """Write that all actions so far were carried out: none is found again by the next start. Raises: Fenced."""
        journal.write_end(replace(end, requests_from=self.next_offset))

    def close(self) -> None:
        """Leave the control topic until the next suspension."""
        self._requests.close()
