"""The simulation finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.simulation.broken_driver import FencesNobody
from tests.simulation.broken_reading import WaitingBeforeLog
from tests.simulation.canaries import CANARIES, Canary
from tests.simulation.histories import play, play_from_database
from tests.simulation.instance import Instance


@pytest.mark.parametrize("canary", CANARIES, ids=str)
def test_where_nothing_goes_wrong_a_canary_passes(canary: Canary) -> None:
    assert not canary.passes_without_faults()


@pytest.mark.slow
@pytest.mark.parametrize("canary", CANARIES, ids=str)
def test_every_canary_dies_of_what_is_broken(canary: Canary) -> None:
    assert canary.dies_as_known(), (
        "the history of deaths.json does not show it; look for one with make simulate DEATHS=1"
    )


@pytest.mark.slow
def test_fencing_at_take_over_is_a_second_line() -> None:
    """A lane's own init fences the producer before it, so nothing breaks without this; transactions end later."""
    broken = [
        verdict.seed for verdict in (play(seed, FencesNobody) for seed in range(50)) if verdict.violations
    ]
    assert not broken


@pytest.mark.slow
def test_the_order_of_log_and_waiting_events_is_of_no_matter() -> None:
    """A plan names the version of what waits, and both are there before the batch counts as done."""

    class Turned(Instance):
        batches_type = WaitingBeforeLog

    verdicts = (play_from_database(seed, Turned) for seed in range(50))
    assert not [verdict.seed for verdict in verdicts if verdict.violations]
