"""The Spark session of the service: its JVM, its settings, its end.

A setting stands here only for a reason, which is beside it. What the JVM says goes to a log file; the
terminal belongs to the command. The JVM reads its standard input, a pipe from this process, and leaves
when the pipe closes: a killed driver leaves no JVM behind, and a JVM that leaves takes its Python workers
along in the same way.

A function given to `foreachBatch` must raise short messages only: Spark matches them with a regular
expression that recurses once per character, and a long one ended the stream's thread with a
StackOverflowError in place of the cause. Threads get a larger stack here, but the rule stays.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, Row, SparkSession

from schemas.avro.limits import MAX_VALUE_BYTES
from schemas.errors import Code, EnvironmentProblem
from schemas.settings.security import Secret
from streaming.kafka.security import JAVA_SECRETS
from streaming.runtime.java.class_archive import class_archive, recording, sharing
from streaming.runtime.java.home import java, log_options
from streaming.runtime.java.jars import JarSet, ensure, spark_home
from streaming.runtime.leftovers import Scratch, scratch, sweep_logs, sweep_rows
from streaming.runtime.paths import log_folder

Result = TypeVar("Result")

JVM_GONE = (Py4JError, OSError)
"""What calls to the JVM raise once it is gone."""

MAINTENANCE_POOL = "maintenance"
"""The scheduler pool for jobs that lanes must not wait for."""

_TASK_JAVA_OPTIONS = (
    "-Duser.timezone=UTC",
    # A broken length in a record would make Avro allocate gigabytes before it finds the record too short, and a JVM
    # without memory ends.
    f"-Dorg.apache.avro.limits.string.maxLength={MAX_VALUE_BYTES}",
    f"-Dorg.apache.avro.limits.bytes.maxLength={MAX_VALUE_BYTES}",
)

_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"

ARROW_BATCH_BYTES = 16 << 20
"""Of the rows that come to a Python worker at a time; one that is larger comes alone."""

_JVM_GRACE_S, _DUMP_GRACE_S = 20.0, 120.0


_AUTHENTICATE_SECRET = "spark.authenticate.secret"  # noqa: S105 (a setting's name)
_SSL_PASSWORDS = (
    "_SPARK_SSL_RPC_KEY_PASSWORD",
    "_SPARK_SSL_RPC_KEY_STORE_PASSWORD",
    "_SPARK_SSL_RPC_PRIVATE_KEY_PASSWORD",
    "_SPARK_SSL_RPC_TRUST_STORE_PASSWORD",
)
"""Environment variables that Spark 4 reads (SecurityManager.scala, SSLOptions.scala) and gives to its executors."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings of a session that a user can change.

    `cores` counts task slots of a local master (default: the cores that this process may use) and is
    ignored when `master` is given. `memory` is the JVM's heap, as in `2g`. `log` is the JVM's log file,
    by default a new one in `log_folder()`. `encrypt_spills`: what Spark writes to its local folder is encrypted.
    `record_classes` writes the class archive when the session ends, which takes some seconds more.
    `extra` has the last word over every setting below. `authenticate_secret` and `ssl_password` are Spark's own
    secrets, of `spark.authenticate` and `spark.ssl.rpc`.
    """

    app: str = "arrangement-backfill"
    cores: int | None = None
    master: str | None = None
    memory: str = "2g"
    log: Path | None = None
    encrypt_spills: bool = False
    record_classes: bool = False
    extra: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    authenticate_secret: Secret | None = None
    ssl_password: Secret | None = None

    @property
    def is_one_process(self) -> bool:
        """Whether the driver's JVM runs the tasks too."""
        return self._kind == "local"

    @property
    def is_one_machine(self) -> bool:
        """Whether no other machine takes part; `local-cluster` has executors of their own on this one."""
        return self._kind in ("local", "local-cluster")

    @property
    def _kind(self) -> str:
        return (self.master or "local").split("[")[0]


