"""`Lanes` at nearly every barrier, with crashes and hand-overs; `make simulate` plays all of them."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.simulation.canaries import CANARIES
from tests.simulation.cases import broken
from tests.simulation.crashes import ORDERS, play_on
from tests.simulation.fault_policies import Order
from tests.simulation.handovers import every_stop, hand_overs
from tests.simulation.judge_reading import plans_of
from tests.simulation.redelivery import crashes_of
from tests.simulation.rescaled import rescaled
from tests.simulation.world import Durable

EVERY = 11
"""Of the crashes, those that are played here."""


def test_the_lanes_of_each_batch_are_those_that_the_barriers_before_it_have_set() -> None:
    world, wrong = play_on(rescaled(), ORDERS[0], Durable.beginning(rescaled()))
    assert not wrong
    lanes = [plan.lanes for plan in plans_of(world)]
    assert lanes == [2, 2, 4, 1, 2, 4, 2, 2, 1, 4, 4, 4]


@pytest.mark.parametrize("order", ORDERS[:: len(ORDERS) - 1])
def test_the_law_holds_after_a_crash_at_some_steps(order: Order) -> None:
    count, found = broken(islice(crashes_of(rescaled(), order), 0, None, EVERY))
    assert not found, "\n".join(found)
    assert count > 10


def test_the_law_holds_after_a_hand_over_at_some_steps() -> None:
    stops = every_stop(ORDERS[0], rescaled)[::97]
    played = list(hand_overs(ORDERS[0], stops, setting_of=rescaled, wakes=61))
    assert not [(stop, wake, wrong[0]) for stop, wake, wrong in played if wrong]
    assert played


@pytest.mark.parametrize("canary", [each for each in CANARIES if each.crashes_of is rescaled], ids=str)
def test_a_rescale_that_goes_wrong_is_found(canary: object) -> None:
    assert canary.dies_as_known()  # type: ignore[attr-defined]
