"""The state comes back older than its outputs, or not at all: it is brought forward, and nothing is sent twice."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.faults.conftest import KillScenarios
from tests.kit.kill_scenario import KillScenario
from tests.kit.power import lose_power, noting
from tests.kit.process import Process
from tests.kit.real import await_condition

pytestmark = [pytest.mark.timeout(900), pytest.mark.faults]
BROUGHT = "state_was_brought_forward"


def batches(process: Process, count: int) -> None:
    """Let a service run so many batches more."""
    seen = len(process.events("batch"))
    await_condition(
        lambda: len(process.events("batch")) >= seen + count or process.popen.poll() is not None, "batches"
    )
    assert process.popen.poll() is None, process.lines[-5:]


def completes(tried: KillScenario) -> None:
    process = tried.recovers()
    assert process.end() == 0, process.lines[-5:]
    assert process.says(BROUGHT), process.lines[-5:]


def restore(backup: Path, state: Path) -> None:
    shutil.rmtree(state)
    shutil.copytree(backup, state)


def test_a_state_that_was_copied_while_the_service_stood_still_is_restored(
    kill_scenario: KillScenarios,
) -> None:
    tried = kill_scenario(rows=3_000, rate_limit=200)
    state, backup = tried.folder / "state", tried.folder / "backup"
    with tried.live():
        process = tried.start()
        batches(process, 3)
        assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
        shutil.copytree(state, backup)
        process = tried.start()
        batches(process, 6)
        process.kill()
        process.end()
        restore(backup, state)
        completes(tried)
    assert tried.judge().snapshot_rows > 0


def test_a_state_that_was_copied_while_the_service_ran_is_restored(kill_scenario: KillScenarios) -> None:
    """One table after another, the journal first."""
    tried = kill_scenario(rows=3_000, rate_limit=200)
    state, backup = tried.folder / "state", tried.folder / "backup"
    with tried.live():
        process = tried.start()
        batches(process, 3)
        for table in ("journal", "progress", "replica/log", "replica/base"):
            shutil.copytree(state / table, backup / table)
            batches(process, 2)
        process.kill()
        process.end()
        restore(backup, state)
        completes(tried)
    assert tried.judge().snapshot_rows > 0


def test_a_state_that_is_lost_is_made_anew(kill_scenario: KillScenarios) -> None:
    tried = kill_scenario(rows=3_000, rate_limit=200)
    with tried.live():
        process = tried.start()
        batches(process, 5)
        process.kill()
        process.end()
        shutil.rmtree(tried.folder / "state")
        process = tried.start(until_complete=True, rebuild=True)
        assert process.end() == 0, process.lines[-5:]
        assert process.says(BROUGHT), process.lines[-5:]
    assert tried.judge().snapshot_rows > 0


def test_the_power_fails_again_and_again(kill_scenario: KillScenarios, tmp_path: Path) -> None:
    """Files are as they were at their last sync, and names that were not synced are gone; nothing was relied on."""
    state, notes = tmp_path / "state", tmp_path / "notes"
    tried = kill_scenario(rows=120_000, rate_limit=2_000, environment=noting(state, notes))
    with tried.live():
        for failpoint in ("compacted", "lane-committed@4", "replicated@3", "settled@2", "journaled@3"):
            tried.falls(f"{failpoint}:kill")
            assert lose_power(state, notes) > 0, failpoint
        for seconds in (21.0, 24.0):
            tried.killed_after(seconds)
            lose_power(state, notes)
        tried.completes()
    assert tried.judge().snapshot_rows > 0


def test_without_syncs_nothing_is_sure_to_be_left(kill_scenario: KillScenarios, tmp_path: Path) -> None:
    """The notes of the test above tell of syncs, and of nothing else."""
    state, notes = tmp_path / "state", tmp_path / "notes"
    tried = kill_scenario(environment=noting(state, notes), config={"sync_state": False})
    with tried.live():
        tried.falls("replicated@3:kill")
    assert lose_power(state, notes) == 0