@contextmanager
def spark_session(settings: SparkSettings | None = None) -> Iterator[SparkSession]:
    """A session for the length of the block; afterwards its JVM is gone.

    One process has one at a time, and streaming queries have to be stopped before the block ends.

    Raises:
        EnvironmentProblem: JAVA_MISSING, DEPENDENCY_MISMATCH, or SPARK_FAILED when the JVM does not come up.
    """
    settings = settings or SparkSettings()
    java()
    jars = ensure(JarSet.SPARK)
    log = settings.log or log_folder() / f"spark-{os.getpid()}.log"
    sweep_logs(log_folder())
    sweep_rows()
    archive = class_archive(jars)
    with (
        recording(archive) if settings.record_classes else nullcontext(sharing(archive)) as shared,
        scratch() as own,
    ):
        # Whose jars come to Spark one by one has another class path than the one that was recorded.
        java_options = [*_java_options(log, own), *([shared] if settings.is_one_process else [])]
        conf = configuration(settings, jars, java_options, own.folder)
        with _secrets_in_environment(settings):
            session = _start(SparkConf(loadDefaults=False).setAll(list(conf.items())), log, own, settings)
        try:
            yield session
        finally:
            _stop(session, _DUMP_GRACE_S if settings.record_classes else _JVM_GRACE_S)


@contextmanager
def spark_starting(settings: SparkSettings | None = None) -> Iterator[Callable[[], SparkSession]]:
    """As `spark_session`, but the block begins at once: it gets a function that blocks until the session is there.

    A JVM and Spark in it take seconds, in which most of what comes next can be imported and asked of the broker. The
    call raises as `spark_session`, each time.
    """
    with ExitStack() as stack, ThreadPoolExecutor(1, thread_name_prefix="spark-start") as thread:
        started = thread.submit(stack.enter_context, spark_session(settings))
        try:
            yield started.result
        finally:
            started.exception()  # whatever it became, it has to be there before it can be closed


_FIXED: Mapping[str, str] = {
    # Nothing of ours listens to the outside.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without it every Python task loses 0.3 s, and the first ones two seconds more.
    "spark.python.daemon.module": "streaming.runtime.worker_daemon",
    # Tasks of queries and plain ones have the same Python workers, unless their environments differ: by this variable.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # A worker that dies says where.
    "spark.python.worker.faulthandler.enabled": "true",
    # Compaction runs beside the batches and must not make them wait for its whole job.
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": Path(__file__).with_name("fairscheduler.xml").as_uri(),
    # A speculative copy of a lane would fence the transaction of the first. And a lane that failed is run again by the
    # driver, which first sees whose turn it is.
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    # Executors with a JVM of their own decode as well.
    "spark.executor.extraJavaOptions": " ".join(_TASK_JAVA_OPTIONS),
    # Replanning between stages costs more than it saves on plans of two stages.
    "spark.sql.adaptive.enabled": "false",
    # HotSpot never compiles a method of more than 8,000 bytes: with rows of JSON a batch took twice as long. Above the
    # limit Spark writes one small method an expression in place of one for the whole stage.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Above the threshold Spark lists the files of a scan with a job of its own.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # What comes to a Python worker at a time: 10,000 records by default, whatever they weigh. Ten thousand of a
    # megabyte would be more than Arrow's buffers, the JVM's direct memory and the worker can hold.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES),
    "spark.sql.session.timeZone": "UTC",
    # Options of the Kafka source hold secrets. What prints options redacts these.
    "spark.redaction.regex": JAVA_SECRETS,
    "spark.sql.redaction.options.regex": JAVA_SECRETS,
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Without Hadoop's native library Spark's default way to write a checkpoint forks a `chmod` for each file and a
    # `readlink` for each look at one: 38 ms a file, two files a micro-batch. This one takes 5 ms.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
    # A stream whose thread hangs must not keep the process from ending.
    "spark.sql.streaming.stopTimeout": "5s",
    # Progress objects of the last batches are kept in the driver's heap.
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    # Likewise what an unused UI would show of past jobs: a service runs thousands an hour.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
}


def configuration(
    settings: SparkSettings, jars: tuple[Path, ...], java_options: list[str], scratch: str
) -> dict[str, str]:
    """Every setting that the session starts with, by Spark's names."""
    cores = settings.cores or len(os.sched_getaffinity(0))
    return {
        **_FIXED,
        "spark.app.name": settings.app,
        "spark.master": settings.master or f"local[{cores}]",
        "spark.driver.memory": settings.memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        **_class_path(settings, jars),
        **(_ONE_MACHINE if settings.is_one_machine else {}),
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.shuffle.partitions": str(cores),
        # What may go to a disk (a task's closure among the broadcasts, when memory is short) may hold secrets, and goes
        # there under a key that only memory has.
        "spark.io.encryption.enabled": str(settings.encrypt_spills).lower(),
        # Delta's own bookkeeping: tables with a handful of log files, not with millions.
        "spark.databricks.delta.snapshotPartitions": str(cores),
        **settings.extra,
    }


