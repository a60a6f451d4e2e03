"""The JVM of Spark's driver, started without Spark's scripts, and without pyspark, whose import goes on beside it.

`spark-submit` is two shells and a JVM that puts the command line together: half a second before the JVM that counts
begins. The command line here is the one that Spark's launcher makes of the same settings, which a test compares
(SparkSubmitCommandBuilder, AbstractCommandBuilder and JavaModuleOptions in org.apache.spark.launcher).
`spark-env.sh` is not read; the variables of Hadoop's and Spark's own configuration folders are.
"""

from __future__ import annotations

import os
import shlex
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import Code, EnvironmentProblem
from streaming.runtime.java.jars import JarSet, class_archive, ensure, java, recording, sharing, spark_home
from streaming.runtime.paths import Scratch, log_folder, scratch
from streaming.runtime.spark_settings import SparkSettings, configuration, java_options

_GRACE_S, _DUMP_GRACE_S = 20.0, 120.0
_LOOK_S = 0.02
_INT = struct.Struct(">i")
_SCALA = "2.13"

_OPENED = (
    *(
        f"java.base/java.{name}"
        for name in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util")
    ),
    *(f"java.base/java.util.{name}" for name in ("concurrent", "concurrent.atomic")),
    *(
        f"java.base/{name}"
        for name in ("jdk.internal.ref", "sun.nio.ch", "sun.nio.cs", "sun.security.action")
    ),
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
_NO_DERBY = "-Dderby.connection.requireAuthentication=false"


@dataclass
class SparkJvm:
    """A JVM that is there or comes up. Its log is `log`; its standard output is in the same folder.

    It ends when `end` is called, or its standard input closes: with this process.
    """

    process: subprocess.Popen[bytes]
    settings: SparkSettings
    conf: Mapping[str, str]
    log: Path
    scratch: Scratch
    _address: Path
    is_used: bool = False
    """True if it has a session, which has to be stopped first; without one it may be killed."""

    def gateway(self) -> tuple[int, str]:
        """Wait for the port and the secret of its gateway. Raises: EnvironmentProblem(SPARK_FAILED) if it ends."""
        while not self._address.exists():
            if self.process.poll() is not None:
                raise self.ended()
            time.sleep(_LOOK_S)
        content = self._address.read_bytes()
        (port,), (size,) = _INT.unpack_from(content), _INT.unpack_from(content, _INT.size)
        return port, content[2 * _INT.size :][:size].decode()

    def ended(self) -> EnvironmentProblem:
        """The error for a JVM that has ended by itself."""
        return EnvironmentProblem(
            Code.SPARK_FAILED,
            found="a JVM that ended while it started",
            expected="a Spark driver",
            next_step="read the end of the file; often the memory asked for is not there",
            where=str(_printed(self.log)),
        )

    def end(self) -> None:
        """End the JVM, by a kill if it does not end by itself. Idempotent."""
        if not self.is_used:
            self.process.kill()
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(_DUMP_GRACE_S if self.settings.record_classes else _GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def started_jvm(settings: SparkSettings) -> Iterator[SparkJvm]:
    """A JVM that comes up while the block runs; afterwards it is gone. One process has one at a time.

    Raises: EnvironmentProblem: JAVA_MISSING, DEPENDENCY_MISMATCH, or SPARK_FAILED when it can't be started.
    """
    jars = ensure(JarSet.SPARK)
    archive = class_archive(jars)
    with (
        recording(archive) if settings.record_classes else nullcontext(sharing(archive)) as shared,
        scratch() as own,
    ):
        log = settings.log or log_folder() / f"spark-{os.getpid()}.log"
        # Whose jars come to Spark one by one has another class path than the one that was recorded.
        options = [*java_options(log, own), *([shared] if settings.is_one_process else [])]
        jvm = _launched(settings, configuration(settings, jars, options, own.folder), log, own)
        try:
            yield jvm
        finally:
            jvm.end()


def _launched(settings: SparkSettings, conf: Mapping[str, str], log: Path, own: Scratch) -> SparkJvm:
    address = Path(own.folder, "gateway")
    environment = {
        **os.environ,
        **settings.secrets_in_environment(),
        **_environment(conf),
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address),
    }
    with _printed(log).open("ab") as out:
        try:
            process = subprocess.Popen(  # noqa: S603
                command_line(conf, environment),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=environment,
                # Of a session of its own: a signal for the whole process group is for this process to answer.
                start_new_session=True,
                pass_fds=(own.lock,),
            )
        except OSError as cause:
            raise EnvironmentProblem(
                Code.SPARK_FAILED,
                found=f"a JVM that can't be started ({cause.strerror})",
                expected="a Spark driver",
                next_step=f"see whether {java()} runs",
            ) from cause
    return SparkJvm(process, settings, conf, log, own, address)


def command_line(conf: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """The JVM's program and arguments for Spark's settings `conf`."""

    def options(text: str | None) -> list[str]:
        return shlex.split(text or "")

    return [
        str(java()),
        "-cp",
        os.pathsep.join(_class_path(conf, environment)),
        *options(environment.get("SPARK_SUBMIT_OPTS")),
        f"-Xmx{conf['spark.driver.memory']}",
        *options(conf.get("spark.driver.defaultJavaOptions")),
        *options(conf.get("spark.driver.extraJavaOptions")),
        *_MODULE_OPTIONS,
        _NO_DERBY,
        "org.apache.spark.deploy.SparkSubmit",
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        "pyspark-shell",
    ]


def _class_path(conf: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    jars = spark_home() / "jars"
    [logging] = jars.glob("slf4j-api-*.jar")
    found = [
        conf.get("spark.driver.extraClassPath"),
        environment["SPARK_CONF_DIR"],
        str(logging),
        f"{jars}/*",
        *map(environment.get, ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")),
    ]
    return [entry for entry in found if entry]


def _environment(conf: Mapping[str, str]) -> dict[str, str]:
    """The variables that Spark's scripts set; executors that the JVM starts inherit them."""
    home = str(spark_home())
    variables = {
        "SPARK_HOME": home,
        "SPARK_CONF_DIR": os.environ.get("SPARK_CONF_DIR", f"{home}/conf"),
        "SPARK_SCALA_VERSION": _SCALA,
        "SPARK_CONNECT_MODE": "0",
        # Workers on several nodes have the same hash of the same text.
        "PYTHONHASHSEED": "0",
    }
    libraries = conf.get("spark.driver.extraLibraryPath")
    if libraries:
        known = os.environ.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (known, libraries)))
    return variables


def _printed(log: Path) -> Path:
    return log.with_suffix(".out")
