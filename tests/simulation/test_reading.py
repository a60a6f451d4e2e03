"""A table that is read from its database beside its changes: crashes, power failures, and what histories have."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.simulation.cases import broken
from tests.simulation.crashes import ORDERS, Exploration, play_on
from tests.simulation.fault_policies import Order
from tests.simulation.from_database import quiet_reading, reading_that_is_over_early, small_reading
from tests.simulation.histories import play_from_database
from tests.simulation.judge_reading import plans_of
from tests.simulation.power import power_failures
from tests.simulation.restores import restores
from tests.simulation.world import Durable

SEEDS = 50
CHUNK = 25


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_the_small_reading_has_what_it_is_for(order: Order) -> None:
    """Its chunks are released one after another, while events wait and others apply, and a job reads."""
    world, wrong = play_on(small_reading(), order, Durable.beginning(small_reading()))
    assert not wrong
    readings = [plan.reading for plan in plans_of(world) if plan.reading is not None]
    assert sum(reading.due > 0 for reading in readings) >= 2
    assert any(plan.reading and any(job.slices for job in plan.jobs) for plan in plans_of(world))
    waiting = world.durable.files.tables["initial/waiting"]
    assert sum(bool(version.files) for version in waiting) >= 3


@pytest.mark.parametrize("order", [ORDERS[0], ORDERS[-1]], ids=str)
def test_a_quiet_reading_comes_to_its_end(order: Order) -> None:
    assert not play_on(quiet_reading(), order, Durable.beginning(quiet_reading()))[1]


@pytest.mark.slow
def test_the_law_holds_after_a_crash_before_any_step() -> None:
    """In the other orders, and in pairs, by `make simulate`."""
    exploration = Exploration(small_reading(), ORDERS[-1], " READING=1")
    exploration.run(most_crashes=1)
    assert not exploration.broken, "\n".join(exploration.broken)
    assert exploration.distinct[1] > 100


@pytest.mark.slow
def test_the_law_holds_after_a_power_failure_before_any_step() -> None:
    """Every fifth of them; all, and in the other orders, by `make simulate`."""
    count, found = broken(islice(power_failures(small_reading(), ORDERS[0]), 0, None, 5))
    assert not found, "\n".join(found)
    assert count > 30


@pytest.mark.slow
def test_a_state_that_is_past_the_reading_can_be_restored() -> None:
    """Also where its newest plan was half done, and the outputs are past it."""
    count, found = broken(restores(reading_that_is_over_early(), ORDERS[0], every=160))
    assert not found, "\n".join(found)
    assert count > 20


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_law_holds_at_the_end_of_every_history(first: int) -> None:
    verdicts = map(play_from_database, range(first, first + CHUNK))
    broken = [(verdict.seed, verdict.violations[0]) for verdict in verdicts if verdict.violations]
    assert not broken
