"""Two instances, one that does not know of the other."""

from __future__ import annotations

import pytest

from tests.simulation.crashes import ORDERS, jobs_that_begin_or_end
from tests.simulation.handovers import every_stop, hand_overs, one_batch


@pytest.mark.slow
def test_the_law_holds_whenever_a_rival_takes_over_and_whenever_the_first_goes_on() -> None:
    """At every third step of one batch; at all of them, and in every order, by `make simulate`."""
    played = list(hand_overs(ORDERS[0], one_batch(ORDERS[0])[::3]))
    assert not [(stop, wake, wrong[0]) for stop, wake, wrong in played if wrong]
    assert len(played) > 100


@pytest.mark.slow
def test_the_law_holds_for_jobs_that_begin_now_or_end_whenever_a_rival_takes_over() -> None:
    """At a few steps of all; at all of them by `make simulate`."""
    stops = every_stop(ORDERS[0], jobs_that_begin_or_end)[7::60]
    played = list(hand_overs(ORDERS[0], stops, setting_of=jobs_that_begin_or_end, wakes=7))
    assert not [(stop, wake, wrong[0]) for stop, wake, wrong in played if wrong]
    assert len(played) > 30
