"""One process of several dies, or the broker goes: the service goes on by itself, or ends and is started again."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from schemas.errors import Code
from schemas.settings.config import load
from streaming.broker.embedded import EmbeddedBroker, free_port
from streaming.control.service_api import read_condition
from streaming.core.health import HealthCondition
from streaming.runtime.timing import repeated
from tests.faults.conftest import KillScenarios
from tests.kit.kill_scenario import KillScenario, spark_of, workers_of
from tests.kit.process import Process
from tests.kit.real import await_condition

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
ENDS_WITHIN_S = 30.0


def _more_batches(tried: KillScenario, process: Process) -> None:
    seen = tried.epoch()
    await_condition(lambda: tried.epoch() > seen or process.popen.poll() is not None, "another barrier")
    assert process.popen.poll() is None, process.lines[-5:]


@pytest.mark.parametrize("point", ["lane-read", "lane-sent", "lane-logged"])
def test_the_jvm_dies(kill_scenario: KillScenarios, point: str) -> None:
    tried = kill_scenario()
    with tried.live():
        process = tried.start(f"{point}@3:sleep")
        tried.await_reached(process, point)
        spark_of(process).kill()
        assert process.end() == 7, process.lines[-5:]
        tried.completes()
    tried.judge()


@pytest.mark.parametrize("point", ["journaled", "lane-sent", "replicated"])
def test_the_driver_dies_and_takes_all_that_it_started_with_it(
    kill_scenario: KillScenarios, point: str
) -> None:
    tried = kill_scenario()
    with tried.live():
        process = tried.start(f"{point}@3:sleep")
        tried.await_reached(process, point)
        children = process.children()
        process.popen.kill()
        _, alive = psutil.wait_procs(children, timeout=ENDS_WITHIN_S)
        assert not alive, alive
        tried.completes()
    tried.judge()


@pytest.mark.parametrize("point", ["lane-opened", "lane-sent", "lane-committed"])
def test_a_worker_dies_and_the_service_goes_on(kill_scenario: KillScenarios, point: str) -> None:
    tried = kill_scenario()
    with tried.live():
        process = tried.start(f"{point}@3:sleep", until_complete=True)
        tried.await_reached(process, point)
        for worker in workers_of(process)[1:]:
            worker.kill()
        assert process.end() == 0, process.lines[-5:]
    tried.judge()


@contextmanager
def shown(process: Process, config: Path) -> Iterator[set[tuple[str, str | None]]]:
    """Conditions and codes that the API, `backfill status` and the log show for the length of the block."""
    http, seen = load(config).http, set[tuple[str, str | None]]()

    def look() -> bool:
        answer = read_condition(http)
        if answer is not None:
            seen.add((answer.condition, None if answer.reason is None else re.split(r"\W", answer.reason)[0]))
        return True

    logged = len(process.events("condition"))
    with repeated(look, 0.5, name="looks"):
        yield seen
    seen |= {(line["is_now"], line.get("code")) for line in process.events("condition")[logged:]}


@pytest.mark.parametrize("away_s", [0, 120])
def test_the_broker_dies_and_comes_back(
    kill_scenario: KillScenarios, broker: EmbeddedBroker, away_s: float
) -> None:
    """For as long as it explains that nothing comes out, nothing else is named."""
    listen = {"listen": f"127.0.0.1:{free_port()}"}
    tried = kill_scenario(rows=2_000, rate_limit=100, config={"http": listen})
    process = tried.start()
    await_condition(lambda: len(process.events("batch")) > 3 or process.popen.poll() is not None, "batches")
    with shown(process, tried.file) as seen:
        broker.kill()
        time.sleep(away_s)  # how long it is away is the subject
        broker.start()
        began = time.monotonic()
        _more_batches(tried, process)
        tried.recoveries_s.append(time.monotonic() - began)
        with tried.live():
            _more_batches(tried, process)
    named = (HealthCondition.DEGRADED, Code.BROKER_UNREACHABLE)
    assert seen <= {named, (HealthCondition.SERVING, None), (HealthCondition.CATCHING_UP, None)}, seen
    assert named in seen or not away_s
    assert not [line for line in process.lines if "NO_BARRIERS" in line or "NO_PROGRESS" in line]
    assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
    tried.completes()
    tried.judge()


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """For root as well: no file can be made in it, or deleted from it, for the length of the block."""
    change = shutil.which("chattr")
    if change is None or subprocess.run([change, "+i", str(folder)], check=False).returncode:
        pytest.skip("a file system or a user without immutable folders")
    try:
        yield
    finally:
        subprocess.run([change, "-i", str(folder)], check=True)


def test_a_base_that_cannot_be_written_delays_the_compaction_and_nothing_else(
    kill_scenario: KillScenarios,
) -> None:
    tried = kill_scenario(rows=120_000, rate_limit=20_000)
    with tried.live():
        tried.falls("taken-over:kill")  # by now there are tables
        with unwritable(tried.folder / "state" / "replica" / "base"):
            process = tried.start()

            def failures() -> list[dict[str, Any]]:
                return process.events("maintenance failed, to be tried again")

            await_condition(
                lambda: len(failures()) > 3 or process.popen.poll() is not None, "compactions that fail"
            )
            assert [(each["work"], each["again_in_s"]) for each in failures()][:4] == [
                ("compaction", 1.0),
                ("compaction", 2.0),
                ("compaction", 4.0),
                ("compaction", 8.0),
            ]
            _more_batches(tried, process)
            assert max(each["log_files"] for each in process.events("batch")) <= 200
            assert not process.says("compaction")
        process.await_event("compaction")
        _more_batches(tried, process)
        assert process.end(signal.SIGTERM) == 0, process.lines[-5:]
        tried.completes()
    tried.judge()


def test_a_paused_instance_finds_another_in_its_place(kill_scenario: KillScenarios) -> None:
    """Paused for longer than its transactions live, in the middle of one."""
    tried = kill_scenario(rows=2_000)
    with tried.live():
        first = tried.start("lane-sent@3:sleep")
        tried.await_reached(first, "lane-sent")
        paused = [psutil.Process(first.popen.pid), *first.children()]
        for process in paused:
            process.suspend()
        second = tried.recovers(until_complete=False)
        time.sleep(70)  # the transaction timeout is 60 s
        _more_batches(tried, second)
        for process in reversed(paused):
            process.resume()
        for worker in workers_of(first)[1:]:
            worker.kill()  # the failpoint holds it longer than the test wants to wait
        assert first.popen.wait(ENDS_WITHIN_S) == 3, first.lines[-5:]
        assert f"process {second.popen.pid}" in first.lines[-1]
        _more_batches(tried, second)
        assert second.end(signal.SIGTERM) == 0, second.lines[-5:]
        tried.completes()
    tried.judge()


@pytest.mark.parametrize("late_s", [0.0, 2.0, 8.0])
def test_of_two_instances_one_works(kill_scenario: KillScenarios, late_s: float) -> None:
    tried = kill_scenario(rows=2_000)
    with tried.live():
        one = tried.start()
        time.sleep(late_s)  # how far apart they are is the subject
        other = tried.start()
        await_condition(lambda: one.popen.poll() is not None or other.popen.poll() is not None, "one to end")
        loser, winner = (one, other) if one.popen.poll() is not None else (other, one)
        assert loser.popen.returncode == 3, loser.lines[-5:]
        _more_batches(tried, winner)
        assert winner.end(signal.SIGTERM) == 0, winner.lines[-5:]
        tried.completes()
    tried.judge()


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["process", "group"])
def test_sigterm_in_the_middle_of_a_batch_is_soon_over(
    kill_scenario: KillScenarios, send: Callable[[int, signal.Signals], None]
) -> None:
    tried = kill_scenario()
    with tried.live():
        process = tried.start()
        process.await_event("serving")
        _more_batches(tried, process)
        send(process.popen.pid, signal.SIGTERM)
        assert process.end() == 0, process.lines[-5:]
        assert process.events("stopped")[0]["open_batch"] == "none"
        assert process.wrote_lines_only(), process.lines[-5:]
        tried.completes()
    tried.judge()
