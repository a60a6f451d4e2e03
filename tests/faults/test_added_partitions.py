"""SIGKILL of a service whose upstream gains partitions under load, in the middle of a backfill."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.kafka.topics import create_topic
from streaming.runtime.failpoints import Failpoint
from tests.faults.conftest import KillScenarios
from tests.kit.real import await_condition

pytestmark = pytest.mark.timeout(900)
LOG = {"read": "topic", "output_partitions": None}
POINTS = [
    Failpoint.JOURNALED,
    Failpoint.TOPICS_OPENED,
    Failpoint.LANE_SENT,
    Failpoint.LANE_COMMITTED,
    Failpoint.SENT,
    Failpoint.REPLICATED,
]


@pytest.mark.faults
@pytest.mark.parametrize("job", [{}, LOG], ids=["table", "topic"])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_in_the_batch_that_takes_partitions_in(
    kill_scenario: KillScenarios, point: Failpoint, job: dict[str, Any]
) -> None:
    # One of the topic reads faster than it is written, else it would not come to its end.
    tried = kill_scenario(job=job, rate_limit=600 if job else 100)
    with tried.live():
        tried.falls(f"{Failpoint.LANE_SENT}@3:kill")
    create_topic(tried.kafka, tried.upstream, 6, gains=True)
    with tried.live():  # by a producer that knows them
        tried.falls(f"{point}@2:kill")
        tried.completes()
    assert tried.judge().snapshot_rows > 0


@pytest.mark.faults
@pytest.mark.parametrize("beside", [False, True])
def test_partitions_come_to_a_service_that_runs_and_is_killed_behind_them(
    kill_scenario: KillScenarios, beside: bool
) -> None:
    tried = kill_scenario(beside=beside, rate_limit=50)
    process = tried.start()
    with tried.live():
        await_condition(lambda: tried.epoch() > 0 or process.popen.poll() is not None, "a first barrier")
    create_topic(tried.kafka, tried.upstream, 6, gains=True)
    with tried.live():
        process.await_event("partitions_added")
        process.kill()
        tried.completes()
    assert tried.judge().snapshot_rows > 0
