"""States that are older than their outputs, enumerated: each is brought forward, and the law holds."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.simulation.cases import broken
from tests.simulation.crashes import ORDERS
from tests.simulation.restores import jobs_that_come_and_go, mixtures, rebuilds, restores


@pytest.mark.slow
def test_the_law_holds_after_an_older_state_is_restored() -> None:
    """At more moments, and in other orders, by `make simulate`."""
    count, found = broken(islice(restores(jobs_that_come_and_go(), ORDERS[0], every=37), 0, None, 3))
    assert not found, "\n".join(found)
    assert count > 50


@pytest.mark.slow
def test_the_law_holds_after_tables_were_copied_one_after_another() -> None:
    count, found = broken(mixtures(jobs_that_come_and_go(), ORDERS[0], every=31))
    assert not found, "\n".join(found)
    assert count > 50


@pytest.mark.slow
def test_the_law_holds_after_a_lost_state_is_made_anew() -> None:
    count, found = broken(rebuilds(jobs_that_come_and_go(), ORDERS[0], every=17))
    assert not found, "\n".join(found)
    assert count > 5
