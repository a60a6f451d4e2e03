"""A table gets a column while it is suspended, over crashes, rivals and random faults; its file stays behind."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.simulation.altering import (
    AddsItself,
    Altering,
    accepted,
    alterations,
    growing,
    play_growing,
    sent_on,
)
from tests.simulation.cases import broken
from tests.simulation.crashes import ORDERS, play_on
from tests.simulation.fault_policies import NoFaults
from tests.simulation.handovers import every_stop, hand_overs
from tests.simulation.judge import violations
from tests.simulation.power import power_failures
from tests.simulation.world import Durable, World


@pytest.mark.parametrize("seed", range(4))
def test_each_table_waits_once_and_goes_on_with_the_column(seed: int) -> None:
    setting = growing(seed)
    world, wrong = play_on(setting, ORDERS[seed], Durable.beginning(setting), instance_type=Altering)
    assert not wrong, wrong
    [instance] = world.instances
    assert isinstance(instance, Altering)
    assert [end.times for end in instance.ends] == [1]
    assert instance.table.column_names == ("id", "n", "c")


@pytest.mark.parametrize("order", [0, 3])
def test_a_column_that_a_barrier_asks_for_is_there_before_its_first_record(order: int) -> None:
    setting = growing(is_asked=True)
    world, wrong = play_on(setting, ORDERS[order], Durable.beginning(setting), instance_type=Altering)
    assert not wrong, wrong
    [instance] = world.instances
    assert isinstance(instance, Altering)
    assert instance.ends == []
    assert instance.table.column_names == ("id", "n", "c")


@pytest.mark.slow
@pytest.mark.parametrize("order", [2, 3])
def test_the_law_holds_after_a_crash_before_many_a_step(order: int) -> None:
    count, found = broken(islice(alterations(ORDERS[order]), order, None, 17))  # `make simulate` plays all
    assert not found, "\n".join(found)
    assert count > 15


@pytest.mark.slow
def test_what_was_ignored_stays_unread_after_a_crash_before_many_a_step() -> None:
    count, found = broken(islice(accepted(ORDERS[2]), 0, None, 5))
    assert not found, "\n".join(found)
    assert count > 30


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 3])
def test_an_output_gets_the_column_in_time_after_a_crash_before_many_a_step(order: int) -> None:
    count, found = broken(islice(sent_on(ORDERS[order]), order, None, 23))
    assert not found, "\n".join(found)
    assert count > 15


@pytest.mark.slow
def test_the_law_holds_after_many_a_power_failure() -> None:
    count, found = broken(islice(power_failures(growing(), ORDERS[0], AddsItself), 0, None, 9))
    assert not found, "\n".join(found)
    assert count > 15


@pytest.mark.slow
def test_one_that_goes_on_behind_its_successor_breaks_nothing() -> None:
    stops = every_stop(ORDERS[0], growing, AddsItself)[::31]
    found = list(hand_overs(ORDERS[0], stops, AddsItself, growing, wakes=29))
    assert not [(stop, wake, wrong[0]) for stop, wake, wrong in found if wrong]
    assert len(found) > 20


@pytest.mark.slow
def test_the_law_holds_in_random_histories() -> None:
    # 2121: the last commit of a former instance comes just ahead of the one that alters the log.
    verdicts = [play_growing(seed) for seed in (*range(60), 2121)]
    assert not [(each.seed, each.violations[0]) for each in verdicts if each.violations]


@pytest.mark.slow
def test_a_rival_takes_over_before_and_behind_the_switch() -> None:
    found, moments = list[str](), set[bool]()
    for stop in range(1, 300, 17):
        world = World(growing(), NoFaults(), instance_type=Altering)
        try:
            first = world.start()
            while first.process.steps < stop and world.scheduler.turn():
                pass
            if not first.process.alive:
                break
            moments.add("c" in first.table.by_name)
            world.start()
            world.settle()
            found += [f"after {stop} steps: {each}" for each in violations(world)[:1]]
        finally:
            world.scheduler.end()
    assert not found, "\n".join(found)
    assert moments == {False, True}
