"""The session runs Python where it should, reads and writes what it must, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.runtime.paths import sweep_scratch
from streaming.runtime.session import run_each
from streaming.runtime.spark_settings import ARROW_BATCH_BYTES
from tests.conftest import TopicFactory

pytestmark = pytest.mark.spark


def test_workers_run_this_python_and_hold_no_archive_on_their_path(spark: SparkSession) -> None:
    def report(slot: int, batches: Iterable[pa.RecordBatch]) -> tuple[str, list[str]]:
        import sys as workers_sys

        archives = [entry for entry in workers_sys.path if entry.endswith((".zip", ".jar"))]
        return workers_sys.executable, archives

    assert run_each(spark.range(1, numPartitions=1), report) == [(sys.executable, [])]


def test_a_worker_is_used_again_although_its_work_did_not_look_at_the_rows(spark: SparkSession) -> None:
    rows = spark.range(0, 2, 1, 2)
    # Tests before may have left more workers than one run takes; the one that rests longest comes first.
    workers = [pid for _ in range(20) for pid in run_each(rows, lambda slot, batches: os.getpid())]
    assert len(set(workers)) < len(workers) / 2


def test_what_a_worker_has_imported_is_not_looked_at_for_garbage_after_each_task(spark: SparkSession) -> None:
    rows = spark.range(0, 1, 1, 1)
    [(kept, idle_api)] = run_each(rows, lambda slot, batches: (gc.get_freeze_count(), len(gc.get_objects())))
    assert kept > 10 * idle_api


def test_wide_rows_come_to_a_worker_a_few_at_a_time_and_narrow_ones_many(spark: SparkSession) -> None:
    def sizes(slot: int, batches: Iterable[pa.RecordBatch]) -> list[tuple[int, int]]:
        return [(batch.num_rows, batch.nbytes) for batch in batches]

    def idle_api(width: int, rows: int) -> list[tuple[int, int]]:
        wide = spark.range(0, rows, 1, 1).select(F.lpad(F.col("id").cast("string"), width, "x").alias("v"))
        (found,) = run_each(wide, sizes)
        assert sum(count for count, _ in found) == rows
        return found

    assert all(size <= ARROW_BATCH_BYTES + 1_000_000 for _, size in idle_api(900_000, 60))
    assert max(count for count, _ in idle_api(100, 25_000)) == 10_000


def test_what_the_jvm_writes_to_its_temporary_folder_goes_with_the_session(spark: SparkSession) -> None:
    """A killed one left a copy of liblz4 and four folders behind each time."""
    jvm = spark._jvm
    assert jvm is not None
    file = Path(jvm.java.io.File.createTempFile("left", "over").getAbsolutePath())
    assert file.parent == Path(spark.conf.get("spark.local.dir") or "")
    assert file.parent.name.startswith("backfill-spark-")


def test_delta_tables_are_written_and_read_back(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    spark.range(10).write.format("delta").save(table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id >= 7")  # noqa: S608
    assert spark.read.format("delta").load(table).count() == 7


def test_a_topic_is_read(spark: SparkSession, bootstrap: str, topic: TopicFactory) -> None:
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(name, str(number).encode())
    assert producer.flush(30) == 0
    read = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", name)
        .load()
    )
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(20))


def test_sessions_count_time_in_utc(spark: SparkSession) -> None:
    [row] = spark.sql("SELECT CAST(TIMESTAMP '1970-01-01 00:00:00' AS LONG) AS zero").collect()
    assert row.zero == 0


_DRIVER = """
import sys
from pyspark import SparkContext
from tests.kit.spark import spark_session
from streaming.runtime.spark_settings import SparkSettings
from streaming.runtime.session import run_each
with spark_session(SparkSettings(cores=1, memory="512m")) as session:
    run_each(session.range(1, numPartitions=1), lambda slot, batches: None)
    print(SparkContext._gateway.proc.pid, flush=True)
    if sys.argv[1] == "wait":
        sys.stdin.read()
"""


_NO_DRIVER = """
from pathlib import Path
import sys
import psutil
from schemas.errors import EnvironmentProblem
from tests.kit.spark import spark_session
from streaming.runtime.spark_settings import SparkSettings
settings = SparkSettings(cores=1, memory="512m", log=Path(sys.argv[1]), extra={"spark.executor.memory": "1m"})
try:
    with spark_session(settings):
        pass
except EnvironmentProblem as problem:
    print(problem.code, problem.where, problem.found, len(psutil.Process().children()), sep=", ")
