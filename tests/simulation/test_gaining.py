"""A topic that gains partitions, with crashes and hand-overs; `make simulate` plays all of them."""

from __future__ import annotations

from functools import partial
from itertools import islice

import pytest

from schemas.errors import Code, TopicError
from schemas.settings.limits import Limits
from tests.simulation.canaries import CANARIES
from tests.simulation.cases import broken
from tests.simulation.crashes import ORDERS, play_on
from tests.simulation.fault_policies import NoFaults
from tests.simulation.from_database import reading_a_topic_that_gains_partitions
from tests.simulation.gaining import BARRIERS, IN_PARTS, gaining
from tests.simulation.handovers import every_stop, hand_overs
from tests.simulation.judge_reading import plans_of
from tests.simulation.redelivery import crashes_of
from tests.simulation.world import Durable, World

EVERY = 7
"""Of the crashes, those that are played here."""
WHOLE = Limits()


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("at", "limits"),
    [((1,), WHOLE), ((2, 4), WHOLE), ((3,), IN_PARTS), ((BARRIERS - 2,), WHOLE), ((BARRIERS - 1,), WHOLE)],
)
def test_a_partition_is_taken_in_wherever_it_is_added(
    at: tuple[int, ...], beside: bool, limits: Limits
) -> None:
    setting = gaining(*at, beside=beside, limits=limits)
    world, wrong = play_on(setting, ORDERS[0], Durable.beginning(setting))
    assert not wrong
    plans = plans_of(world)
    assert [len(plan.first_offsets) for plan in plans] == sorted(len(plan.first_offsets) for plan in plans)
    assert len(plans[-1].first_offsets) == 2 + len(at)
    assert plans[-1].moved_at == setting.changelog.barriers[0][at[-1]].barrier.curr  # type: ignore[union-attr]


@pytest.mark.parametrize("beside", [False, True])
def test_the_law_holds_after_a_crash_at_some_steps(beside: bool) -> None:
    setting = gaining(2, 4, beside=beside)
    count, found = broken(islice(crashes_of(setting, ORDERS[-1]), 0, None, EVERY))
    assert not found, "\n".join(found)
    assert count > 15


def test_the_law_holds_after_a_hand_over_at_some_steps() -> None:
    setting_of = partial(gaining, 2)
    stops = every_stop(ORDERS[0], setting_of)[::97]
    played = list(hand_overs(ORDERS[0], stops, setting_of=setting_of, wakes=61))
    assert not [(stop, wake, wrong[0]) for stop, wake, wrong in played if wrong]
    assert played


@pytest.mark.parametrize("canary", [each for each in CANARIES if each.step == "partitions"], ids=str)
def test_a_partition_that_is_taken_in_wrongly_is_found(canary: object) -> None:
    assert canary.dies_as_known()  # type: ignore[attr-defined]


def test_a_table_that_is_read_from_its_database_takes_none_in() -> None:
    """Its events wait by their offsets, which do not order a key of two partitions."""
    world = World(reading_a_topic_that_gains_partitions(), NoFaults())
    try:
        instance = world.start()
        while instance.process.alive and world.scheduler.turn():
            pass
        error = instance.process.ended_by
        assert isinstance(error, TopicError)
        assert error.code is Code.PARTITIONS_CHANGED
    finally:
        world.scheduler.end()
