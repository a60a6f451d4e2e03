"""Faults of the table in a running service, and the ends that it writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field

import structlog

from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem, Fenced, StateError
from schemas.kinds.table_changes import TableChange, in_words
from schemas.settings.config import ServiceConfig
from state.journal import Journal
from state.storage import Storage, now_ms
from state.values.bound_table import BoundTable
from state.values.last_end import EndKind, FaultReport, LastEnd
from streaming.control.known_table import version_of
from streaming.kafka.clients import KafkaSettings
from streaming.protocol.batches import Batches
from streaming.registry.outputs import refusal_of_wider
from streaming.runtime.sign_of_life import is_recent, last_seen_ms
from streaming.runtime.signals import Stopped
from streaming.service.columns.new_columns import NewColumns
from streaming.service.events import EventKind, ServiceEvent
from streaming.service.suspended.decisions import Decisions
from streaming.service.suspended.suspension import Suspension, is_table_fault
from streaming.service.vitals import Vitals
from streaming.service.watches import UpstreamWatch
from streaming.source.barriers.injecting.suspended_requests import AlterAndTryAgain, EndProcess
from streaming.source.upstream_checks import UpstreamGuard

_LOOK_S = 0.5

log = structlog.get_logger(__name__)


class AlteredError(BackfillError, exit_status=6):
    """The end of a run whose table is another one from now on, as its last plan asks."""


@dataclass
class TableFaults:
    """Suspends the table of one process. `is_on` False: faults end the process, as all other errors do.

    `owns` comes once the process owns the state: from then on ends are written into its journal. `config` gives
    the configuration by now.
    """

    is_on: bool
    suspension: Suspension
    decisions: Decisions
    vitals: Vitals
    owner: str
    stop: threading.Event
    config: Callable[[], ServiceConfig]
    _state: tuple[Journal, Batches] | None = field(default=None, init=False)

    def owns(self, journal: Journal, batches: Batches) -> None:
        """Set the state that the process has taken over; again after trouble that passed."""
        self._state = journal, batches
        self.vitals.last_end = journal.end_since(batches.finished_epoch)

    def note_silence(self, former: str | None, storage: Storage) -> None:
        """Note how the owner before ended; where it gave no word and doesn't live, write that."""
        assert self._state is not None
        journal, batches = self._state
        epoch = batches.finished_epoch
        before, events = journal.end_since(epoch), self.vitals.events
        if former in (None, self.owner):
            return
        if before is not None and before.owner == former:
            events.note_end(before)
            return
        seen_ms = last_seen_ms(storage, former)
        if is_recent(seen_ms):
            events.note(
                ServiceEvent(
                    now_ms() / 1_000, EventKind.TAKEN_OVER, f"from {former}, without a word of its end"
                )
            )
            return
        if seen_ms is None:  # it ended by itself
            return
        end = LastEnd(EndKind.SILENT, former, seen_ms, seen_ms, epoch)
        log.warning("ended_without_a_word", owner=former, seen_ms=seen_ms)
        self._write(journal, end)
        self.vitals.last_end = end
        events.note_end(end)

    def is_altered_by(self, fault: BackfillError, kafka: KafkaSettings) -> bool:
        """True for a new field that the table takes as a column by itself: the same batch is tried with it.

        Raises: EnvironmentProblem when the broker or the registry does not answer.
        """
        if self._state is None:
            return False
        if isinstance(fault, AlteredError):
            return True
        changes = NewColumns(self.config(), kafka).changes(fault, self._state[0].current)
        if not changes or self._version_with(changes) is None:
            return False
        self.decisions.changes += changes
        text = f"{in_words(changes)}, by the schema of the record at {fault.where}"
        self.vitals.events.note(ServiceEvent(now_ms() / 1_000, EventKind.REQUEST, text))
        return True

    def raise_altered(self, changes: Sequence[TableChange]) -> None:
        """End the run behind a batch whose barriers asked for changes of the table: the next one has them.

        Raises: AlteredError, unless the table has them, or can't have them.
        """
        if not changes or self._state is None or (entry := self._state[0].current) is None:
            return
        version = self._version_with(changes)
        if version is not None and version.to_dict() != BoundTable.from_binding(entry.table).to_dict():
            raise AlteredError(Code.SCHEMA_CHANGED, found=in_words(changes))

    def _version_with(self, changes: Sequence[TableChange]) -> BoundTable | None:
        """The table's version with changes; None, with a line in the log, where it or an output can't have them.

        Raises: EnvironmentProblem when a registry of outputs does not answer.
        """
        assert self._state is not None
        config, entry = self.config(), self._state[0].current
        try:
            refuse = refusal_of_wider(config.registry, entry)
            return version_of(config, entry, changes, state=config.state, refuse=refuse)
        except (ConfigError, StateError) as error:
            log.warning("request_refused", code=error.code, where=error.where, found=error.found)
            return None

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
        with closing(self.suspension), watch.running():
            while not self.stop.wait(_LOOK_S):
                if journal.is_superseded:
                    raise journal.fenced()
                end = self._joined(journal, end, watch.failure)
                if self._is_decided(journal, end):
                    return not self.stop.is_set()
        return False

    def _joined(self, journal: Journal, end: LastEnd, failure: Exception | None) -> LastEnd:
        """The end with what the watch has found, which is shown once."""
        if not isinstance(failure, BackfillError):
            return end
        joined = self.suspension.join(journal, end, failure.code)
        if joined is not end:
            self.vitals.suspended(joined)
        return joined

    def _is_decided(self, journal: Journal, end: LastEnd) -> bool:
        with suppress(EnvironmentProblem):  # the watch tells that the broker is away
            action = self.suspension.next_action()
            if isinstance(action, EndProcess):
                self.suspension.settle(journal, end)
                self.stop.set()
                return True
            if isinstance(action, AlterAndTryAgain) and not self._can_alter(action):
                self.suspension.settle(journal, end)
                return False
            if action is not None:
                self.decisions.add(action)
                self.vitals.suspended(None)
                return True
        return False

    def _can_alter(self, action: AlterAndTryAgain) -> bool:
        try:
            return self._version_with((*self.decisions.changes, *action.changes)) is not None
        except EnvironmentProblem as error:
            log.warning("request_refused", code=error.code, found=error.found)
            return False

    @contextmanager
    def end_written(self) -> Iterator[None]:
        """A process's work, the end of which is written if it owned the state. A suspended table stays suspended.

        A journal that can't be written keeps the end before.
        """
        try:
            yield
        except Fenced:
            raise
        except BackfillError as error:
            self._write_end(EndKind.FAILED, error)
            raise
        except Stopped:  # a signal unwinds a service that comes up, and may own the state already
            self._write_end(EndKind.STOPPED)
            raise
        self._write_end(EndKind.STOPPED)

    def _write_end(self, kind: EndKind, error: BackfillError | None = None) -> None:
        if self._state is None or self.vitals.is_suspended:
            return
        journal, batches = self._state
        fault, at_ms = None if error is None else FaultReport.from_error(error), now_ms()
        self._write(journal, LastEnd(kind, self.owner, at_ms, at_ms, batches.finished_epoch, fault))

    def _write(self, journal: Journal, end: LastEnd) -> None:
        try:
            journal.write_end(end.after(journal.last_end))
        except (BackfillError, OSError) as problem:
            log.warning("end_not_written", kind=str(end.kind), reason=type(problem).__name__)
