"""Spark's authentication and encryption between a driver and executors of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from contextlib import suppress
from pathlib import Path
import psutil
from schemas.settings.security import Secret
from tests.kit.spark import spark_session
from streaming.runtime.spark_settings import SparkSettings

extra = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true", "spark.executor.memory": "900m"}
settings = SparkSettings(
    master="local-cluster[2,1,1024]",
    log=Path(sys.argv[2]),
    extra=extra,
    authenticate_secret=Secret("spark.authenticate_secret_file", file=Path(sys.argv[1])),
)
with spark_session(settings) as spark:
    rows = spark.range(1_000).repartition(4).groupBy().sum("id").collect()
    lines = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # ended since, or a zombie: Python workers come and go
            lines.append(" ".join(process.cmdline()))
    executors = [line for line in lines if "CoarseGrainedExecutorBackend" in line]
    print(rows[0][0], len(executors), any("planted" in line for line in lines))
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_executors_log_in_with_a_secret_that_no_command_line_and_no_log_shows(tmp_path: Path) -> None:
    secret, log = tmp_path / "secret", tmp_path / "spark.log"
    secret.write_text("planted-secret-of-the-cluster")
    secret.chmod(0o600)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(secret), str(log)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["499500", "2", "False"], done.stderr[-3_000:]
    written = [path.read_text(errors="replace") for path in tmp_path.glob("spark*")]
    assert written
    assert not any("planted" in text for text in written)
