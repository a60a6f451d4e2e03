"""The copy of a table, chunk after chunk, by one or several readers.

It runs in a thread of its caller, whose `ChunkStore` keeps the rows and decides when a chunk counts. Passing errors (a
server that restarts, a statement that hangs) are retried here, in longer and longer pauses; others are raised.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
import structlog

from state.values.chunks import Chunk, KeyRange
from streaming.postgres.reader import ChunkReader
from streaming.postgres.session import Gone

Kept = TypeVar("Kept")

log = structlog.get_logger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
_LOOK_S = 0.25
"""The interval at which waiting threads check whether to stop."""
CHUNK_BYTES = 64 << 20
"""CSV bytes of a chunk, about: after a larger one the next has fewer rows."""
_AT_ONCE_S = 1.0
"""Under a limit, a chunk has no more rows than the limit allows in this time."""
_SHRINK, _GROW = 4, 2


class ChunkStore(Protocol[Kept]):
    """Keeps the rows of chunks. Thread-safe."""

    def has_room(self, keys: KeyRange) -> bool:
        """True if another chunk of this range may be begun. Until then it is called several times a second.

        Called by several readers, one at a time, and never while a transaction of theirs is open.
        """

    def keep(self, rows: pa.Table) -> Kept:
        """Write a piece of a chunk durably, and return its location. Called by several readers at once.

        A piece counts only once `finished` names it; pieces of a chunk that failed are garbage.
        """

    def finished(self, chunk: Chunk, pieces: Sequence[Kept]) -> None:
        """All rows of a chunk are in these pieces, in key order but for a whole table. One call at a time.

        May block; readers wait for it (back-pressure). Once it has returned, the chunk will not be read again by this
        copy; if it raises, the copy ends with that error.
        """


class Pace:
    """The pace of all readers together, by a clock in seconds that is never set.

    `rate_limit`: rows per second, None for any number, 0 for none.
    """

    def __init__(self, rate_limit: int | None = None, *, paused: bool = False) -> None:
        self._rate_limit, self.paused = rate_limit, paused
        self._free_s = 0.0

    @property
    def rate_limit(self) -> int | None:
        return self._rate_limit

    @rate_limit.setter
    def rate_limit(self, rate_limit: int | None) -> None:
        if rate_limit != self._rate_limit:  # rows read under another limit are no debt under this one
            self._rate_limit, self._free_s = rate_limit, 0.0

    def take_rows(self, now_s: float, most: int) -> int:
        """Reserve rows, at most `most`, and return their number; 0: none now, see `wait_s`.

        They count as read at once, so that no other reader takes the same, even if there are fewer.
        """
        if self.paused or self._rate_limit == 0 or now_s < self._free_s:
            return 0
        if self._rate_limit is None:
            return most
        allowed = min(most, max(int(self._rate_limit * _AT_ONCE_S), 1))
        self._free_s = now_s + allowed / self._rate_limit
        return allowed

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until rows may be read; None: until the pace is changed."""
        if self.paused or self._rate_limit == 0:
            return None
        return max(self._free_s - now_s, 0.0)


