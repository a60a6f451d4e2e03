"""Every crash of one job of twelve epochs, enumerated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.settings.limits import Limits
from tests.simulation.crashes import (
    ORDERS,
    Exploration,
    jobs_that_begin_or_end,
    left_before_each_step,
    replay,
    twelve_epochs,
)
from tests.simulation.state_digest import state_digest
from tests.simulation.world import Durable


@pytest.mark.slow
def test_the_law_holds_after_a_crash_before_any_step() -> None:
    """In the other orders, in pairs, and in any number, by `make simulate`."""
    exploration = Exploration(twelve_epochs(), ORDERS[-1])
    exploration.run(most_crashes=1)
    assert not exploration.broken, "\n".join(exploration.broken)
    assert exploration.distinct[1] > 100


@pytest.mark.slow
def test_the_law_holds_after_a_crash_before_any_step_of_intervals_in_parts() -> None:
    """The first interval goes into the log in parts, the others through the lanes."""
    limits = Limits(interval_records=4, part_records=1)
    exploration = Exploration(replace(twelve_epochs(), limits=limits), ORDERS[0])
    exploration.run(most_crashes=1)
    assert not exploration.broken, "\n".join(exploration.broken)
    assert exploration.distinct[1] > 100


@pytest.mark.slow
def test_the_law_holds_after_a_crash_of_jobs_that_begin_now_or_end() -> None:
    exploration = Exploration(jobs_that_begin_or_end(), ORDERS[0])
    exploration.run(most_crashes=1)
    assert not exploration.broken, "\n".join(exploration.broken)
    assert exploration.distinct[1] > 100


@pytest.mark.slow
def test_crashes_that_leave_the_same_go_on_the_same() -> None:
    """A digest that two crashes leave is left by one as well; from there on nothing differs."""
    by_digest: dict[bytes, Durable] = {}
    once, _ = left_before_each_step(twelve_epochs(), ORDERS[0])
    for left in once:
        by_digest.setdefault(state_digest(left), left)
    compared = 0
    for left in once[30::60]:
        twice = next((state for state in _left(left) if state_digest(state) in by_digest), None)
        if twice is not None:
            compared += 1
            same = by_digest[state_digest(twice)]
            assert list(map(state_digest, _left(twice))) == list(map(state_digest, _left(same)))
    assert compared >= 3


def _left(start: Durable) -> list[Durable]:
    return left_before_each_step(twelve_epochs(), ORDERS[0], start=start)[0]


def test_a_crash_can_be_looked_at_again() -> None:
    trace, wrong = replay(twelve_epochs(), ORDERS[0], (40, 5))
    assert not wrong
    assert trace.count("crash") == 2
    assert trace == replay(twelve_epochs(), ORDERS[0], (40, 5))[0]
