"""A few records that columns refuse do not cost their neighbours the columnar reader."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec.pieces import SMALLEST, ColumnarPieces
from schemas.records import OddRecordError

COUNT = 10_000


class Reader:
    """Reads numbers, of which columns refuse some; it counts what was read in either way."""

    def __init__(self, refused: Collection[int]) -> None:
        self._refused = refused
        self.tried = self.attempts = self.one_by_one = 0

    def read(self, pieces: ColumnarPieces, count: int) -> list[int]:
        found = pieces.read(count, self._columnar, self._rows)
        return [number for piece in found for number in piece]

    def _columnar(self, start: int, end: int) -> range:
        self.tried += end - start
        self.attempts += 1
        if any(number in self._refused for number in range(start, end)):
            raise OddRecordError
        return range(start, end)

    def _rows(self, start: int, end: int) -> range:
        self.one_by_one += end - start
        return range(start, end)


@given(st.integers(0, 300), st.sets(st.integers(0, 299), max_size=20), st.integers(1, 3))
def test_every_record_is_read_once_and_in_order(count: int, refused: set[int], blocks: int) -> None:
    pieces = ColumnarPieces()
    for _ in range(blocks):
        assert Reader(refused).read(pieces, count) == list(range(count))


def test_without_refused_records_there_is_one_piece() -> None:
    reader = Reader(())
    reader.read(ColumnarPieces(), COUNT)
    assert (reader.attempts, reader.one_by_one) == (1, 0)


@pytest.mark.parametrize("place", [0, 1, 4_999, 5_000, COUNT - 1])
def test_one_refused_record_costs_a_few_passes(place: int) -> None:
    reader = Reader({place})
    reader.read(ColumnarPieces(), COUNT)
    assert reader.one_by_one <= SMALLEST
    assert reader.tried <= 4 * COUNT


def test_where_all_are_refused_failed_attempts_stay_cheap_and_later_blocks_begin_one_by_one() -> None:
    pieces, first, later = ColumnarPieces(), Reader(range(COUNT)), Reader(range(COUNT))
    first.read(pieces, COUNT)
    assert first.one_by_one == COUNT
    assert first.tried <= 3 * COUNT
    assert first.attempts <= 30
    later.read(pieces, COUNT)
    assert later.tried <= COUNT
    recovered = Reader(())
    recovered.read(pieces, COUNT)
    assert (recovered.one_by_one, recovered.attempts <= 3) == (0, True)
