"""Columnar reading of records of which some can only be read one by one.

A columnar reader takes all of a piece or nothing of it (`OddRecordError`), and is up to a hundred times as fast as the
reference decoder. So a piece that it refuses is halved until few records are left, which are read one by one; pieces
grow again as they are read. A single invalid record costs about two further columnar passes over its block. Where all
records are of the kind that columns don't take, pieces read one by one grow, so the attempts that fail cost one more
pass over the block, whatever its size; the next block begins with such a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from schemas.records import OddRecordError

SMALLEST = 16
"""Records read one by one at first. A columnar attempt costs about as much, for however few records it is."""
_MOST = 4_096

T = TypeVar("T")


@dataclass
class ColumnarPieces:
    """Reads blocks of records; keep one for the blocks of a topic, as it remembers how the last one was read."""

    _one_by_one: int = SMALLEST

    def read(
        self, count: int, by_columns: Callable[[int, int], T], one_by_one: Callable[[int, int], T]
    ) -> Iterator[T]:
        """Reads `count` records in order, yielding one result for each piece from a start to an end, exclusive.

        `by_columns` may raise OddRecordError.
        """
        start, size = 0, count if self._one_by_one == SMALLEST else self._one_by_one
        while start < count:
            end = min(start + size, count)
            try:
                yield by_columns(start, end)
            except OddRecordError:
                if end - start > self._one_by_one:
                    size = (end - start) // 2
                    continue
                yield one_by_one(start, end)
                self._one_by_one = size = min(2 * self._one_by_one, _MOST)
            else:
                self._one_by_one = SMALLEST
                size *= 2
            start = end


def compact(column: pa.Array, start: int, end: int) -> pa.Array:
    """Some values of a column, copied unless that is all of them.

    It is no slice, whose offset every reader of buffers would have to heed.
    """
    if (start, end) == (0, len(column)) and not column.offset:
        return column
    return column.take(pa.array(np.arange(start, end)))