_ONE_MACHINE: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""No host name has to resolve."""


def _class_path(settings: SparkSettings, jars: tuple[Path, ...]) -> dict[str, str]:
    if settings.is_one_process:
        # No other process needs them; in the driver's own class path they save 1.5 s of a start.
        return {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))}
    return {"spark.jars": ",".join(map(str, jars))}


def is_alive(session: SparkSession) -> bool:
    """Whether the session's JVM answers."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except JVM_GONE:
        return False


def _java_options(log: Path, own: Scratch) -> list[str]:
    # Spark and libraries leave folders and a copy of liblz4 in Java's folder when they are killed.
    return [*log_options(log), f"-Djava.io.tmpdir={own.folder}", "-Xss4m", *_TASK_JAVA_OPTIONS]


@contextmanager
def _secrets_in_environment(settings: SparkSettings) -> Iterator[None]:
    """Spark's own way for its secrets: settings would stand on the JVM's command line, for every user to read."""
    secrets = {}
    if settings.ssl_password is not None:
        secrets = dict.fromkeys(_SSL_PASSWORDS, settings.ssl_password.read())
    os.environ.update(secrets)
    try:
        yield
    finally:
        for name in secrets:
            del os.environ[name]


def _start(conf: SparkConf, log: Path, own: Scratch, settings: SparkSettings) -> SparkSession:
    # Workers have to be this Python, and the launcher has to be the pinned Spark, whatever else the
    # machine has.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(spark_home())
    # At debug it would log each command to the JVM, and with them the secrets among the options of a source.
    logging.getLogger("py4j").setLevel(logging.INFO)
    output = log.with_suffix(".out")
    with output.open("ab") as out:
        try:
            # Of a session of its own: a SIGTERM for the whole process group is for this process to answer.
            options = {"stdout": out, "stderr": out, "start_new_session": True, "pass_fds": (own.lock,)}
            gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
            if settings.authenticate_secret is not None:
                # Spark asks for it as a setting, which it hides from its executors' command lines. By the gateway it
                # comes to the JVM without one.
                conf.set(_AUTHENTICATE_SECRET, settings.authenticate_secret.read())
            context = SparkContext(conf=conf, gateway=gateway)
        except (PySparkRuntimeError, OSError) as cause:
            raise EnvironmentProblem(
                Code.SPARK_FAILED,
                found="a JVM that ended while it started",
                expected="a Spark driver",
                next_step="read the end of the file; often the memory asked for is not there",
                where=str(output),
            ) from cause
    # Otherwise a JVM that is gone shows here first, as a stack trace on standard error.
    context._accumulatorServer.handle_error = _ignore  # type: ignore[method-assign, assignment]
    return SparkSession(context)


def _ignore(*_: object) -> None:
    """The call to the JVM that fails next raises an error of ours."""


def _stop(session: SparkSession, grace_s: float) -> None:
    gateway = SparkContext._gateway
    with suppress(*JVM_GONE):
        session.stop()
    if gateway is None:
        return
    jvm: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    if jvm.stdin is not None:
        jvm.stdin.close()
    try:
        jvm.wait(grace_s)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
    # pyspark keeps the gateway for the life of the process; a later session may need another heap or log.
    SparkContext._gateway = None
    SparkContext._jvm = None


def collect(rows: DataFrame) -> list[Row]:
    """All rows, few as they are. Raises: as `run_job`."""
    return run_job(rows.collect)


def run_job(action: Callable[[], Result]) -> Result:
    """The result of a job.

    Raises: EnvironmentProblem(SPARK_FAILED) when the job failed: errors of Spark's planner come translated, those of
        its tasks as they are.
    """
    try:
        return action()
    except (PySparkException, Py4JJavaError) as error:
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        raise EnvironmentProblem(
            Code.SPARK_FAILED, found=f"a job that ended with {condition or type(error).__name__}"
        ) from error
