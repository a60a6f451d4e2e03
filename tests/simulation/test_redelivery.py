"""What is redelivered behind a restart is known as such, though nothing of the last batch is there to be read."""

from __future__ import annotations

import pytest

from schemas.settings.limits import Limits
from tests.simulation.cases import broken
from tests.simulation.crashes import ORDERS
from tests.simulation.redelivery import IN_PARTS, crashes_of, redeliveries
from tests.simulation.restores import restores


@pytest.mark.slow
@pytest.mark.parametrize("limits", [Limits(), IN_PARTS], ids=["whole", "in parts"])
def test_redelivered_records_are_dropped_after_a_crash_before_any_step(limits: Limits) -> None:
    count, found = broken(crashes_of(redeliveries(limits), ORDERS[0]))
    assert not found, "\n".join(found)
    assert count > 50


@pytest.mark.slow
def test_redelivered_records_are_dropped_after_an_older_state_is_restored() -> None:
    """Outputs are ahead of the state then, and what its open batch had seen is known all the same."""
    count, found = broken(restores(redeliveries(), ORDERS[1], every=25))
    assert not found, "\n".join(found)
    assert count > 50
