"""The pace of a copy: rows per second, paused or not, and the rows of a chunk.

Pure: the time comes in, in seconds of a clock that is never set.
"""

from __future__ import annotations

CHUNK_BYTES = 64 << 20
"""CSV bytes of a chunk, about: after a larger one the next has fewer rows."""
_AT_ONCE_S = 1.0
"""Under a limit, a chunk has no more rows than the limit allows in this time."""
_SHRINK, _GROW = 4, 2


class Pace:
    """The pace of all readers together. `rate_limit`: rows per second, None for any number, 0 for none."""

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


class Speed:
    """The rate of a copy by this process, and the time left. `of`: rows of the table, an estimate."""

    def __init__(self, of: int) -> None:
        self._of, self._rows = of, 0
        self._began_s: float | None = None

    @property
    def rows(self) -> int:
        """Rows that were read by this process."""
        return self._rows

    def add(self, now_s: float, rows: int, took_s: float) -> None:
        """Add a chunk that was read in `took_s`."""
        if self._began_s is None:
            self._began_s = now_s - took_s
        self._rows += rows

    def left_s(self, now_s: float, before: int) -> float | None:
        """Seconds until all is read, `before` rows having been read by former processes; None while it is unknown."""
        if self._began_s is None or not self._rows or now_s <= self._began_s:
            return None
        left = max(self._of - before - self._rows, 0)
        return left * (now_s - self._began_s) / self._rows
