"""Spark's own cluster manager on this machine: a master, and nodes with Spark and a Python, and no package of ours.

For tests and the bench. Its processes listen on loopback only, and ask each other for a secret.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

import schemas
import state
import streaming
from schemas.errors import Code, EnvironmentProblem
from streaming.broker.embedded import free_port
from streaming.runtime.java.jars import spark_home

PYTHON = os.path.realpath(sys.executable)
"""Of the machine, not of an environment with our packages."""
_SECRET = "of-the-cluster"
_PROPERTIES = f"""
spark.authenticate true
spark.authenticate.secret {_SECRET}
spark.network.crypto.enabled true
"""
_UP_WITHIN_S, _LOOK_S = 60.0, 0.05


@contextmanager
def spark_cluster(folder: Path, nodes: int) -> Iterator[SparkCluster]:
    """A master and so many nodes, in a folder that is there and empty; all of it is killed at the end."""
    cluster = SparkCluster(folder)
    try:
        for _ in range(nodes):
            cluster.start_node()
        yield cluster
    finally:
        cluster.close()


class SparkCluster:
    """A master, and nodes of one core each. `close` it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = free_port()
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._properties, self._secret = folder / "cluster.properties", folder / "secret"
        self._properties.write_text(_PROPERTIES, encoding="utf-8")
        self._secret.write_text(_SECRET, encoding="utf-8")
        self._secret.chmod(0o600)
        self._packages = packages(folder / "packages.tar")
        self._master = self._start(
            "Master", "master", "I have been elected leader", "--port", str(self._port)
        )

    def section(self) -> dict[str, object]:
        """The section `spark` of a service on it."""
        return {
            "master": self._url,
            "python": PYTHON,
            "packages_file": str(self._packages),
            "authenticate_secret_file": str(self._secret),
            "settings": {
                "spark.authenticate": True,
                "spark.network.crypto.enabled": True,
                "spark.executor.memory": "900m",
                "spark.driver.host": "127.0.0.1",
            },
        }

    def start_node(self) -> int:
        """A further node, that the master knows; returns its number."""
        number = len(self._nodes)
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{number}"))
        registered = "Successfully registered with master"
        self._nodes.append(self._start("Worker", f"node-{number}", registered, *options, self._url))
        return number

    def kill_node(self, number: int) -> None:
        """SIGKILL for it and all that runs on it."""
        _kill(self._nodes[number])

    def executors(self, number: int) -> list[psutil.Process]:
        """The JVMs of a node that tasks run in."""
        found = []
        for child in psutil.Process(self._nodes[number].pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                    found.append(child)
        return found

    def close(self) -> None:
        """Kill all of it."""
        for process in (*self._nodes, self._master):
            _kill(process)

    @property
    def _url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def _start(self, kind: str, name: str, is_up: str, *options: str) -> subprocess.Popen[bytes]:
        """A process of the cluster, once its log says that it is up."""
        home, path = spark_home(), self.folder / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}"]
        command += ["--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(self._properties)]
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environment = {
            **kept,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with path.open("wb") as log:
            process = subprocess.Popen(
                [*command, *options], cwd=self.folder, env=environment, stdout=log, stderr=log
            )
        deadline, ticks = time.monotonic() + _UP_WITHIN_S, threading.Event()
        while is_up not in path.read_text(encoding="utf-8", errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                _kill(process)
                raise EnvironmentProblem(
                    Code.SPARK_FAILED, found=f"a {kind} that did not come up", where=str(path)
                )
            ticks.wait(_LOOK_S)
        return process


def packages(archive: Path) -> Path:
    """An archive of all that `pip install --target` would put into a folder, without Spark's jars."""
    with tarfile.open(archive, "w") as out:
        for entry in sorted(
            spark_home().parent.iterdir()
        ):  # one by one: Hadoop refuses an archive with an entry "."
            out.add(entry, entry.name, filter=_without_jars)
        for package in (schemas, state, streaming):
            out.add(Path(str(package.__file__)).parent, package.__name__, filter=_without_jars)
    return archive


def _without_jars(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    is_left_out = "pyspark/jars" in member.name or member.name.endswith(("__pycache__", ".pth"))
    return None if is_left_out else member


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.wait()