"""


def test_a_driver_that_does_not_start_is_an_error_that_names_its_log_and_leaves_no_jvm(
    tmp_path: Path,
) -> None:
    log = tmp_path / "spark.log"
    done = subprocess.run(
        [sys.executable, "-c", _NO_DRIVER, str(log)], capture_output=True, text=True, check=False
    )
    found = "a driver that did not start: SparkIllegalArgumentException"
    assert done.stdout.strip() == f"SPARK_FAILED, {log}, {found}, 0", done.stderr[-2_000:]
    assert "Error initializing SparkContext" in log.read_text()


def test_a_killed_driver_leaves_no_jvm_and_no_worker(tmp_path: Path) -> None:
    with _driver("wait", tmp_path) as driver:
        assert driver.stdout is not None
        jvm = psutil.Process(int(driver.stdout.readline()))
        family = [jvm, *jvm.children(recursive=True)]
        assert len(family) >= 2, "the JVM and its Python daemon"
        os.kill(driver.pid, signal.SIGKILL)
        _gone, alive = psutil.wait_procs(family, timeout=30)
        assert alive == []


def test_the_scratch_folder_of_a_killed_driver_is_swept_once_its_jvm_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with _driver("wait", tmp_path) as driver:
        assert driver.stdout is not None
        jvm = psutil.Process(int(driver.stdout.readline()))
        jvm.suspend()
        driver.kill()
        driver.wait()
        assert sweep_scratch() == 0, "a JVM that has yet to notice writes there"
        jvm.resume()
        jvm.wait(30)
    assert sweep_scratch() == 1
    assert list(tmp_path.glob("backfill-spark-*")) == []


def test_a_session_that_ended_leaves_no_jvm_and_a_clean_terminal(tmp_path: Path) -> None:
    with _driver("leave", tmp_path) as driver:
        printed, complaints = driver.communicate(timeout=120)
        assert driver.returncode == 0
        assert not psutil.pid_exists(int(printed))
        assert complaints == b""


_SIGNALLED = """
import os, signal, threading
from streaming.runtime.signals import EndBySignal
from streaming.runtime.spark_settings import SparkSettings
from tests.kit.spark import spark_session
with EndBySignal(), spark_session(SparkSettings(cores=1, memory="512m")) as session:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    session.sparkContext._jvm.java.lang.Thread.sleep(30_000)
print("ended")
"""


def test_a_signal_in_the_middle_of_a_call_to_the_jvm_ends_the_session_well(tmp_path: Path) -> None:
    done = _played(_SIGNALLED, tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


_ENDED_BENEATH = """
import threading
from py4j.protocol import Py4JError
from schemas.errors import BackfillError
from streaming.runtime.session import run_job
from streaming.runtime.spark_settings import SparkSettings
from tests.kit.spark import spark_session
found, begun = [], threading.Event()
def job(rows):
    begun.set()
    try:
        while True:
            run_job(rows.collect)
    except (BackfillError, Py4JError, OSError) as error:
        found.append(error)
with spark_session(SparkSettings(cores=1, memory="512m")) as session:
    thread = threading.Thread(target=job, args=(session.range(3),))
    thread.start()
    begun.wait()
thread.join(60)
print(len(found))
"""


def test_a_job_whose_session_ends_beneath_it_fails_with_an_error_that_is_foreseen(tmp_path: Path) -> None:
    done = _played(_ENDED_BENEATH, tmp_path)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr[-2_000:]
    assert "Exception in thread" not in done.stderr


def _played(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder, timeout=120
    )


def _driver(mode: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _DRIVER, mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
    )


_STREAM = """
import sys
from tests.kit.spark import spark_session
from streaming.runtime.spark_settings import SparkSettings
with spark_session(SparkSettings(cores=1, memory="512m")) as session:
    stream = session.readStream.text(sys.argv[1]).writeStream.foreachBatch(lambda rows, number: None)
    stream = stream.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True)
    stream.start().awaitTermination()
"""


def test_a_checkpoint_is_written_without_a_process_for_every_look_at_a_file(tmp_path: Path) -> None:
    looks, programs, upstream = tmp_path / "looks", tmp_path / "bin", tmp_path / "in"
    for folder in (programs, upstream):
        folder.mkdir()
    (upstream / "line").write_text("a\n")
    program = programs / "readlink"
    program.write_text(f'#!/bin/sh\necho "$@" >> {looks}\nexec {shutil.which("readlink")} "$@"\n')
    program.chmod(0o755)
    subprocess.run(
        [sys.executable, "-c", _STREAM, str(upstream), str(tmp_path / "checkpoint")],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        check=True,
        timeout=120,
    )
    assert (tmp_path / "checkpoint" / "commits" / "0").exists()
    assert not looks.exists(), looks.read_text()
