"""Faults of the table in a running service, and the ends that it writes."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from schemas.errors import BackfillError, EnvironmentProblem
from state.journal import Journal
from state.storage import Storage
from state.values.last_end import EndKind, FaultReport, LastEnd
from streaming.protocol.batches import Batches
from streaming.runtime.sign_of_life import GONE_S, last_seen_ms
from streaming.service.suspended.decisions import Decisions
from streaming.service.suspended.suspension import Suspension, is_table_fault, unix_ms
from streaming.service.vitals import Vitals
from streaming.service.watches import UpstreamWatch
from streaming.source.barriers.injecting.suspended_requests import EndProcess
from streaming.source.upstream_checks import UpstreamGuard

_LOOK_S = 0.5

log = structlog.get_logger(__name__)


@dataclass
class TableFaults:
    """Suspends the table of one process. `is_on` False: faults end the process, as all other errors do.

    `owns` comes once the process owns the state: from then on ends are written into its journal.
    """

    is_on: bool
    suspension: Suspension
    decisions: Decisions
    vitals: Vitals
    owner: str
    stop: threading.Event
    _state: tuple[Journal, Batches] | None = field(default=None, init=False)

    def owns(self, journal: Journal, batches: Batches) -> None:
        """Set the state that the process has taken over; again after trouble that passed."""
        self._state = journal, batches
        end = journal.last_end
        self.vitals.last_end = end if end is not None and end.counts(batches.finished_epoch) else None

    def note_silence(self, former: str | None, storage: Storage) -> None:
        """Write that the owner before ended without a word, unless it gave one, or lives, or there was none."""
        assert self._state is not None
        if former is None:
            return
        journal, batches = self._state
        seen_ms = last_seen_ms(storage, former)
        epoch, before, now_ms = batches.finished_epoch, journal.last_end, unix_ms()
        said = before is not None and before.owner == former and before.counts(epoch)
        lives = seen_ms is not None and now_ms - seen_ms < GONE_S * 1_000
        if said or lives or former == self.owner or seen_ms is None:
            return
        end = LastEnd(EndKind.SILENT, former, seen_ms, seen_ms, epoch)
        log.warning("ended_without_a_word", owner=former, seen_ms=seen_ms)
        self._write(journal, end)
        self.vitals.last_end = end

    def suspends(self, error: BackfillError) -> bool:
        """True for an error that suspends the table."""
        return self.is_on and self._state is not None and is_table_fault(error)

    def await_decision(self, fault: BackfillError, guard: UpstreamGuard) -> bool:
        """Suspend the table, and wait until a request tells how to go on. False: the process is to end.

        The upstream is watched meanwhile. Raises: Fenced when another instance took the state over;
        EnvironmentProblem if the journal or the control topic can't be reached at first.
        """
        assert self._state is not None
        journal, batches = self._state
        end = self.suspension.begin(journal, fault, batches.finished_epoch)
        self.vitals.suspended(end)
        log.error("table_suspended", code=fault.code, **fault.texts, times=end.times)
        watch = UpstreamWatch(guard, self.vitals)
        watch.next_offsets = batches.next_offsets
        with watch.running():
            while not self.stop.wait(_LOOK_S):
                if journal.is_superseded:
                    raise journal.fenced()
                if isinstance(watch.failure, BackfillError):
                    end = self.suspension.join(journal, end, watch.failure.code)
                    self.vitals.suspended(end)
                if self._is_decided(journal, end):
                    return not self.stop.is_set()
        return False

    def _is_decided(self, journal: Journal, end: LastEnd) -> bool:
        with suppress(EnvironmentProblem):  # the watch tells that the broker is away
            action = self.suspension.next_action()
            if isinstance(action, EndProcess):
                self.suspension.settle(journal, end)
                self.stop.set()
                return True
            if action is not None:
                self.decisions.add(action)
                self.vitals.suspended(None)
                return True
        return False

    def write_end(self, kind: EndKind, error: BackfillError | None = None) -> None:
        """Write how the process ends, if it owned the state. A suspended table stays suspended.

        A journal that can't be written keeps the end before.
        """
        if self._state is None or self.vitals.is_suspended:
            return
        journal, batches = self._state
        fault, now_ms = None if error is None else FaultReport.from_error(error), unix_ms()
        self._write(journal, LastEnd(kind, self.owner, now_ms, now_ms, batches.finished_epoch, fault))

    def _write(self, journal: Journal, end: LastEnd) -> None:
        try:
            journal.write_end(end.after(journal.last_end))
        except (BackfillError, OSError) as problem:
            log.warning("end_not_written", kind=str(end.kind), reason=type(problem).__name__)
