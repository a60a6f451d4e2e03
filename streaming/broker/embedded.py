"""A Kafka broker as a child process: one node in KRaft mode (KIP-500), broker and controller in one JVM.

For the demo, for tests, and for a first try: the published broker, not an imitation. Its data are real
files; started again on the same folder and port it goes on where it was, after a kill as well. It ends
with the thread that started it, however that ends.
"""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from schemas.errors import Code, EnvironmentProblem
from schemas.settings.config import ServiceConfig
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic, partitions_of
from streaming.runtime.java.jars import JarSet, broker_archive, ensure, java, log_options, sharing
from streaming.runtime.paths import log_folder

_HOST = "127.0.0.1"
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 60.0
# One cluster id for all: it only has to be the same for the files of one folder.
_CLUSTER_ID = "YmFja2ZpbGwtZW1iZWRkZQ"

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
# A mistyped topic name is an error, not a new topic.
auto.create.topics.enable=false
# One broker has to be enough for all topics that have copies by default.
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# A producer that died holds up readers of committed data no longer than it must.
transaction.max.timeout.ms=900000
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
group.initial.rebalance.delay.ms=0
# After a kill the new incarnation is let in when the session of the old one has run out.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
# An upstream is read from its beginning: nothing expires.
log.retention.ms=-1
num.network.threads=2
num.io.threads=4
"""


def log_name(data: Path) -> str:
    """The name of a broker's log file, by the whole path of its folder: folders of one name have different files."""
    digest = blake2b(str(data.resolve()).encode(), digest_size=4).hexdigest()
    return f"kafka-{data.name}-{digest}.log"


