"""The reading of a table from its database, for batches: the interface of its reader, and the state of the reading.

A chunk that was read is in the next plan, and so in the state: a plan holds the whole reading, as of the barrier that
it starts from. Besides it only the rows of chunks are kept, and the events that wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.table import TableSchema
from state.initial.chunks import WaitingEvents
from state.storage import DataFile, Storage
from state.values.chunks import Chunk, KeyRange, Streamed
from state.values.plan import BatchPlan
from state.values.reading import Reading, TableRead

RELEASED_ROWS = 500_000
"""Approximate limit of the rows of chunks that a batch releases; its barrier waits for them."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A chunk that was read. `files` have its rows (`state.initial.chunks.stage`), and are on the disk."""

    chunk: Chunk
    files: tuple[str, ...]


class ReadsTable(Protocol):
    """Reads the table in threads of its own. Its methods are called by the thread that runs batches.

    A door between rooms: the reader is `streaming.service.initial.reading.DatabaseReading`. A chunk that was taken but
    is in no plan of the journal is lost in a crash, and read again.
    """

    def begin(self) -> TableRead:
        """The reading of a state without a plan, before its first chunk. The first plan holds it: called once a state.

        Raises: BackfillError if the table can't be read.
        """

    def go_on(self, read: TableRead) -> None:
        """Read the unread rest of a reading, of a plan or of `begin`. Called once, before `take`."""

    def take(self) -> Sequence[Finished]:
        """The chunks finished since the last call, each once, in the order in which they were finished.

        Raises: the error that has ended the reading, again at each call.
        """

    def proofs(self) -> Sequence[Streamed]:
        """Proofs of the connector's progress: the newest ones, and at least those that may still matter."""

    def since_ms(self) -> int | None:
        """Begin of the oldest chunk that was not taken yet (Unix time), or None. Called by any thread."""

    def released(self, read: TableRead) -> None:
        """Report a finished batch: the reading is at `read`, and over if `read.is_done`. May come before `go_on`."""

    def over(self) -> None:
        """Report that the reading was over before this run."""


class TableReading:
    """The state of one service's reading. `reads` is None for a table that does not start from a database."""

    def __init__(self, storage: Storage, table: TableSchema, reads: ReadsTable | None) -> None:
        self._storage, self._table, self._reads = storage, table, reads
        self._read: TableRead | None = None
        self._files: dict[KeyRange, tuple[str, ...]] = {}
        self._events: WaitingEvents | None = None
        self._over, self._reading = reads is None, False

    @property
    def is_on(self) -> bool:
        """True while there are keys that are not released."""
        return not self._over

    @property
    def released(self) -> KeyRange | None:
        """The keys that are released, None for none. Only while it `is_on`."""
        return None if self._read is None else self._read.released

    @property
    def _waiting(self) -> WaitingEvents:
        if self._events is None:
            self._events = WaitingEvents(self._storage, self._table)
        return self._events

    def planned(self, ends: Sequence[int], *, releases: bool) -> Reading | None:
        """The reading for the next plan, up to a barrier with these exclusive ends; None once it is over.

        Raises: as `ReadsTable.begin` and `take`.
        """
        if self._over or self._reads is None:
            return None
        read = self._begun(self._reads)
        for finished in self._reads.take():
            read = read.read(finished.chunk)
            self._files[finished.chunk.keys] = finished.files
        self._read = read
        due = read.due(ends, self._reads.proofs(), RELEASED_ROWS) if releases else 0
        files = tuple(self._files[chunk.keys] for chunk in read.chunks)
        return Reading(read, files, self._waiting.version, due)

    def _begun(self, reads: ReadsTable) -> TableRead:
        if self._read is None:
            self._read = reads.begin()
        if not self._reading:
            self._reading = True
            reads.go_on(self._read)
        return self._read

    def begin_from(self, plan: BatchPlan) -> None:
        """Go to the begin of a plan of the journal, without executing it."""
        if self._reads is not None:
            self._stand(plan.reading, 0)

    def settle(self, plan: BatchPlan) -> None:
        """Go to the end of a plan that is done, or of a part."""
        if self._reads is None:
            return
        read = self._stand(plan.reading, 0 if plan.reading is None else plan.reading.due)
        if read is not None and (self._reading or read.is_done):
            self._reads.released(read)

    def _stand(self, reading: Reading | None, released: int) -> TableRead | None:
        """Go behind the first `released` chunks of a reading."""
        if reading is None:
            if self._reads is not None and not self._over:
                self._reads.over()
            self._over = True
            return None
        self._read = read = reading.read.release(released)
        pairs = zip(reading.read.chunks, reading.files, strict=True)
        self._files = {chunk.keys: files for chunk, files in list(pairs)[released:]}
        self._over = read.is_done
        return read

    def files(self, plan: BatchPlan) -> tuple[DataFile, ...]:
        """The files of waiting events, of the version that a plan names; () if the plan releases no chunk."""
        reading = plan.reading
        return () if reading is None or not reading.due else tuple(self._waiting.files(reading.waiting))

    def keep(
        self,
        plan: BatchPlan,
        files: Sequence[DataFile],
        commit: Callable[[Callable[[], None], Callable[[], None]], None],
    ) -> None:
        """Commit the events that wait behind a plan, by `commit(effect, reload)`; `reload` follows a conflict."""
        reading, waiting = plan.reading, self._waiting
        if reading is None:
            return

        def effect() -> None:
            if plan.until is None:
                waiting.commit(files, plan.epoch, version=reading.waiting, anew=reading.due > 0)
            else:
                waiting.commit_part(files, plan.end_records)

        commit(effect, waiting.reload)
