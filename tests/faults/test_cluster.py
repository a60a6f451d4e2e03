"""Spark with executors of their own: nothing that a lane needs may be the driver's memory or files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.faults.conftest import KillScenarios
from tests.kit.kill_scenario import KillScenario
from tests.kit.object_store import new_bucket, versitygw
from tests.kit.process import Process
from tests.kit.real import await_condition
from tests.kit.spark_cluster import PYTHON, SparkCluster, spark_cluster

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


@pytest.mark.faults
def test_nodes_without_our_packages_come_and_go(
    kill_scenario: KillScenarios, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The packages come with the service. A node dies with all that runs on it, and another takes its place."""
    with spark_cluster(tmp_path_factory.mktemp("cluster"), nodes=2) as cluster:
        tried = kill_scenario(rows=6_000, config={"spark": cluster.section()})
        a_node_dies(tried, cluster)
    assert tried.judge().snapshot_rows > 0


@pytest.mark.faults
def test_a_node_dies_with_the_state_in_an_object_store(
    kill_scenario: KillScenarios, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    with (
        versitygw(objects) as variables,
        new_bucket(variables) as state,
        spark_cluster(tmp_path_factory.mktemp("cluster"), nodes=2) as cluster,
    ):
        tried = kill_scenario(rows=6_000, config={"spark": cluster.section(), "state": state})
        a_node_dies(tried, cluster)
        assert tried.judge().snapshot_rows > 0
        assert not (tmp_path / "state").exists()
    assert any(objects.rglob("*.parquet"))


def a_node_dies(tried: KillScenario, cluster: SparkCluster) -> None:
    first = 0
    with tried.live():
        process = tried.start(until_complete=True)
        await_condition(lambda: tried.epoch() > 0 or process.popen.poll() is not None, "the first barrier")
        assert process.popen.poll() is None, process.lines[-5:]
        assert {worker.exe() for worker in python_of(cluster, first)} == {PYTHON}
        cluster.kill_node(first)
        third = cluster.start_node()
        await_condition(lambda: bool(cluster.executors(third)), "an executor on the new node")
        assert process.end() == 0, process.lines[-5:]


def python_of(cluster: SparkCluster, node: int) -> list[psutil.Process]:
    """The processes of a node that lanes run in."""
    [executor] = cluster.executors(node)
    return [child for child in executor.children(recursive=True) if "python" in child.name()]
