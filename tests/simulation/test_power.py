"""Power failures of one job of twelve epochs, enumerated."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.simulation.cases import broken
from tests.simulation.crashes import ORDERS, twelve_epochs
from tests.simulation.power import power_failures


@pytest.mark.slow
def test_the_law_holds_after_a_power_failure_before_any_step() -> None:
    """Every third of them; all, and in the other orders, by `make simulate`."""
    count, found = broken(islice(power_failures(twelve_epochs(), ORDERS[0]), 0, None, 3))
    assert not found, "\n".join(found)
    assert count > 100
