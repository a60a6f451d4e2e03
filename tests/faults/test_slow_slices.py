"""Slices that take longer than the broker allows a transaction: the batch goes on without them."""

from __future__ import annotations

import pytest

from streaming.runtime.failpoints import Failpoint
from tests.faults.conftest import KillScenarios

pytestmark = pytest.mark.timeout(900)


@pytest.mark.faults
def test_slices_that_the_broker_s_timeout_ended_are_given_up_and_read_later(
    kill_scenario: KillScenarios,
) -> None:
    """Both lanes sleep for two minutes in their transactions, which the broker ends after one."""
    tried = kill_scenario(config={"lanes": 2})
    with tried.live():
        process = tried.start(f"{Failpoint.LANE_SENT_SNAPSHOT}@3:sleep", until_complete=True)
        tried.await_reached(process, Failpoint.LANE_SENT_SNAPSHOT)
        assert process.end() == 0, process.lines[-5:]
    assert [event["reason"] for event in process.events("plan_given_up")]
    assert not process.events("plan_gets_more_time")
    assert tried.judge().snapshot_rows > 0
