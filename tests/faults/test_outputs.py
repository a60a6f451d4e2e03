"""SIGKILL of a service that writes other forms with barriers beside them, and of either one of two in a row."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from streaming.runtime.failpoints import Failpoint
from tests.faults.conftest import KillScenarios
from tests.kit.cascade_kills import CascadeKillScenario
from tests.kit.registry import FakeRegistry

pytestmark = [pytest.mark.timeout(900), pytest.mark.faults]
UPSERT: dict[str, Any] = {"format": "upsert"}
DEBEZIUM: dict[str, Any] = {"format": "debezium"}
REGISTERED: dict[str, Any] = {"encoding": "avro-registry"}
FORMS: dict[str, dict[str, Any]] = {
    "upsert": UPSERT,
    "upsert in avro": UPSERT | REGISTERED,
    "debezium": DEBEZIUM,
    "debezium in avro": DEBEZIUM | REGISTERED,
}
READ_AS: dict[str, dict[str, Any]] = {
    "upsert": UPSERT,
    "upsert in avro": UPSERT | REGISTERED,
    "debezium": DEBEZIUM | {"time": "isostring", "decimal": "string"},
}


@pytest.mark.parametrize(
    "point", [Failpoint.LANE_SENT_SNAPSHOT, Failpoint.LANE_SENT, Failpoint.LANE_COMMITTED]
)
@pytest.mark.parametrize("form", FORMS)
def test_a_kill_in_a_batch(
    kill_scenario: KillScenarios, registry: FakeRegistry, form: str, point: Failpoint
) -> None:
    tried = kill_scenario(job=FORMS[form], config={"registry": {"url": registry.url}})
    with tried.live():
        tried.falls(f"{point}@4:kill")
        tried.completes()
    assert tried.judge().snapshot_rows > 0


@pytest.mark.parametrize("read_as", READ_AS)
def test_kills_of_both_of_two_in_a_row(
    kill_scenario: KillScenarios, registry: FakeRegistry, read_as: str
) -> None:
    config = {"registry": {"url": registry.url}}
    first = kill_scenario(job=FORMS[read_as], config=config)
    with first.live():
        first.falls(f"{Failpoint.LANE_COMMITTED}@4:kill")
        running = first.recovers(until_complete=False)
        second = kill_scenario(
            CascadeKillScenario,
            folder=first.folder / "second",
            first=first,
            reads_as=READ_AS[read_as],
            job=DEBEZIUM,
            config=config,
        )
        second.falls(f"{Failpoint.LANE_COMMITTED}@4:kill")
        second.falls(f"{Failpoint.REPLICATED}@2:kill")
        reading = second.start()
        running.kill()
        assert running.end() == -9
        running = first.recovers(until_complete=False)
        assert reading.popen.poll() is None, reading.lines[-5:]
        assert reading.end(signal.SIGTERM) == 0, reading.lines[-5:]
        second.completes()
    assert running.end(signal.SIGTERM) == 0, running.lines[-5:]
    assert second.judge().snapshot_rows > 0
    assert first.judge().snapshot_rows > 0
