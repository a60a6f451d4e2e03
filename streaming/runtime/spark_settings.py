"""The settings that the Spark session starts with. One stands here only for a reason, which is beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from schemas.settings.security import Secret
from streaming.kafka.security import JAVA_SECRETS
from streaming.runtime.java.jars import log_options
from streaming.runtime.paths import APPLICATION, Scratch

_TIME_ZONE = "-Duser.timezone=UTC"

_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"

_SSL_PASSWORDS = (
    "_SPARK_SSL_RPC_KEY_PASSWORD",
    "_SPARK_SSL_RPC_KEY_STORE_PASSWORD",
    "_SPARK_SSL_RPC_PRIVATE_KEY_PASSWORD",
    "_SPARK_SSL_RPC_TRUST_STORE_PASSWORD",
)
"""Environment variables that Spark 4 reads (SecurityManager.scala, SSLOptions.scala) and gives to its executors."""

ARROW_BATCH_BYTES = 16 << 20
"""Of the rows that come to a Python worker at a time; one that is larger comes alone."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings of a session that a user can change.

    `cores` counts task slots of a local master (default: the cores that this process may use) and is
    ignored when `master` is given. `memory` is the JVM's heap, as in `2g`. `log` is the JVM's log file,
    by default a new one in `log_folder()`. `encrypt_spills`: what Spark writes to its local folder is encrypted.
    `record_classes` writes the class archive when the session ends, which takes some seconds more.
    `extra` has the last word over every setting below. `worker_daemon` is the module that workers are forked from.
    `python` is the executors', by default this process's own, and `packages` an archive with what they import.
    `authenticate_secret` and `ssl_password` are Spark's own secrets, of `spark.authenticate` and `spark.ssl.rpc`.
    """

    cores: int | None = None
    master: str | None = None
    memory: str = "2g"
    log: Path | None = None
    encrypt_spills: bool = False
    record_classes: bool = False
    extra: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    worker_daemon: str = "streaming.runtime.worker_daemon"
    python: str | None = None
    packages: Path | None = None
    authenticate_secret: Secret | None = None
    ssl_password: Secret | None = None

    def secrets_in_environment(self) -> dict[str, str]:
        """Variables for Spark's secrets, which as settings would show on the JVM's command line to all users."""
        return {} if self.ssl_password is None else dict.fromkeys(_SSL_PASSWORDS, self.ssl_password.read())

    @property
    def is_one_process(self) -> bool:
        """True if the driver's JVM runs the tasks too."""
        return self._kind == "local"

    @property
    def is_one_machine(self) -> bool:
        """True without other machines; `local-cluster` has executors of their own on this one."""
        return self._kind in ("local", "local-cluster")

    @property
    def _kind(self) -> str:
        return (self.master or "local").split("[")[0]


_FIXED: Mapping[str, str] = {
    # Nothing of ours listens to the outside.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
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
    "spark.executor.extraJavaOptions": _TIME_ZONE,
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
        "spark.app.name": APPLICATION,
        # Without it every Python task loses 0.3 s, and the first ones two seconds more.
        "spark.python.daemon.module": settings.worker_daemon,
        "spark.master": settings.master or f"local[{cores}]",
        "spark.driver.memory": settings.memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        **_class_path(settings, jars),
        **_packages(settings),
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


_SECOND_COMPILER = tuple(
    f"-XX:Tier4{what}Threshold={10 * usual}"
    for what, usual in (
        ("Invocation", 5_000),
        ("MinInvocation", 600),
        ("Compile", 15_000),
        ("BackEdge", 40_000),
    )
)
"""HotSpot's second compiler, at ten times its defaults: it took as much CPU as all tasks of a build of a million rows.
What is hot for longer is compiled all the same. (OpenJDK: compilerDefinitions, compilation policy.)"""

_ONE_MACHINE: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""No host name has to resolve."""


def _class_path(settings: SparkSettings, jars: tuple[Path, ...]) -> dict[str, str]:
    if settings.is_one_process:
        # No other process needs them; in the driver's own class path they save 1.5 s of a start.
        return {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))}
    return {"spark.jars": ",".join(map(str, jars))}


def _packages(settings: SparkSettings) -> dict[str, str]:
    """Settings of the archive, which an executor unpacks in the working folder of its Python workers."""
    if settings.packages is None:
        return {}
    folder = "backfill-packages"
    return {
        "spark.archives": f"{settings.packages.as_uri()}#{folder}",
        "spark.executorEnv.PYTHONPATH": folder,
    }


def java_options(log: Path, own: Scratch) -> list[str]:
    """Java options of the driver's JVM, for a log file and a folder of its own."""
    # Spark and libraries leave folders and a copy of liblz4 in Java's folder when they are killed.
    return [*log_options(log), f"-Djava.io.tmpdir={own.folder}", "-Xss4m", _TIME_ZONE, *_SECOND_COMPILER]
