"""Every power failure of one job of twelve epochs, enumerated."""

from __future__ import annotations

import pytest

from tests.simulation.crashes import ORDERS, twelve_epochs
from tests.simulation.power import power_failures


@pytest.mark.slow
def test_the_law_holds_after_a_power_failure_before_any_step() -> None:
    """In the other orders by `make simulate`."""
    played = list(power_failures(twelve_epochs(), ORDERS[0]))
    broken = [f"{where}: {wrong[0]}" for where, wrong in played if wrong]
    assert not broken, "\n".join(broken)
    assert len(played) > 100
