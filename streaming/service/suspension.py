"""A suspended table: its fault, its end in the journal, and the requests to its service, which lead on.

A fault of the table (a record, its schema, lost data, an output) does not pass by itself, and is not the process's. So
the process stays up without batches: it shows what is wrong, and takes requests. A request has its
effect when the service goes on from its state, as after a crash: the plan of the open batch is written anew, without
the records or the job that were named. A crash before that plan is written finds the request again, for the journal
says from which offset on requests were not acted on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace

import structlog

from schemas.errors import (
    BackfillError,
    Code,
    ConfigError,
    EnvironmentProblem,
    Fenced,
    InputError,
    StateError,
    TopicError,
)
from schemas.job import JobDefinition
from schemas.kinds.table_changes import TableChange, in_words
from schemas.records import RecordId
from schemas.settings.config import ServiceConfig
from state.journal import Journal
from state.small_files import is_recent, last_seen_ms
from state.storage import Storage, now_ms
from state.values.bound_table import BoundTable
from state.values.last_end import EndKind, FaultReport, LastEnd
from state.values.plan import JobState
from streaming.control.known_table import version_of
from streaming.core.jobs import StartPause
from streaming.kafka.clients import KafkaSettings
from streaming.protocol.batches import Batches
from streaming.protocol.lanes.redelivery import LogResets
from streaming.registry.outputs import refusal_of_wider
from streaming.runtime.signals import Stopped
from streaming.service.columns import NewColumns
from streaming.service.events import EventKind, ServiceEvent
from streaming.service.trouble import UpstreamWatch
from streaming.service.vitals import Vitals
from streaming.source.barriers.injecting.control_requests import (
    AlterAndTryAgain,
    DropAndTryAgain,
    EndProcess,
    SuspendedAction,
    TryAgain,
)
from streaming.source.barriers.injecting.control_topic import KafkaRequests
from streaming.source.upstream_checks import UpstreamGuard

_LOOK_S = 0.5

log = structlog.get_logger(__name__)


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


class Suspension:
    """The suspensions of one process, one after another."""

    def __init__(self, requests: KafkaRequests, owner: str, clock: Callable[[], int] = now_ms) -> None:
        self._requests, self._owner, self._clock = requests, owner, clock
        self.next_offset = 0
        """The first request that was not taken."""

    def begin(self, journal: Journal, fault: BackfillError, epoch: int) -> LastEnd:
        """Write that the table is suspended; `epoch` is that of the last finished batch.

        Raises: Fenced; as `KafkaRequests.end`.
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
        """The oldest action that was not taken, None if there is none. Raises: as `KafkaRequests.since`."""
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
        # One that a registry refuses leaves the others.
        version = self._version_with(changes) or self._version_with(())
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
        """True for an error that suspends the table: of a record, of its topic or of an output."""
        return self.is_on and self._state is not None and isinstance(error, InputError | TopicError)

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
