"""The JVM of Spark: its archive of classes, its start, as Spark's own launcher would do it, and its workers' daemon."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from schemas.errors import Code, EnvironmentProblem
from streaming.runtime.java.jars import class_archive, java, recording, spark_home
from streaming.runtime.java.spark_jvm import command_line, started_jvm
from streaming.runtime.spark_settings import SparkSettings
from streaming.runtime.worker_daemon import drop_archives, without_delay


def test_another_jar_or_a_changed_one_asks_for_another_archive(tmp_path: Path) -> None:
    one, other = tmp_path / "one.jar", tmp_path / "other.jar"
    for jar in (one, other):
        jar.write_bytes(b"x")
    before = class_archive([one])
    assert class_archive([one]) == before
    assert class_archive([one, other]) != before
    os.utime(one, ns=(0, 0))
    assert class_archive([one]) != before


def test_what_a_jvm_wrote_that_did_not_come_to_its_end_is_no_archive(tmp_path: Path) -> None:
    archive, broker = (tmp_path / "share" / f"{kind}-1.jsa" for kind in ("classes", "broker"))
    with suppress(KeyError), recording(archive) as option:
        Path(option.partition("=")[2]).write_bytes(b"half")
        raise KeyError
    assert not archive.exists()
    with recording(archive) as option:
        Path(option.partition("=")[2]).write_bytes(b"whole")
    assert archive.read_bytes() == b"whole"
    for further in (broker, archive.with_name("classes-2.jsa")):
        with recording(further) as option:
            Path(option.partition("=")[2]).write_bytes(b"further")
    assert {file.name for file in archive.parent.iterdir()} == {"classes-2.jsa", "broker-1.jsa"}


_CONF = {
    "spark.master": "local[1]",
    "spark.driver.memory": "512m",
    "spark.driver.defaultJavaOptions": "-Dfirst=1",
    "spark.driver.extraJavaOptions": "-Dsecond='a b' -Xss4m",
    "spark.driver.extraClassPath": "/jars/a.jar:/jars/b.jar",
    "spark.redaction.regex": "(?i)secret|token",
}
_ONLY_HIVE = "hive-jackson/*"
"""Spark's default for a metastore of Hive, which is a folder of the distribution that pyspark has not got."""


def test_the_command_line_is_that_of_sparks_launcher(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_SUBMIT_OPTS": "-Dzero=0 -XX:TieredStopAtLevel=1",
        "HADOOP_CONF_DIR": "/etc/hadoop",
    }
    settings = [part for name, value in _CONF.items() for part in ("--conf", f"{name}={value}")]
    launcher = [str(java()), "-cp", f"{spark_home()}/jars/*", "org.apache.spark.launcher.Main"]
    done = subprocess.run(
        [*launcher, "org.apache.spark.deploy.SparkSubmit", *settings, "pyspark-shell"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert _plain(command_line(_CONF, environment)) == _plain(done.stdout.strip().strip("\0").split("\0"))


def _plain(command: list[str]) -> list[str]:
    """Without the program's path, with a class path of what is there, and the settings, a pair each, in one order."""
    program, option, class_path, *rest = command
    assert Path(program).name == "java"
    entries = [entry.rstrip("/") for entry in class_path.split(":") if entry != _ONLY_HIVE]
    settings = rest.index("--conf")
    return [option, *entries, *rest[:settings], *sorted(rest[settings:-1]), rest[-1]]


def test_a_jvm_that_does_not_start_is_an_error_that_names_what_it_printed(tmp_path: Path) -> None:
    settings = SparkSettings(memory="nonsense", log=tmp_path / "spark.log")
    with (
        started_jvm(settings) as jvm,
        pytest.raises(EnvironmentProblem, match="ended while it started") as failure,
    ):
        jvm.gateway()
    assert failure.value.code is Code.SPARK_FAILED
    assert "Invalid maximum heap size" in Path(failure.value.where or "").read_text()


def test_a_jvm_without_a_session_is_gone_with_its_block(tmp_path: Path) -> None:
    with started_jvm(SparkSettings(memory="256m", log=tmp_path / "spark.log")) as jvm:
        assert jvm.process.poll() is None
    assert jvm.process.poll() is not None


CONVERSATION = 50


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="this system has no such state")
def test_a_task_begins_on_a_socket_that_acknowledges_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()

    def is_prompt() -> bool:
        return bool(near.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))

    with near, far:
        for _ in range(CONVERSATION):  # from which Linux concludes that acknowledgements may wait for answers
            far.sendall(b"?")
            assert near.recv(1) == b"?"
            near.sendall(b"!")
            assert far.recv(1) == b"!"
        assert not is_prompt()
        seen: list[tuple[bool, bool]] = []

        def work(connection: socket.socket, authenticated: bool) -> int:
            seen.append((is_prompt(), authenticated))
            return 3

        assert without_delay(work)(near, True) == 3
    assert seen == [(True, True)]


def test_archives_leave_the_path_with_what_python_remembers_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/lib", "/a/pyspark.zip", "/b/spark-core.jar"])
    monkeypatch.setattr(sys, "path_importer_cache", {"/lib": None, "/a/pyspark.zip": None})
    drop_archives()
    assert (sys.path, list(sys.path_importer_cache)) == (["/lib"], ["/lib"])
