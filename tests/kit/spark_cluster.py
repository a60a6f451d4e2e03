"""Spark's own cluster manager on this machine: a master, and nodes that have Spark and a Python, and no package."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import psutil

from streaming.dev.broker import free_port
from streaming.runtime.java.jars import spark_home
from tests.kit.real import await_condition

PYTHON = os.path.realpath(sys.executable)
"""Of the machine, not of an environment with our packages."""
_SECRET = "of-the-cluster"
_PROPERTIES = f"""
spark.authenticate true
spark.authenticate.secret {_SECRET}
spark.network.crypto.enabled true
"""
_ROOT = Path(__file__).parents[2]


class SparkCluster:
    """A master, and nodes of one core each, whose processes ask each other for a secret."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = free_port()
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._properties = folder / "cluster.properties"
        self._properties.write_text(_PROPERTIES)
        (folder / "secret").write_text(_SECRET)
        (folder / "secret").chmod(0o600)
        self._master = self._start("Master", "master", "--port", str(self._port))
        await_condition(self._listens, "Spark's master")

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def section(self) -> dict[str, object]:
        """The section `spark` of a service on it."""
        return {
            "master": self.url,
            "python": PYTHON,
            "packages_file": str(packages(self.folder / "packages.tar")),
            "authenticate_secret_file": str(self.folder / "secret"),
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
        work = self.folder / f"work-{number}"
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
        self._nodes.append(self._start("Worker", f"node-{number}", *options, self.url))
        log = self.folder / f"node-{number}.log"
        await_condition(lambda: "Successfully registered with master" in log.read_text(), f"node {number}")
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
        for process in (*self._nodes, self._master):
            _kill(process)

    def _start(self, kind: str, name: str, *options: str) -> subprocess.Popen[bytes]:
        home = spark_home()
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind.lower()}.{kind}"]
        command += ["--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(self._properties)]
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environment = {**kept, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*command, *options], cwd=self.folder, env=environment, stdout=log, stderr=log
            )

    def _listens(self) -> bool:
        assert self._master.poll() is None, (self.folder / "master.log").read_text()[-2_000:]
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False


def packages(archive: Path) -> Path:
    """What `pip install --target` would put into a folder, without Spark's jars, in an archive."""
    installed = spark_home().parent
    with tarfile.open(archive, "w") as out:
        out.add(installed, ".", filter=_without_jars)
        for room in ("schemas", "state", "streaming"):
            out.add(_ROOT / room, room, filter=_without_jars)
    return archive


def _without_jars(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    left_out = "pyspark/jars" in member.name or member.name.endswith(("__pycache__", ".pth"))
    return None if left_out else member


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.wait()
