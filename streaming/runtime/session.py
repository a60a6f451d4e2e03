"""The Spark session of the service: its JVM, its secrets, its end.

What the JVM says goes to a log file; the terminal belongs to the command. The JVM reads its standard input, a pipe
from this process, and leaves when the pipe closes: a killed driver leaves no JVM behind, and a JVM that leaves takes
its Python workers along in the same way.

A function given to `foreachBatch` must raise short messages only: Spark matches them with a regular
expression that recurses once per character, and a long one ended the stream's thread with a
StackOverflowError in place of the cause. Threads get a larger stack here, but the rule stays.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, Row, SparkSession

from schemas.errors import Code, EnvironmentProblem
from streaming.runtime.java.class_archive import class_archive, recording, sharing
from streaming.runtime.java.home import java
from streaming.runtime.java.jars import JarSet, ensure, spark_home
from streaming.runtime.leftovers import Scratch, scratch, sweep_logs, sweep_rows
from streaming.runtime.paths import log_folder
from streaming.runtime.spark_settings import SparkSettings, configuration, java_options

Result = TypeVar("Result")

JVM_GONE = (Py4JError, OSError)
"""What calls to the JVM raise once it is gone."""

MAINTENANCE_POOL = "maintenance"
"""The scheduler pool for jobs that lanes must not wait for."""

_JVM_GRACE_S, _DUMP_GRACE_S = 20.0, 120.0


_AUTHENTICATE_SECRET = "spark.authenticate.secret"  # noqa: S105 (a setting's name)
_SSL_PASSWORDS = (
    "_SPARK_SSL_RPC_KEY_PASSWORD",
    "_SPARK_SSL_RPC_KEY_STORE_PASSWORD",
    "_SPARK_SSL_RPC_PRIVATE_KEY_PASSWORD",
    "_SPARK_SSL_RPC_TRUST_STORE_PASSWORD",
)
"""Environment variables that Spark 4 reads (SecurityManager.scala, SSLOptions.scala) and gives to its executors."""


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
        options = [*java_options(log, own), *([shared] if settings.is_one_process else [])]
        conf = configuration(settings, jars, options, own.folder)
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


def is_alive(session: SparkSession) -> bool:
    """Whether the session's JVM answers."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except JVM_GONE:
        return False


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
    os.environ["PYSPARK_PYTHON"] = settings.python or sys.executable
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
        except Py4JJavaError as cause:
            reason = cause.java_exception.getClass().getSimpleName()
            _end_jvm(_JVM_GRACE_S)
            raise EnvironmentProblem(
                Code.SPARK_FAILED,
                found=f"a driver that did not start: {reason}",
                expected="a Spark driver",
                next_step="read the end of the file; often the master does not answer, or a setting is not right",
                where=str(log),
            ) from cause
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
    with suppress(*JVM_GONE):
        session.stop()
    _end_jvm(grace_s)


def _end_jvm(grace_s: float) -> None:
    gateway = SparkContext._gateway
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
