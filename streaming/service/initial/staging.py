"""Chunks between a reader and a plan: staged, then in a queue; readers wait while it is full.

Only a chunk's keys and the names of its files are in memory. Their number is bounded by the size of a plan, as every
plan of the journal names all chunks that are not released.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

import pyarrow as pa

from schemas.position import order_key
from schemas.table import TableSchema
from state.initial.chunks import stage
from state.initial.start import Survey
from state.storage import Storage, now_ms
from state.values.chunks import Chunk, KeyRange
from state.values.reading import TableRead
from streaming.postgres.copying import ChunkStore
from streaming.protocol.table_read import Finished

MOST_UNTAKEN = 64
"""Chunks that are in no plan yet: a service without batches soon stops reading."""
MOST_UNRELEASED = 512
"""Chunks of all ranges that were read and are not released. The lowest range can always go on to its own share, so
that it, which all others wait for, is released in any case."""
_LEAST_OF_A_RANGE = 64


class Staging(ChunkStore[str]):
    """The chunks of one run. Readers call `keep` and `finished`, the thread of the batches `take`. Safe for threads."""

    def __init__(
        self,
        storage: Storage,
        table: TableSchema,
        survey: Survey,
        read: TableRead,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._storage, self._table, self._clock_ms = storage, table, clock_ms
        self._bounds = [order_key(keys.upto) for keys in survey.ranges if keys.upto is not None]
        self._most_of_a_range = max(MOST_UNRELEASED // max(len(survey.ranges), 1), _LEAST_OF_A_RANGE)
        self._lock = threading.Lock()
        self._queue: list[tuple[int, Finished]] = []
        self._began_ms: dict[int, int] = {}
        self._unreleased: list[Chunk] = list(read.chunks)
        if survey.tail is not None and any(survey.tail.keys == each.keys for each in read.unread):
            self._finish(survey.tail, (), clock_ms())

    # for readers ---------------------------------------------------------------------------------------------

    def has_room(self, keys: KeyRange) -> bool:
        with self._lock:
            counts = Counter(self._range_of(chunk.keys) for chunk in self._unreleased)
            is_free = counts[self._range_of(keys)] < self._most_of_a_range
            return is_free and len(self._queue) < MOST_UNTAKEN

    def _range_of(self, keys: KeyRange) -> int:
        return len(self._bounds) if keys.upto is None else bisect_left(self._bounds, order_key(keys.upto))

    def keep(self, rows: pa.Table) -> str:
        """Stage rows of a chunk. Returns the file's path."""
        with self._lock:
            # Of a chunk that broke off the time stays: what is older than its files is safe to delete, no more.
            self._began_ms.setdefault(threading.get_ident(), self._clock_ms())
        return stage(self._storage, self._table, rows)

    def finished(self, chunk: Chunk, pieces: Sequence[str]) -> None:
        with self._lock:
            began_ms = self._began_ms.pop(threading.get_ident(), self._clock_ms())
            self._finish(chunk, tuple(pieces), began_ms)

    def _finish(self, chunk: Chunk, files: tuple[str, ...], began_ms: int) -> None:
        self._queue.append((began_ms, Finished(chunk, files)))
        self._unreleased.append(chunk)

    # for batches ---------------------------------------------------------------------------------------------

    def take(self) -> list[Finished]:
        """The chunks that were finished since the last call."""
        with self._lock:
            taken = [finished for _, finished in self._queue]
            self._queue.clear()
            return taken

    def released(self, read: TableRead) -> None:
        """Report that the reading is at `read`, which has all chunks that were taken."""
        with self._lock:
            self._unreleased = [*read.chunks, *(finished.chunk for _, finished in self._queue)]

    # for any -------------------------------------------------------------------------------------------------

    @property
    def unreleased(self) -> tuple[Chunk, ...]:
        """Chunks that were read and are not released."""
        with self._lock:
            return tuple(self._unreleased)

    def since_ms(self) -> int | None:
        """Begin of the oldest chunk that was not taken, or None."""
        with self._lock:
            return min([*self._began_ms.values(), *(began_ms for began_ms, _ in self._queue)], default=None)

    def readers_are_gone(self) -> None:
        """Report that all readers have ended: an unfinished chunk will stay so."""
        with self._lock:
            self._began_ms.clear()
