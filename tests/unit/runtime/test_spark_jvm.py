"""The JVM of Spark is started as Spark's own launcher would start it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from schemas.errors import Code, EnvironmentProblem
from streaming.runtime.java.jars import java, spark_home
from streaming.runtime.java.spark_jvm import command_line, started_jvm
from streaming.runtime.spark_settings import SparkSettings

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
