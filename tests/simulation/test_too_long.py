"""A record that an output does not take stops its job, or goes to the dead letters; it never stops the batches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from tests.simulation.cases import broken
from tests.simulation.crashes import ORDERS, play_on
from tests.simulation.judge_reading import plans_of
from tests.simulation.redelivery import crashes_of
from tests.simulation.too_long import long_changes, long_changes_of_two_lanes, long_rows
from tests.simulation.world import Durable, Setting, World


def played(setting: Setting) -> World:
    world, wrong = play_on(setting, ORDERS[0], Durable.beginning(setting))
    assert not wrong, wrong
    return world


def test_a_job_is_paused_before_a_row_that_its_output_does_not_take() -> None:
    plans = list(plans_of(played(long_rows())))
    paused = {job.state.name for plan in plans for job in plan.jobs if job.state.paused}
    assert paused == {"copy", "late"}
    assert not any(plan.parked for plan in plans)


@pytest.mark.parametrize("setting", [long_changes, long_changes_of_two_lanes], ids=["one lane", "two lanes"])
def test_a_change_that_an_output_does_not_take_is_parked(setting: Callable[[], Setting]) -> None:
    plans = list(plans_of(played(setting())))
    assert any(plan.parked for plan in plans)
    assert not any(job.state.paused for plan in plans for job in plan.jobs)


@pytest.mark.slow
@pytest.mark.parametrize("setting", [long_rows, long_changes], ids=["rows", "changes"])
def test_the_law_holds_after_a_crash_before_any_step(setting: Callable[[], Setting]) -> None:
    count, found = broken(islice(crashes_of(setting(), ORDERS[0]), 0, None, 4))  # `make simulate`: all
    assert not found, "\n".join(found)
    assert count > 25
