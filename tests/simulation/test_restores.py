"""States that are older than their outputs, enumerated: each is brought forward, and the law holds."""

from __future__ import annotations

import pytest

from tests.simulation.crashes import ORDERS
from tests.simulation.restores import jobs_that_come_and_go, rebuilds, restores


@pytest.mark.slow
def test_the_law_holds_after_an_older_state_is_restored() -> None:
    """At more moments, and in other orders, by `make simulate`."""
    played = list(restores(jobs_that_come_and_go(), ORDERS[0], every=37))
    broken = [f"{where}: {wrong[0]}" for where, wrong in played if wrong]
    assert not broken, "\n".join(broken)
    assert len(played) > 100


@pytest.mark.slow
def test_the_law_holds_after_a_lost_state_is_made_anew() -> None:
    played = list(rebuilds(jobs_that_come_and_go(), ORDERS[0], every=17))
    broken = [f"{where}: {wrong[0]}" for where, wrong in played if wrong]
    assert not broken, "\n".join(broken)
