"""A steady load: what is due over any time adds up to the rate, and a stall leaves no debt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.events.sender import SteadyLoad


def test_ticks_add_up_to_the_rate() -> None:
    load = SteadyLoad(200, 0.0)
    assert sum(load.due(tick / 100) for tick in range(1, 1_001)) == pytest.approx(2_000, abs=1)


def test_a_stall_is_made_up_for_by_one_second_and_the_rate_goes_on_after_it() -> None:
    load = SteadyLoad(200, 0.0)
    assert load.due(1.0) == 200
    assert load.due(9.0) == 200
    assert load.due(9.5) == 100
    assert load.due(10.0) == 100


@given(st.floats(0.1, 5_000), st.lists(st.floats(0, 20), min_size=1, max_size=50))
def test_nothing_negative_is_ever_due_and_never_more_than_a_second(rate: float, steps: list[float]) -> None:
    load, now = SteadyLoad(rate, 0.0), 0.0
    for step in steps:
        now += step
        assert 0 <= load.due(now) <= max(rate, 1)