class ChunkSize:
    """The number of rows of one reader's next chunk, `most` at most."""

    def __init__(self, most: int) -> None:
        self._most = self.rows = most

    def learn_chunk(self, rows: int, size: int) -> None:
        """Learn from a chunk of `rows` rows and `size` bytes."""
        fitting = self._most if size == 0 else max(rows * CHUNK_BYTES // size, 1)
        self.rows = min(self.rows * _GROW, fitting, self._most)

    def learn_failure(self) -> None:
        """Learn that a chunk took too long, or was lost: smaller ones may get through."""
        self.rows = max(self.rows // _SHRINK, 1)


@dataclass
class Speed:
    """The rate of a copy by this process, which has read `rows`, and the time left. `of`: the table's, an estimate."""

    of: int
    rows: int = 0
    _began_s: float | None = None

    def add(self, now_s: float, rows: int, took_s: float) -> None:
        """Add a chunk that was read in `took_s`."""
        if self._began_s is None:
            self._began_s = now_s - took_s
        self.rows += rows

    def left_s(self, now_s: float, before: int) -> float | None:
        """Seconds until all is read, `before` rows having been read by former processes; None while it is unknown."""
        if self._began_s is None or not self.rows or now_s <= self._began_s:
            return None
        left = max(self.of - before - self.rows, 0)
        return left * (now_s - self._began_s) / self.rows


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Progress of the reading. `rows` of `of`, an estimate that may be too low, were read.

    `left_s` is the time for the rest, None while it is unknown; `trouble` is the reason of a wait. `waiting_rows` were
    read and are not released, which a copy does not know of.
    """

    rows: int
    of: int
    left_s: float | None
    paused: bool
    rate_limit: int | None
    trouble: str | None
    waiting_rows: int = 0


@dataclass(frozen=True)
class CopyOrder(Generic[Kept]):
    """The work of a copy: `unread` ranges, of a table of `rows` (an estimate), `rows_before` of which were read.

    `reader` opens a reader and checks the table anew. `whole`: all rows by one snapshot; `unread` is one range, then.
    """

    unread: Sequence[KeyRange]
    rows: int
    rows_before: int
    chunk_rows: int
    readers: int
    reader: Callable[[], ChunkReader]
    store: ChunkStore[Kept]
    whole: bool = False


class TableCopying(Generic[Kept]):
    """One run of a copy. `copy_table` belongs to one thread; the rest may be called from any."""

    def __init__(self, order: CopyOrder[Kept], pace: Pace) -> None:
        self._order, self._pace = order, pace
        self._todo = deque(order.unread)
        self._speed = Speed(order.rows)
        self._changed = threading.Condition()
        self._finishing = threading.Lock()
        self._stopping = False
        self._trouble: str | None = None
        self._error: BaseException | None = None
        self._readers: set[ChunkReader] = set()

    def copy_table(self) -> bool:
        """Copy everything. False: it was stopped before the end.

        Raises: errors of readers and of the store that do not pass, see `ChunkReader`.
        """
        others = [
            threading.Thread(target=self._work, name=f"postgres-{number}", daemon=True)
            for number in range(1, min(self._order.readers, len(self._todo)))
        ]
        for thread in others:
            thread.start()
        self._work()
        for thread in others:
            thread.join()
        if self._error is not None:
            raise self._error
        return not self._stopping

    def stop(self) -> None:
        """End the run soon. Chunks being read are dropped; one that is being finished is finished."""
        with self._changed:
            self._stopping = True
            for reader in self._readers:
                reader.cut()
            self._changed.notify_all()

    def throttle(self, rate_limit: int | None) -> None:
        """Rows per second from the next chunk on: None for any number, 0 for none."""
        with self._changed:
            self._pace.rate_limit = rate_limit
            self._changed.notify_all()

    def pause(self, paused: bool) -> None:
        """Read nothing from the next chunk on, or go on."""
        with self._changed:
            self._pace.paused = paused
            self._changed.notify_all()

    def status(self) -> TableStatus:
        """The current progress."""
        with self._changed:
            order, pace = self._order, self._pace
            return TableStatus(
                order.rows_before + self._speed.rows,
                order.rows,
                self._speed.left_s(time.monotonic(), order.rows_before),
                pace.paused,
                pace.rate_limit,
                self._trouble,
            )

    def _work(self) -> None:
        try:
            while (keys := self._next()) is not None:
                self._copy(keys)
        except BaseException as error:  # noqa: BLE001  # `copy_table` raises it, in the thread of its caller
            with self._changed:
                self._error = self._error or error
            self.stop()

    def _next(self) -> KeyRange | None:
        with self._changed:
            return None if self._stopping or not self._todo else self._todo.popleft()

    def _copy(self, keys: KeyRange) -> None:
        """A range to its end, by as many readers, one after another, as that takes."""
        left: KeyRange | None = keys
        size, pause_s = ChunkSize(self._order.chunk_rows), FIRST_PAUSE_S
        while left is not None and not self._stopping:
            before = left
            try:
                reader = self._opened()
                try:
                    while left is not None and (most := self._allowed(size.rows, left)):
                        left = self._chunk(reader, left, most, size)
                        pause_s = FIRST_PAUSE_S
                finally:
                    self._close(reader)
            except Gone as gone:
                size.learn_failure()
                self._wait(gone, pause_s)
                pause_s = FIRST_PAUSE_S if left != before else min(pause_s * 2, LONGEST_PAUSE_S)

    def _opened(self) -> ChunkReader:
        reader = self._order.reader()
        with self._changed:
            self._readers.add(reader)
            if self._stopping:
                reader.cut()
        return reader

    def _close(self, reader: ChunkReader) -> None:
        with self._changed:
            self._readers.discard(reader)
        reader.close()

    def _allowed(self, most: int, keys: KeyRange | None = None) -> int:
        """The number of rows that may be read now, of `keys` if given. Waits for at least one; 0 only when it stops."""
        with self._changed:
            while not self._stopping:
                now_s = time.monotonic()
                has_room = keys is None or self._order.store.has_room(keys)
                if has_room and (rows := self._pace.take_rows(now_s, most)):
                    return rows
                wait_s = self._pace.wait_s(now_s) if has_room else None
                self._changed.wait(_LOOK_S if wait_s is None else min(wait_s, _LOOK_S))
        return 0

    def _chunk(self, reader: ChunkReader, keys: KeyRange, most: int, size: ChunkSize) -> KeyRange | None:
        """Read one chunk into the store; returns the rest of the range, None at its end."""
        began_s, pieces = time.monotonic(), list[Kept]()

        def keep(rows: pa.Table) -> None:
            pieces.append(self._order.store.keep(rows))

        def keep_slowly(rows: pa.Table) -> None:
            """A whole table is one chunk, so its pieces are paced. The server waits for its reader."""
            keep(rows)
            left = rows.num_rows
            while left and (allowed := self._allowed(left)):
                left -= allowed

        found = reader.read_whole(keep_slowly) if self._order.whole else reader.read(keys, most, keep)
        with self._finishing:
            if self._error is not None:
                return None
            self._order.store.finished(found.chunk, pieces)
        now_s = time.monotonic()
        size.learn_chunk(found.chunk.rows, found.size)
        with self._changed:
            self._trouble = None
            self._speed.add(now_s, found.chunk.rows, now_s - began_s)
        upto = found.chunk.keys.upto
        return None if upto == keys.upto else KeyRange(upto, keys.upto)

    def _wait(self, gone: Gone, pause_s: float) -> None:
        if self._stopping:
            return
        log.warning("postgres_waits", why=gone.why, pause_s=pause_s)
        with self._changed:
            self._trouble = gone.why
            self._changed.wait_for(lambda: self._stopping, pause_s)
