"""Records redelivered behind a restart are known as such, though nothing of the last batch is there to be read."""

from __future__ import annotations

from itertools import islice

import pytest

from schemas.errors import InputError
from schemas.settings.limits import Limits
from state.values.seen import Marks
from streaming.protocol.batches import Batches
from tests.simulation.broken_driver import RemembersMarks
from tests.simulation.cases import broken
from tests.simulation.crashes import ORDERS, left_before_each_step, play_on
from tests.simulation.instance import Instance
from tests.simulation.redelivery import IN_PARTS, crashes_of, redeliveries
from tests.simulation.restores import restores


@pytest.mark.slow
@pytest.mark.parametrize("limits", [Limits(), IN_PARTS], ids=["whole", "in parts"])
def test_redelivered_records_are_dropped_after_a_crash_before_any_step(limits: Limits) -> None:
    count, found = broken(
        islice(crashes_of(redeliveries(limits), ORDERS[0]), 0, None, 3)
    )  # `make simulate`: all
    assert not found, "\n".join(found)
    assert count > 20


class _NotesNothing(RemembersMarks):
    def committed(self) -> Marks | None:
        return None


class _FormerBatches(Batches):
    replica_type = _NotesNothing


class _Former(Instance):
    """The version before, whose commits do not say what was seen."""

    batches_type = _FormerBatches


@pytest.mark.slow
def test_a_state_of_the_version_before_goes_on_without_the_records_of_its_last_batch() -> None:
    setting = redeliveries()
    left, _ = left_before_each_step(setting, ORDERS[0], _Former)
    for durable in left[::9]:
        world, _ = play_on(setting, ORDERS[0], durable)
        assert world.durable.arrivals.is_over
        assert not [each for each in world.instances if isinstance(each.process.ended_by, InputError)]


@pytest.mark.slow
def test_redelivered_records_are_dropped_after_an_older_state_is_restored() -> None:
    """Outputs are ahead of the state then, and what its open batch had seen is known all the same."""
    count, found = broken(restores(redeliveries(), ORDERS[1], every=25))
    assert not found, "\n".join(found)
    assert count > 50
