"""Reads a table from the simulated database: chunks and proofs at any moment, beside the batches.

Each range has a strand of its own, and so has the one that asks slot and topic. A read may take as long as it likes, or
be lost with its connection; then the chunk is read once more, as of a later moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from schemas.position import Key, order_key
from schemas.records import Row
from schemas.table import TableSchema
from state.initial.chunks import stage
from state.storage import Storage
from state.values.chunks import Chunk, KeyRange, Streamed
from state.values.reading import TableRead, Unread
from streaming.protocol.table_read import Finished, ReadsTable
from tests.simulation.arrivals import Arrivals
from tests.simulation.database import Moment
from tests.simulation.initial import rows_as
from tests.simulation.scheduler import Process, Scheduler

ROWS_PER_FILE = 2


class Selected(NamedTuple):
    """The rows that a session has read."""

    keys: KeyRange
    moment: Moment
    rows: tuple[Row, ...]


class TableReader(ReadsTable):
    """Of one run of the service. What it has read is gone with it. The methods are for those who break one."""

    def __init__(
        self,
        process: Process,
        scheduler: Scheduler,
        storage: Storage,
        table: TableSchema,
        arrivals: Arrivals,
    ) -> None:
        assert arrivals.changelog.timeline is not None
        self.storage, self.table, self.timeline = storage, table, arrivals.changelog.timeline
        self.arrivals = arrivals
        self._process, self._scheduler = process, scheduler
        self._finished: list[Finished] = []
        self._proofs: list[Streamed] = []
        self.closed = False

    @property
    def now(self) -> Moment:
        """The state of the database by now."""
        return self.timeline.moments[self.arrivals.moment]

    # the door ----------------------------------------------------------------------------------------------

    def begin(self) -> TableRead:
        self.wait("look at the database")
        return TableRead.begin(self.now.snapshot, self.timeline.bounds)

    def go_on(self, read: TableRead) -> None:
        for number, rest in enumerate(read.unread):
            self._spawn(f"read {number}", partial(self._read, rest))
        if not read.is_done:
            self._spawn("prove", self._prove)

    def take(self) -> Sequence[Finished]:
        taken, self._finished = self._finished, []
        return taken

    def proofs(self) -> Sequence[Streamed]:
        return self._proofs

    def since_ms(self) -> int | None:
        return None

    def released(self, read: TableRead) -> None:
        self.closed = self.closed or read.is_done

    def over(self) -> None:
        self.closed = True

    # chunks ------------------------------------------------------------------------------------------------

    def _read(self, rest: Unread) -> None:
        keys: KeyRange | None = rest.keys
        while keys is not None:
            self.wait("select a chunk", self.may_read(keys))
            if self._is_over():
                return
            selected = self.select(keys)
            self.wait("ask how far the log is written")
            written_lsn = self.written_lsn(selected)
            match self._scheduler.outcome("a chunk", "read", "lost", "slow"):
                case "lost":
                    continue
                case "slow":
                    self.wait("read on", self.later())
            self.wait("stage a chunk")
            if self._is_over():
                return
            chunk = Chunk(selected.keys, selected.moment.snapshot, written_lsn, len(selected.rows))
            files = self.stage(selected)  # before the list is looked up: it may take a while
            self._finished.append(Finished(chunk, files))
            upto = selected.keys.upto
            keys = None if upto == keys.upto else KeyRange(upto, keys.upto)

    def may_read(self, keys: KeyRange) -> Callable[[], bool]:
        """A condition that the time has come for the first of some keys."""
        arrivals, pace = self.arrivals, self.timeline.pace
        first = 0 if keys.after is None else int(keys.after[0])
        return lambda: self.closed or pace is None or first <= arrivals.counts[0] * pace

    def later(self) -> Callable[[], bool]:
        """A condition that another barrier has come, if one comes at all."""
        arrivals, before = self.arrivals, self.arrivals.counts[0]
        return lambda: self.closed or arrivals.counts[0] > before or not arrivals.waiting()

    def select(self, keys: KeyRange) -> Selected:
        """The first rows of some keys, in key order; all of them where there are no more."""
        moment = self.now
        wanted = sorted((key for key in moment.rows if keys.holds(key)), key=order_key)
        most = int(self._scheduler.outcome("rows of a chunk", "2", "1", "3"))
        taken = wanted[:most]
        upto: Key | None = keys.upto if len(taken) == len(wanted) else taken[-1]
        return Selected(KeyRange(keys.after, upto), moment, tuple(moment.rows[key] for key in taken))

    def written_lsn(self, selected: Selected) -> int:
        """The end of the written log by now."""
        return self.now.written_lsn

    def stage(self, selected: Selected) -> tuple[str, ...]:
        """The files of its rows."""
        rows = selected.rows
        pieces = [rows[first : first + ROWS_PER_FILE] for first in range(0, len(rows), ROWS_PER_FILE)]
        return tuple(stage(self.storage, self.table, rows_as(piece, self.table)) for piece in pieces)

    # proofs ------------------------------------------------------------------------------------------------

    def _prove(self) -> None:
        while True:
            self.wait("ask the slot", lambda: self.closed or self._is_further())
            if self._is_over():
                return
            self._proofs.append(self.prove())

    def prove(self) -> Streamed:
        """The slot is asked, and the topic some time later."""
        lsn = self.now.confirmed_lsn
        self.wait("ask for the topic's ends")
        return Streamed(lsn, self.now.ends)

    def _is_over(self) -> bool:
        """Another strand may have ended it."""
        return self.closed

    def _is_further(self) -> bool:
        """True if the slot has moved since it was asked."""
        return not self._proofs or self._proofs[-1].lsn != self.now.confirmed_lsn

    # others ------------------------------------------------------------------------------------------------

    def wait(self, what: str, until: Callable[[], bool] | None = None) -> None:
        """Let others run, until something is so."""
        self._scheduler.step(what, until)

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        self._scheduler.spawn(self._process, name, work)
