"""Reads the table that a state starts from, beside the batches: `ReadsTable` on PostgreSQL.

Two threads of a run: one reads chunks and stages them (`staging`), one asks how far the connector is (`slot_watch`).
Nothing of either is remembered but by plans.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from schemas.table import TableSchema
from state.initial.start import Survey
from state.replica import Replica
from state.small_files import ReadPace, keep_pace, kept_pace
from state.storage import Storage
from state.values.chunks import Streamed
from state.values.reading import TableRead
from streaming.postgres.copying import CopyOrder, TableCopying
from streaming.postgres.pace import Pace
from streaming.postgres.reader import ChunkReader
from streaming.protocol.table_read import Finished, ReadsTable
from streaming.service.initial.slot_watch import SlotWatch
from streaming.service.initial.staging import Staging

_END_WITHIN_S = 3.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ReadingOrder:
    """What is read, and how. `reader` opens a session, and checks the table anew; `ends` are those of the topic.

    `pace` is the configuration's; one that was set by a command takes precedence (`state.small_files`).
    """

    storage: Storage
    table: TableSchema
    survey: Survey
    whole: bool
    chunk_rows: int
    readers: int
    pace: ReadPace
    reader: Callable[[], ChunkReader]
    ends: Callable[[], Sequence[int]]


@dataclass(frozen=True, slots=True)
class TableStatus:
    """How far the reading is. `rows` of `of` were read, which is an estimate; `waiting_rows` of them are not released.

    `left_s` is for the rest of the reading, None while it is not known; `trouble` is what it waits for.
    """

    rows: int
    of: int
    waiting_rows: int
    left_s: float | None
    paused: bool
    rate_limit: int | None
    trouble: str | None


class DatabaseReading(ReadsTable):
    """The reading of one run. `close` ends its threads; what was not taken is lost, and read again by the next run."""

    def __init__(self, order: ReadingOrder) -> None:
        self._order = order
        self._lock = threading.Lock()
        self._pace = kept_pace(order.storage) or order.pace
        self._staging: Staging | None = None
        self._copying: TableCopying[str] | None = None
        self._watch: SlotWatch | None = None
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None
        self._begun = self._closing = False

    # for batches, as `ReadsTable` ----------------------------------------------------------------------------

    def begin(self) -> TableRead:
        """As `ReadsTable.begin`, from the survey that the state is bound to."""
        self._begun = True
        return self._order.survey.begin()

    def go_on(self, read: TableRead) -> None:
        """As `ReadsTable.go_on`; returns at once."""
        self._begun = True
        order, survey = self._order, self._order.survey
        staging = Staging(order.storage, order.table, survey, read)
        tail = None if survey.tail is None else survey.tail.keys
        unread = [each.keys for each in read.unread if each.keys != tail]
        copy_order = CopyOrder(
            unread,
            rows=survey.rows,
            rows_before=min(self._rows_before(read), survey.rows),
            chunk_rows=order.chunk_rows,
            readers=order.readers,
            reader=order.reader,
            store=staging,
            whole=order.whole,
        )
        watch = SlotWatch(order.reader, order.ends, lambda: staging.unreleased)
        with self._lock:  # a pace that is set now is either the copy's own, or set on the copy afterwards
            copying = TableCopying(copy_order, Pace(self._pace.rate_limit, paused=self._pace.paused))
            self._staging, self._copying, self._watch = staging, copying, watch
        self._begin(copying.copy_table, "initial")
        self._begin(watch.run, "initial-slot")

    def _rows_before(self, read: TableRead) -> int:
        """Rows that earlier runs have read, about."""
        rows = sum(chunk.rows for chunk in read.chunks)
        if read.released is None:
            return rows
        replica = Replica(self._order.storage, self._order.table)
        return rows + replica.files(replica.pin()).rows

    def take(self) -> Sequence[Finished]:
        """As `ReadsTable.take`."""
        if self._error is not None:
            raise self._error
        return [] if self._staging is None else self._staging.take()

    def proofs(self) -> Sequence[Streamed]:
        """As `ReadsTable.proofs`."""
        return () if self._watch is None else self._watch.proofs()

    def since_ms(self) -> int | None:
        """As `ReadsTable.since_ms`."""
        return None if self._staging is None else self._staging.since_ms()

    def released(self, read: TableRead) -> None:
        """As `ReadsTable.released`."""
        if self._staging is not None:
            self._staging.released(read)
        if read.is_done:
            log.info(
                "table_is_read", rows=self._rows_before(read) if self._copying is None else self.status().rows
            )
            self.close()

    def over(self) -> None:
        """As `ReadsTable.over`."""
        self.close()

    # for any -------------------------------------------------------------------------------------------------

    def status(self) -> TableStatus:
        """As of now."""
        order, copying, watch = self._order, self._copying, self._watch
        if copying is None or watch is None or self._staging is None:
            return TableStatus(0, order.survey.rows, 0, None, self._pace.paused, self._pace.rate_limit, None)
        copied = copying.status()
        waiting = sum(chunk.rows for chunk in self._staging.unreleased)
        return TableStatus(
            copied.rows,
            max(copied.of, copied.rows),
            waiting,
            None if copied.paused or copied.rate_limit == 0 else copied.left_s,
            copied.paused,
            copied.rate_limit,
            copied.trouble or watch.trouble(),
        )

    @property
    def is_on(self) -> bool:
        """Whether something is left to be read or released, as batches have it; not before they begin."""
        return self._begun and not self._closing

    def throttle(self, rate_limit: int | None) -> None:
        """Rows per second from the next chunk on, kept for later starts. Raises: OSError."""
        self._paced(replace(self._pace, rate_limit=rate_limit))

    def pause(self, paused: bool) -> None:
        """Read nothing from the next chunk on, or go on; kept for later starts. Raises: OSError."""
        self._paced(replace(self._pace, paused=paused))

    def _paced(self, pace: ReadPace) -> None:
        with self._lock:
            keep_pace(self._order.storage, pace)
            self._pace, copying = pace, self._copying
        if copying is not None:
            copying.throttle(pace.rate_limit)
            copying.pause(pace.paused)

    def close(self) -> None:
        """End what is under way. A server that does not answer is not waited for. May be called again."""
        self._closing = True
        if self._copying is not None:
            self._copying.stop()
        if self._watch is not None:
            self._watch.close()
        for thread in self._threads:
            thread.join(_END_WITHIN_S)
        self._threads.clear()

    def _begin(self, run: Callable[[], object], name: str) -> None:
        def work() -> None:
            try:
                run()
            except BaseException as error:  # noqa: BLE001  # `take` raises it
                if not self._closing:
                    log.error("table_not_read", error=type(error).__name__)
                    self._error = self._error or error
            else:
                if name == "initial" and self._staging is not None:
                    self._staging.readers_are_gone()

        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
