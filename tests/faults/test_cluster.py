"""Spark with executors of their own: nothing that a lane needs may be the driver's memory or files."""

from __future__ import annotations

from contextlib import suppress

import psutil
import pytest

from tests.faults.conftest import KillScenarios
from tests.kit.process import Process

pytestmark = pytest.mark.timeout(900)
CLUSTER = {"spark": {"master": "local-cluster[2,1,1024]", "settings": {"spark.executor.memory": "900m"}}}


def executors_of(process: Process) -> list[psutil.Process]:
    """The JVMs that tasks run in."""
    found = []
    for child in process.children():
        with suppress(psutil.NoSuchProcess):  # a worker that has just ended, a zombie say
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                found.append(child)
    return found


@pytest.mark.faults
def test_an_executor_dies_in_the_middle_of_a_batch(kill_scenario: KillScenarios) -> None:
    tried = kill_scenario(config=CLUSTER)
    with tried.live():
        process = tried.start("lane-sent@3:sleep", until_complete=True)
        tried.await_reached(process, "lane-sent")
        first, second = executors_of(process)
        assert "-Xmx900M" in first.cmdline()
        workers = [child for child in second.children(recursive=True) if "python" in child.name()]
        first.kill()
        for worker in workers[1:]:
            worker.kill()  # the failpoint holds it longer than the test wants to wait
        assert process.end() == 0, process.lines[-5:]
    assert tried.judge().snapshot_rows > 0
