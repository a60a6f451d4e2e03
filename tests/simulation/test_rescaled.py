"""`Lanes` at nearly every barrier, with every crash and hand-over of that job."""

from __future__ import annotations

import pytest

from tests.simulation.canaries import CANARIES
from tests.simulation.crashes import ORDERS, left_before_each_step, play_on
from tests.simulation.handovers import every_stop, hand_overs
from tests.simulation.judge_reading import plans_of
from tests.simulation.rescaled import rescaled
from tests.simulation.world import Durable

EVERY = 31
"""Of the steps, those that are played in the usual run."""


def test_the_lanes_of_each_batch_are_those_that_the_barriers_before_it_have_set() -> None:
    world, wrong = play_on(rescaled(), ORDERS[0], Durable.beginning(rescaled()))
    assert not wrong
    lanes = [plan.lanes for plan in plans_of(world)]
    assert lanes == [2, 2, 4, 1, 2, 4, 2, 2, 1, 4, 4, 4]


def crashes(every: int) -> list[tuple[int, str]]:
    broken = []
    for order in ORDERS[:: len(ORDERS) - 1]:
        left, wrong = left_before_each_step(rescaled(), order)
        assert not wrong
        for step, durable in list(enumerate(left))[::every]:
            if wrong := play_on(rescaled(), order, durable)[1]:
                broken.append((step, wrong[0]))
    return broken


def test_the_law_holds_after_a_crash_at_some_steps() -> None:
    assert not crashes(EVERY)


@pytest.mark.slow
def test_the_law_holds_after_a_crash_at_every_step() -> None:
    assert not crashes(1)


def handed_over(every: int, wakes: int) -> list[tuple[int, int, str]]:
    stops = every_stop(ORDERS[0], rescaled)[::every]
    played = hand_overs(ORDERS[0], stops, setting_of=rescaled, wakes=wakes)
    return [(stop, wake, wrong[0]) for stop, wake, wrong in played if wrong]


def test_the_law_holds_after_a_hand_over_at_some_steps() -> None:
    assert not handed_over(97, 61)


@pytest.mark.slow
def test_the_law_holds_after_a_hand_over_at_every_seventh_step() -> None:
    assert not handed_over(7, 11)


@pytest.mark.parametrize("canary", [each for each in CANARIES if each.crashes_of is rescaled], ids=str)
def test_a_rescale_that_goes_wrong_is_found(canary: object) -> None:
    assert canary.dies_as_known()  # type: ignore[attr-defined]
