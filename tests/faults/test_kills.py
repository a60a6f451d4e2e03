"""SIGKILL of everything, between any two effects, in the first, a middle and the last batch of a backfill."""

from __future__ import annotations

import random

import pytest

from streaming.runtime.failpoints import Failpoint
from tests.faults.conftest import KillScenarios
from tests.kit.append_kills import AppendKillScenario

pytestmark = pytest.mark.timeout(900)
IN_A_BATCH = [
    point
    for point in Failpoint
    if point
    not in {
        Failpoint.TAKEN_OVER,
        Failpoint.FENCED,
        Failpoint.COPIED,
        Failpoint.WAITING_KEPT,  # of a table that starts from a database, see tests/connect
        Failpoint.COMPACTED,
        Failpoint.MERGED,
        Failpoint.BARRIER_SENT,
        Failpoint.BARRIER_COMMITTED,
    }
]


OF_A_TRANSACTION = {
    Failpoint.TOPICS_OPENED,
    Failpoint.LANE_OPENED,
    Failpoint.LANE_LOOKED,
    Failpoint.LANE_SENT_SNAPSHOT,
    Failpoint.LANE_SENT,
    Failpoint.LANE_COMMITTED,
}
"""The first batch has none of these: its end is where the job starts."""


@pytest.mark.faults
@pytest.mark.parametrize("batch", ["first", "4", "last"])
@pytest.mark.parametrize("point", IN_A_BATCH)
def test_a_kill_in_a_batch(kill_scenario: KillScenarios, point: Failpoint, batch: str) -> None:
    tried = kill_scenario()
    first = "2" if point in OF_A_TRANSACTION else "1"
    with tried.live():
        tried.falls(f"{point}@{first if batch == 'first' else batch}:kill")
        tried.completes()
    assert tried.judge().snapshot_rows > 0


@pytest.mark.faults
@pytest.mark.parametrize("point", [Failpoint.PLANNED, Failpoint.LANE_COMMITTED, Failpoint.REPLICATED])
def test_a_kill_in_a_batch_with_barriers_beside_the_data(
    kill_scenario: KillScenarios, point: Failpoint
) -> None:
    tried = kill_scenario(beside=True)
    with tried.live():
        tried.falls(f"{point}@4:kill")
        tried.completes()
    assert tried.judge().snapshot_rows > 0


@pytest.mark.faults
@pytest.mark.parametrize("point", [Failpoint.PLANNED, Failpoint.LANE_SENT, Failpoint.LANE_COMMITTED])
def test_a_kill_with_rows_without_identity(kill_scenario: KillScenarios, point: Failpoint) -> None:
    tried = kill_scenario(AppendKillScenario, rows=3_000, rate_limit=1_000)
    with tried.live():
        tried.falls(f"{point}@4:kill")
        tried.completes()
    assert tried.judge().snapshot_rows > 0


@pytest.mark.faults
@pytest.mark.parametrize("point", [Failpoint.JOURNALED, Failpoint.SENT])
def test_a_kill_in_a_batch_without_records(kill_scenario: KillScenarios, point: Failpoint) -> None:
    """Whose lanes are run by the service's own process, at its end and when it is done again."""
    tried = kill_scenario(rows=200, rate_limit=None, live_rate=0)
    tried.falls(f"{point}@12:kill")
    tried.completes()
    assert tried.judge().snapshot_rows > 0


@pytest.mark.faults
@pytest.mark.parametrize("point", [Failpoint.TAKEN_OVER, Failpoint.FENCED])
def test_a_kill_while_it_takes_over(kill_scenario: KillScenarios, point: Failpoint) -> None:
    tried = kill_scenario()
    with tried.live():
        tried.falls(f"{Failpoint.LANE_SENT}@2:kill")
        tried.falls(f"{point}:kill")
        tried.completes()
    tried.judge()


@pytest.mark.faults
@pytest.mark.parametrize(("count", "beside"), [(1, False), (7, False), (7, True)])
@pytest.mark.parametrize("point", [Failpoint.BARRIER_SENT, Failpoint.BARRIER_COMMITTED])
def test_a_kill_of_the_injector(
    kill_scenario: KillScenarios, point: Failpoint, count: int, beside: bool
) -> None:
    tried = kill_scenario(beside=beside)
    with tried.live():
        tried.falls(f"{point}@{count}:kill")
        tried.completes()
    tried.judge()


@pytest.mark.faults
def test_a_kill_between_the_compaction_and_the_log_that_follows_it(kill_scenario: KillScenarios) -> None:
    tried = kill_scenario(rows=120_000, rate_limit=None)
    with tried.live():
        tried.falls(f"{Failpoint.COMPACTED}:kill")
        tried.completes()
    tried.judge()


@pytest.mark.faults
@pytest.mark.parametrize("count", [1, 3])
def test_a_kill_between_a_merge_and_the_log_that_follows_it(kill_scenario: KillScenarios, count: int) -> None:
    tried = kill_scenario(rows=10_000)
    with tried.live():
        tried.falls(f"{Failpoint.MERGED}@{count}:kill")
        tried.completes()
    tried.judge()


@pytest.mark.faults
def test_kills_of_a_large_backfill_at_any_moment(kill_scenario: KillScenarios) -> None:
    seed = random.randrange(2**32)
    moments = random.Random(seed)
    tried = kill_scenario(rows=1_000_000, rate_limit=20_000, live_rate=2_000)
    with tried.live():
        for _ in range(5):
            tried.killed_after(moments.uniform(5, 60))
        tried.completes()
    assert tried.judge().snapshot_rows > 0, f"seed {seed}"


@pytest.mark.faults
def test_kills_in_a_row_each_in_another_place(kill_scenario: KillScenarios) -> None:
    tried = kill_scenario()
    with tried.live():
        for failpoint in ("lane-sent@2:kill", "replicated@2:kill"):
            tried.falls(failpoint)
        tried.completes()
    tried.judge()
