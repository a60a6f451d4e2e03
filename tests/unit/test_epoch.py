from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from schemas.epoch import EPOCH_ZERO_UNIX_MS, NO_EPOCH, next_epoch, unix_ms_from_epoch

clocks = st.integers(EPOCH_ZERO_UNIX_MS + 1, EPOCH_ZERO_UNIX_MS + 2**40)


def test_epochs_count_from_april_2021() -> None:
    start = dt.datetime(2021, 4, 1, tzinfo=dt.UTC)
    assert start.timestamp() * 1000 == EPOCH_ZERO_UNIX_MS
    assert next_epoch(NO_EPOCH, EPOCH_ZERO_UNIX_MS + 3) == 3 << 16


@given(clocks)
def test_an_epoch_tells_the_instant_it_was_made_from(clock: int) -> None:
    assert unix_ms_from_epoch(next_epoch(NO_EPOCH, clock)) == clock


@given(st.lists(clocks, min_size=1, max_size=20))
def test_epochs_rise_strictly_whatever_the_clock_does(clock_readings: list[int]) -> None:
    prev = NO_EPOCH
    for clock in clock_readings:
        curr = next_epoch(prev, clock)
        assert curr > prev
        assert unix_ms_from_epoch(curr) >= clock
        assert curr & 0xFFFF == 0
        prev = curr


def test_a_clock_that_fell_back_costs_one_millisecond_a_barrier() -> None:
    first = next_epoch(NO_EPOCH, EPOCH_ZERO_UNIX_MS + 5_000)
    assert next_epoch(first, EPOCH_ZERO_UNIX_MS + 1_000) == first + (1 << 16)
    assert next_epoch(first | 7, EPOCH_ZERO_UNIX_MS + 1_000) == first + (1 << 16)