class EmbeddedBroker:
    """A broker on this machine, as a context manager or by `start` and `stop`.

    `data` is kept when given; otherwise a temporary folder is made and deleted at the end. `port` 0 takes
    a free one, and keeps it for a later `start`. `heap` is the JVM's. `log` is the broker's log file,
    kept in any case. `settings` are further settings of the broker. `recording` is an option by which
    its JVM records its class archive (`streaming.runtime.java.jars`), in place of using one.
    """

    def __init__(
        self,
        *,
        data: Path | None = None,
        port: int = 0,
        heap: str = "512m",
        log: Path | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        recording: str | None = None,
    ) -> None:
        self._owns_data = data is None
        self.data = data.absolute() if data else Path(tempfile.mkdtemp(prefix="backfill-kafka-"))
        self.port = port
        self.heap = heap
        self.log = (log or log_folder() / log_name(self.data)).absolute()
        self._settings, self._recording, self._controller_port = settings, recording, 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, once the broker has been started."""
        return f"{_HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> Self:
        """Start and wait until the broker answers for itself; does nothing while it runs.

        Raises:
            EnvironmentProblem: JAVA_MISSING, DEPENDENCY_MISMATCH, or BROKER_FAILED (a port in use, a
            folder in use).
        """
        if self.pid is not None:
            return self
        self.port = self.port or free_port()
        self.data.mkdir(parents=True, exist_ok=True)
        # Beside the log folders, which the broker claims for topics.
        properties = self.data / "server.properties"
        properties.touch(mode=0o600)
        properties.write_text(self._properties(), encoding="utf-8")
        jars = ensure(JarSet.BROKER)  # once: it reads all of them
        shared = sharing(broker_archive(jars))
        if not (self.data / "topics" / "meta.properties").exists():
            self._format(properties, jars, shared)
        classes = self._recording or shared
        options = [f"-Xmx{self.heap}", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", classes]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                self._java(jars, options, "kafka.Kafka", str(properties)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Its own session: a Ctrl-C in the terminal is not for the broker, which is stopped last.
                start_new_session=True,
                preexec_fn=_end_with_parent(),
            )
        self._await_answer(self._process)
        return self

    def _properties(self) -> str:
        self._controller_port = self._controller_port or free_port()
        given = _PROPERTIES.format(
            host=_HOST, port=self.port, controller_port=self._controller_port, data=self.data / "topics"
        )
        return given + "".join(f"{key}={value}\n" for key, value in self._settings.items())

    def stop(self) -> None:
        """End the broker cleanly, by force after a minute; delete a temporary data folder. May be repeated."""
        if (process := self._process) is not None:
            process.terminate()
            try:
                process.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._process = None
        if self._owns_data:
            shutil.rmtree(self.data, ignore_errors=True)

    def kill(self) -> None:
        """End the broker as a crash would, and keep its data.

        What it acknowledged is there after the next `start`.
        """
        if (process := self._process) is not None:
            process.kill()
            process.wait()
            self._process = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _java(self, jars: Sequence[Path], options: list[str], main: str, *arguments: str) -> list[str]:
        class_path = ":".join(map(str, jars))
        return [str(java()), *options, *log_options(self.log), "-cp", class_path, main, *arguments]

    def _format(self, properties: Path, jars: Sequence[Path], shared: str) -> None:
        # Its classes are among those of the broker.
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", shared]
        arguments = ["format", "--cluster-id", _CLUSTER_ID, "--config", str(properties)]
        command = self._java(jars, quick, "kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            self.log.write_text(done.stdout + done.stderr, encoding="utf-8")
            raise self._failed("a data folder that can't be prepared")

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        limit = time.monotonic() + _START_LIMIT_S
        admin = AdminClient(
            # Until the port is open librdkafka would report every failed attempt.
            {"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        )
        while time.monotonic() < limit:
            if process.poll() is not None:
                raise self._failed(f"a broker that ended with status {process.returncode}")
            try:
                if admin.list_topics(timeout=0.5).brokers:
                    return
            except KafkaException:
                continue
        self.kill()
        raise self._failed(f"a broker that does not answer within {_START_LIMIT_S:.0f} s")

    def _failed(self, found: str) -> EnvironmentProblem:
        return EnvironmentProblem(
            Code.BROKER_FAILED,
            found=found,
            expected=f"a broker on {self.bootstrap} with its data in {self.data}",
            next_step="read the end of the log; often the port or the folder is in use by another broker",
            where=str(self.log),
        )


_reserved: list[socket.socket] = []


def free_port() -> int:
    """A port of this machine for a server that starts later, here or in a child process, and may start again.

    On Linux no other process is given it while this one runs: a socket stays bound to it without listening. The server
    has to set SO_REUSEADDR, as those of Java, Python's `socketserver` and PostgreSQL do. Elsewhere another process may
    take the port first.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((_HOST, 0))
    port: int = reserved.getsockname()[1]
    if sys.platform == "linux":
        _reserved.append(reserved)
    else:
        reserved.close()
    return port


def _end_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn`.

    Have the kernel send SIGTERM to the child when the thread that started it ends (Linux only).
    """
    if sys.platform != "linux":
        return None
    # Loaded here, in the parent: between fork and exec as little as possible may run.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG, <linux/prctl.h>

    def request() -> None:
        prctl(set_parent_death_signal, signal.SIGTERM)

    return request


UPSTREAM_PARTITIONS = 4


@contextmanager
def broker_of(config: ServiceConfig) -> Iterator[KafkaSettings]:
    """The settings of the configured broker, or of an embedded one, as for demos and first steps.

    An embedded one has its data in the state's folder, and makes the upstream topic if it is missing.

        Raises: EnvironmentProblem when an embedded one does not come up.
    """
    if config.kafka.bootstrap is not None:
        yield KafkaSettings.from_config(config.kafka)
        return
    with EmbeddedBroker(data=Path(str(config.state)) / "kafka") as broker:
        kafka = KafkaSettings(broker.bootstrap, passed=config.kafka.passed_settings())
        if partitions_of(kafka, config.upstream) is None:
            create_topic(kafka, config.upstream, UPSTREAM_PARTITIONS)
        yield kafka
