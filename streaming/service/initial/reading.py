"""The reading of the table that a state starts from, from PostgreSQL, while batches run.

Two threads of a run: one reads chunks and stages them (`staging`), one reads the connector's progress: the slot first,
then the topic, once a second while chunks wait for it. Only plans keep their results.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from schemas.errors import Code, EnvironmentProblem
from schemas.table import TableSchema
from state.initial.start import Survey
from state.replica import Replica
from state.small_files import ReadPace, keep_pace, kept_pace
from state.storage import Storage
from state.values.chunks import Chunk, Streamed
from state.values.reading import TableRead
from streaming.core.chunk_events import Proofs
from streaming.postgres.copying import CopyOrder, Pace, TableCopying, TableStatus
from streaming.postgres.reader import ChunkReader
from streaming.postgres.session import Gone
from streaming.protocol.table_read import Finished, ReadsTable
from streaming.service.initial.staging import Staging

ASK_EVERY_S = 1.0
LONGEST_PAUSE_S = 30.0
SLOT_IS_LATE_S = 120.0
"""Above a minute, for Kafka Connect commits offsets once a minute unless `offset.flush.interval.ms` is set."""
_END_WITHIN_S = 3.0


log = structlog.get_logger(__name__)


class SlotWatch:
    """Collects the proofs of one run. `waiting` gives the chunks that were read and not released.

    `ends` are the topic's, exclusive ones, those of open transactions included.
    """

    def __init__(
        self,
        reader: Callable[[], ChunkReader],
        ends: Callable[[], Sequence[int]],
        waiting: Callable[[], Sequence[Chunk]],
        *,
        ask_every_s: float = ASK_EVERY_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open, self._ends, self._waiting = reader, ends, waiting
        self._ask_every_s, self._now_s = ask_every_s, now_s
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._proofs = Proofs()
        self._reader: ChunkReader | None = None
        self._away: str | None = None
        self._moved_s: float | None = None

    def watch(self) -> None:
        """Read until closed. Raises: TopicError; lasting errors as `ChunkReader.open` and `confirmed_lsn`."""
        pause_s = self._ask_every_s
        try:
            while not self._closed.wait(pause_s):
                if self._waiting():
                    pause_s = self._read(pause_s)
                else:
                    self._moved_s = None
        finally:
            self._drop_reader()

    def _read(self, pause_s: float) -> float:
        """Read once. Returns the pause until the next time."""
        try:
            self._add_proof()
        except Gone as gone:
            self._is_away(gone.why)
            self._drop_reader()
        except EnvironmentProblem as problem:
            if problem.code is not Code.BROKER_UNREACHABLE:
                raise
            self._is_away(f"Kafka: {problem.found}")
        else:
            self._away = None
            return self._ask_every_s
        return min(pause_s * 2, LONGEST_PAUSE_S)

    def _add_proof(self) -> None:
        reader = self._reader
        if reader is None:
            reader = self._open()
            with self._lock:
                self._reader = reader
            if self._closed.is_set():
                return
        lsn = reader.confirmed_lsn()
        proof = Streamed(lsn, tuple(self._ends()))
        with self._lock:
            if proof.lsn > self._proofs.lsn or self._moved_s is None:
                self._moved_s = self._now_s()
            self._proofs.add(proof)
            self._proofs.keep_for(self._waiting())

    def _is_away(self, why: str) -> None:
        if self._away is None and not self._closed.is_set():
            log.warning("slot_not_asked", why=why)
        self._away = why

    def _drop_reader(self) -> None:
        with self._lock:
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def close(self) -> None:
        """End `watch` soon."""
        self._closed.set()
        with self._lock:
            if self._reader is not None:
                self._reader.cut()

    def proofs(self) -> Sequence[Streamed]:
        """The proofs that may still matter."""
        with self._lock:
            return self._proofs.kept

    def trouble(self) -> str | None:
        """Text for an operator on an unusual wait; None without one."""
        if self._away is not None:
            return self._away
        with self._lock:
            lsn, moved_s = self._proofs.lsn, self._moved_s
        late_s = 0.0 if moved_s is None else self._now_s() - moved_s
        if late_s < SLOT_IS_LATE_S or not any(chunk.written_lsn > lsn for chunk in self._waiting()):
            return None
        return (
            f"the slot has confirmed nothing for {late_s:.0f} s: is the connector running, and has it "
            "heartbeat.interval.ms and heartbeat.action.query, without which a quiet database confirms nothing"
        )


@dataclass(frozen=True)
class ReadingOrder:
    """Parameters of a reading. `reader` opens a session, and checks the table anew; `ends` are those of the topic.

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


class DatabaseReading(ReadsTable):
    """The reading of one run. `close` ends its threads; chunks not taken are lost, and read again by the next run."""

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

    # for batches ---------------------------------------------------------------------------------------------

    def begin(self) -> TableRead:
        self._begun = True
        return self._order.survey.begin()

    def go_on(self, read: TableRead) -> None:
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
        self._begin(watch.watch, "initial-slot")

    def _rows_before(self, read: TableRead) -> int:
        """Estimate of the rows that earlier runs have read."""
        rows = sum(chunk.rows for chunk in read.chunks)
        if read.released is None:
            return rows
        replica = Replica(self._order.storage, self._order.table)
        return rows + replica.files(replica.pin()).rows

    def take(self) -> Sequence[Finished]:
        if self._error is not None:
            raise self._error
        return [] if self._staging is None else self._staging.take()

    def proofs(self) -> Sequence[Streamed]:
        return () if self._watch is None else self._watch.proofs()

    def since_ms(self) -> int | None:
        return None if self._staging is None else self._staging.since_ms()

    def released(self, read: TableRead) -> None:
        if self._staging is not None:
            self._staging.released(read)
        if read.is_done:
            log.info(
                "table_is_read", rows=self._rows_before(read) if self._copying is None else self.status().rows
            )
            self.close()

    def over(self) -> None:
        self.close()

    # for any -------------------------------------------------------------------------------------------------

    def status(self) -> TableStatus:
        order, copying, watch = self._order, self._copying, self._watch
        if copying is None or watch is None or self._staging is None:
            return TableStatus(0, order.survey.rows, None, self._pace.paused, self._pace.rate_limit, None)
        copied = copying.status()
        return replace(
            copied,
            of=max(copied.of, copied.rows),
            left_s=None if copied.paused or copied.rate_limit == 0 else copied.left_s,
            trouble=copied.trouble or watch.trouble(),
            waiting_rows=sum(chunk.rows for chunk in self._staging.unreleased),
        )

    @property
    def is_on(self) -> bool:
        """True from the first batch on while keys are unread or unreleased."""
        return self._begun and not self._closing

    def throttle(self, rate_limit: int | None) -> None:
        """Rows per second from the next chunk on, kept for later starts. Raises: OSError."""
        self._paced(replace(self._pace, rate_limit=rate_limit))

    def pause(self, paused: bool) -> None:
        """Pause from the next chunk on, or resume; kept for later starts. Raises: OSError."""
        self._paced(replace(self._pace, paused=paused))

    def _paced(self, pace: ReadPace) -> None:
        with self._lock:
            keep_pace(self._order.storage, pace)
            self._pace, copying = pace, self._copying
        if copying is not None:
            copying.throttle(pace.rate_limit)
            copying.pause(pace.paused)

    def close(self) -> None:
        """End the threads. A server that does not answer is not waited for. Idempotent."""
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
