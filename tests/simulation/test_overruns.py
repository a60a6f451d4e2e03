"""A plan whose slices are too much: they are given up where nothing was sent, and only there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from state.journal import PATH as JOURNAL_PATH
from tests.simulation.broken_plans import GivesUpUnlockedPlans
from tests.simulation.crashes import job_of_epochs
from tests.simulation.fault_policies import NoFaults
from tests.simulation.instance import Instance
from tests.simulation.judge import violations
from tests.simulation.scheduler import Strand
from tests.simulation.world import World

TOO_LONG_MS = 61_000


class Slow(NoFaults):
    """The first commit of a transaction with slices comes too late for the broker, in some of the lanes."""

    def __init__(self, lanes: tuple[int, ...]) -> None:
        super().__init__()
        self.lanes, self.slowed = lanes, 0
        self.world: World

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        if of == "commit" and self.slowed < len(self.lanes) and reads(newest_plan(self.world)):
            names = [name for name in self.world.durable.topics.current if name.startswith("backfill-")]
            if any(name.endswith(f"-{self.lanes[self.slowed]}") for name in names):
                self.slowed += 1
                self.world.pass_time(TOO_LONG_MS)
        return harmless


class Deadly(NoFaults):
    """Workers of these lanes die of a slice, so many times in a row."""

    def __init__(self, times: int, lanes: tuple[int, ...]) -> None:
        super().__init__()
        self.left = {f"task of lane {lane}": times for lane in lanes}
        self.world: World

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        if self.left.get(of) and reads(newest_plan(self.world)):
            self.left[of] -= 1
            return "dies"
        return harmless


class Late(NoFaults):
    """A worker dies beside one that has a slice, which does all its part so many steps of the driver later."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.died = steps, False
        self.late: Strand | None = None
        self.world: World

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        if of == "task of lane 1" and not self.died and reads(newest_plan(self.world)):
            self.died = True
            self.world.pass_time(TOO_LONG_MS)
            return "dies"
        return harmless

    def next(self, ready: Sequence[Strand]) -> Strand:
        if self.died and self.late is None:
            self.late = next((strand for strand in ready if strand.name.startswith("lane 0 of ")), None)
        if self.late is not None and self.late in ready and self.steps <= 0:
            return self.late
        in_time = [strand for strand in ready if strand is not self.late]
        chosen = super().next(in_time or ready)
        self.steps -= self.late is not None and chosen.name == "driver"
        return chosen


def plans(world: World) -> list[dict[str, Any]]:
    return [json.loads(plan) for plan in world.storage.every_row(JOURNAL_PATH, "plan") if plan]


def newest_plan(world: World) -> dict[str, Any]:
    plan = world.storage.newest_row(JOURNAL_PATH)["plan"]
    return json.loads(plan) if plan else {"jobs": []}


def reads(plan: dict[str, Any]) -> bool:
    return any(job["slices"] for job in plan["jobs"])


def played(policy: Slow | Deadly | Late, instance_type: type[Instance] = Instance) -> World:
    policy.world = world = World(job_of_epochs(6), policy, instance_type=instance_type)
    world.start()
    world.settle()
    assert world.durable.starts == 1
    return world


def given_up(world: World) -> list[int]:
    """The batches, by the ends of their barriers, whose slices were given up."""
    ended = [(plan["barriers"][-1]["curr"], reads(plan)) for plan in plans(world)]
    return [epoch for epoch, has_slices in ended if not has_slices and (epoch, True) in ended]


@pytest.mark.parametrize(("times", "expected"), [(1, 0), (2, 1)])
def test_slices_that_lanes_die_of_twice_are_given_up(times: int, expected: int) -> None:
    world = played(Deadly(times, (0, 1)))
    assert len(given_up(world)) == expected
    assert not violations(world)


def test_slices_that_one_lane_dies_of_stay_where_another_has_sent_its_part() -> None:
    world = played(Deadly(3, (0,)))
    assert not given_up(world)
    assert not violations(world)


def test_slices_that_are_too_slow_for_a_transaction_are_given_up() -> None:
    world = played(Slow((0, 1)))
    assert len(given_up(world)) == 1
    assert not violations(world)


def test_slices_of_which_a_lane_has_sent_its_part_stay_and_its_fellow_gets_more_time() -> None:
    policy = Slow((1,))
    world = played(policy)
    assert policy.slowed == 1
    assert not given_up(world)
    assert not violations(world)


MOST_STEPS = 20
"""Of the driver, until the slices are given up and the next attempt is on its way."""


@pytest.mark.slow
def test_a_lane_that_begins_late_sends_nothing_of_slices_that_are_given_up() -> None:
    for steps in range(MOST_STEPS):
        assert not violations(played(Late(steps))), steps


@pytest.mark.slow
def test_a_late_lane_is_found_out_where_the_journal_is_not_written_first() -> None:
    """The canary among these: what seeds hardly ever meet."""
    broken = type("Broken", (Instance,), {"batches_type": GivesUpUnlockedPlans})
    assert any(violations(played(Late(steps), broken)) for steps in range(MOST_STEPS))
