"""SIGKILL of a service whose lanes are tied to the upstream's partitions, and starts with others in between."""

from __future__ import annotations

import pytest

from streaming.runtime.failpoints import Failpoint
from tests.bench.rig import DECLARATION
from tests.faults.conftest import KillScenarios

pytestmark = pytest.mark.timeout(900)
TABLE = {"table": {**DECLARATION, "distribution": "upstream"}}
POINTS = [
    Failpoint.PLANNED,
    Failpoint.LANE_READ,
    Failpoint.LANE_SENT_SNAPSHOT,
    Failpoint.LANE_SENT,
    Failpoint.LANE_COMMITTED,
    Failpoint.REPLICATED,
]


@pytest.mark.faults
@pytest.mark.parametrize("batch", ["2", "4", "last"])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_in_a_batch_without_an_exchange(
    kill_scenario: KillScenarios, point: Failpoint, batch: str
) -> None:
    tried = kill_scenario(config=TABLE)
    with tried.live():
        tried.falls(f"{point}@{batch}:kill")
        tried.completes()
    report = tried.judge()
    assert (report.parts, report.vnode_count) == ("partitions", 4)
    assert report.snapshot_rows > 0


@pytest.mark.faults
def test_a_kill_before_and_after_the_lanes_become_fewer(kill_scenario: KillScenarios) -> None:
    """While the backfill is under way fewer lanes are refused, with a batch that is half done; then they are not."""
    tried = kill_scenario(config=TABLE)
    with tried.live():
        tried.falls(f"{Failpoint.LANE_COMMITTED}@4:kill")
        tried.declare(lanes=2)
        refused = tried.start()
        assert refused.end() == 2, refused.lines[-5:]
        assert any("RESCALE_REFUSED" in line for line in refused.lines)
        tried.declare(lanes=4)
        tried.completes()
        tried.declare(lanes=2)
        tried.falls(f"{Failpoint.LANE_SENT}@3:kill")
        tried.completes()
    assert tried.judge().snapshot_rows > 0
