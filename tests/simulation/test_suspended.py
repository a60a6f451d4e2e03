"""A suspended table goes on exactly once over crashes, rivals and random faults."""

from __future__ import annotations

from itertools import islice

import pytest

from schemas.errors import Code
from tests.simulation.cases import broken
from tests.simulation.crashes import ORDERS, play_on
from tests.simulation.fault_policies import NoFaults
from tests.simulation.judge import violations
from tests.simulation.suspending import (
    Suspending,
    TriesAgainFirst,
    invalid_records,
    play_suspended,
    suspensions,
)
from tests.simulation.world import Durable, World


def played(instance_type: type[Suspending]) -> Suspending:
    setting = invalid_records()
    world, wrong = play_on(setting, ORDERS[0], Durable.beginning(setting), instance_type=instance_type)
    assert not wrong, wrong
    (instance,) = world.instances
    assert isinstance(instance, Suspending)
    return instance


def test_each_bad_record_suspends_it_once_and_is_then_left_out() -> None:
    instance = played(Suspending)
    wheres = [end.fault.where for end in instance.ends if end.fault is not None]
    assert len(wheres) == len(set(wheres)) == len(instance.arrivals.changelog.faulty)
    assert {end.times for end in instance.ends} == {1}


def test_a_try_without_a_decision_is_counted() -> None:
    instance = played(TriesAgainFirst)
    assert [end.times for end in instance.ends] == [1, 2] * len(instance.arrivals.changelog.faulty)
    assert all(end.fault is not None and end.fault.code is not Code.DATA_LOST for end in instance.ends)


@pytest.mark.slow
@pytest.mark.parametrize("order", [2, 3])
def test_the_law_holds_after_a_crash_before_many_a_step(order: int) -> None:
    count, found = broken(islice(suspensions(ORDERS[order]), order, None, 23))  # `make simulate` plays all
    assert not found, "\n".join(found)
    assert count > 15


@pytest.mark.slow
def test_the_law_holds_in_random_histories() -> None:
    verdicts = [play_suspended(seed) for seed in range(60)]
    assert not [(each.seed, each.violations[0]) for each in verdicts if each.violations]
    assert sum(any("the operator" in line for line in each.trace) for each in verdicts) > 5


@pytest.mark.slow
def test_a_rival_takes_over_while_it_is_suspended() -> None:
    found, moments = list[str](), 0
    for stop in range(1, 400, 23):
        world = World(invalid_records(), NoFaults(), instance_type=Suspending)
        try:
            first = world.start()
            while first.process.steps < stop and world.scheduler.turn():
                pass
            assert isinstance(first, Suspending)
            if not first.process.alive:
                break
            moments += bool(first.ends)
            world.start()
            world.settle()
            found += [f"after {stop} steps: {each}" for each in violations(world)[:1]]
        finally:
            world.scheduler.end()
    assert not found, "\n".join(found)
    assert moments > 2
