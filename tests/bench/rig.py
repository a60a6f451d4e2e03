"""The rig: a broker, an upstream topic with a table in it, and the service as a child process.

The service writes a JSON line for each batch to standard error; the rig reads those, and samples the memory of
the whole process tree (driver, JVM, Python workers) while it runs. Every case has a broker and a topic of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from schemas.errors import Code, EnvironmentProblem
from schemas.formats.protocol import Format
from schemas.formats.registry import DEFAULT
from schemas.job import JobDefinition
from schemas.records import Add, Drop
from schemas.settings.registry import RegistryConfig
from schemas.table import TableSchema, declare
from schemas.topics import UpstreamTopics
from streaming.broker.embedded import EmbeddedBroker
from streaming.control.client import send_request
from streaming.demo.latency import StableOffsets
from streaming.events.forms import TopicSchemas, events_of
from streaming.events.generator import ChangeGenerator, ChangeMix
from streaming.events.sender import ChangeSender, LiveLoad, produce_rows
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.registry.client import AskedSchemas, Registry
from streaming.verify.judge import verify_job
from tests.bench.report.batch import OUTPUT, Batch, reads_snapshot
from tests.bench.report.line import Line
from tests.kit.memory_registry import MemoryRegistry

UPSTREAM = "bench-orders"
DECLARATION = {
    "name": "orders",
    "columns": {"id": "bigint", "region": "string", "amount": "decimal(18,2)", "note": "string"},
    "primary_key": ["id"],
}
TABLE = declare(DECLARATION)
PARTITIONS = OUTPUT_PARTITIONS = 4
LIVE_RATE = 500
SHARES = ChangeMix(updates=0.5, deletes=0.2)
BUILD_TIMEOUT_S, BACKFILL_TIMEOUT_S = 600.0, 900.0
_LEAST_BUILD_RATE = 50_000
_NO_REGISTRY = RegistryConfig.model_validate({})
_NEWBORN_S = 0.5
_SAMPLE_S = 0.5
_STOP_S = 45.0


@dataclass
class ServiceRun:
    """A running `backfill run`. All lists grow: `compactions` are (begin, end), `memory_mib` (when, how much).

    `parts` of a build that is too large for one batch: (when it was read, the records up to its end). `columns_added`:
    when the table got columns by itself; `served`: when the service began to serve, or began again.
    """

    process: subprocess.Popen[str]
    batches: list[Batch] = field(default_factory=list)
    compactions: list[tuple[float, float]] = field(default_factory=list)
    parts: list[tuple[float, int]] = field(default_factory=list)
    columns_added: list[float] = field(default_factory=list)
    served: list[float] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    memory_mib: list[tuple[float, float]] = field(default_factory=list)
    _cpu_s: dict[int, float] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def peak_mib(self) -> float:
        """The most memory that the process tree used at once."""
        return max((used for _, used in self.memory_mib), default=0.0)

    def cpu_s(self) -> float:
        """Seconds of CPU that the process tree has used; of a worker that has ended, what was sampled last."""
        for process in self._tree():
            with suppress(psutil.NoSuchProcess):
                self._note_cpu(process)
        return sum(list(self._cpu_s.values()))

    def _note_cpu(self, process: psutil.Process) -> None:
        times = process.cpu_times()
        self._cpu_s[process.pid] = times.user + times.system

    def snapshot_s(self, done: Batch, *, since: float = 0.0) -> float:
        """Seconds from the start of the first batch (since an instant) that read a slice to the end of this one."""
        first = next(batch for batch in self.batches if batch.at > since and reads_snapshot(batch))
        return done.at - (first.at - first.took_ms / 1_000)

    def snapshot_rate(self, done: Batch, *, since: float = 0.0) -> float:
        """Snapshot rows per second over that time."""
        read = sum(batch.snapshot_rows for batch in self.batches if since < batch.at <= done.at)
        return read / self.snapshot_s(done, since=since)

    def await_seconds(self, seconds: float) -> list[Batch]:
        """The batches of so many seconds from now on."""
        began = time.time()
        self.await_batch(lambda batch: batch.at > began + seconds, seconds + 120)
        return [batch for batch in self.batches if batch.at > began]

    def await_cores(self, seconds: float) -> tuple[list[Batch], float]:
        """The batches of the next `seconds`, and the number of cores that the process tree kept busy in that time."""
        used_s, began = self.cpu_s(), time.monotonic()
        batches = self.await_seconds(seconds)
        return batches, (self.cpu_s() - used_s) / (time.monotonic() - began)

    def await_changes(self, count: int) -> Batch:
        """The batch with which the topic's first `count` records are in the replica. Raises: as `await_batch`."""
        timeout_s = max(BUILD_TIMEOUT_S, count / _LEAST_BUILD_RATE)
        return self.await_batch(lambda batch: batch.upstream_records >= count, timeout_s)

    def await_batch(self, wanted: Callable[[Batch], bool], timeout_s: float) -> Batch:
        """The first batch (of those to come too) that `wanted(batch)` is true of.

        Raises: EnvironmentProblem when the service ends, or the time is over, without one.
        """
        deadline = time.monotonic() + timeout_s
        looked = 0
        with self._changed:
            while True:
                for batch in self.batches[looked:]:
                    if wanted(batch):
                        return batch
                looked = len(self.batches)
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise EnvironmentProblem(
                        Code.SPARK_FAILED,
                        found="; ".join(self.lines[-3:]) or "a service that wrote nothing",
                        expected=f"a batch of the awaited kind within {timeout_s:g} s",
                        next_step="read the service's log lines",
                    )
                self._changed.wait(1.0)

    def read_log(self) -> None:
        """Follow the service's lines to their end."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip())
                with suppress(ValueError):
                    self._note(json.loads(line))
                self._changed.notify_all()

    def _note(self, fields: Mapping[str, Any]) -> None:
        at = datetime.fromisoformat(fields["timestamp"]).timestamp()
        if fields.get("event") == "batch":
            self.batches.append(Batch(at, fields))
        elif fields.get("event") == "building":
            self.parts.append((at, fields["records"]))
        elif fields.get("event") == "column_added":
            self.columns_added.append(at)
        elif fields.get("event") == "serving":
            self.served.append(at)
        elif fields.get("event") == "compaction":
            self.compactions.append((at - fields["took_ms"] / 1_000, at))

    def kill(self) -> float:
        """SIGKILL for the whole process tree, all of it gone afterwards; Unix seconds of the kill."""
        tree, at = self._tree(), time.time()
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(tree, timeout=_STOP_S)
        return at

    def _tree(self) -> list[psutil.Process]:
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def sample(self, stop: threading.Event) -> None:
        """CPU of the tree, and its proportional set size: pages that forked workers share count once.

        A child of the JVM shares its memory until it has become another program, and would count all of it again.
        """
        while not stop.wait(_SAMPLE_S):
            used = 0
            with suppress(psutil.Error):
                for process in self._tree():
                    with suppress(psutil.Error):
                        self._note_cpu(process)
                        if time.time() - process.create_time() > _NEWBORN_S:
                            used += process.memory_full_info().pss
            self.memory_mib.append((time.time(), used / 2**20))


def job(latency_budget: str | None, name: str = OUTPUT, **more: Any) -> dict[str, Any]:
    """A job as the configuration declares it, with an output of its name."""
    return {"name": name, "output": name, "latency_budget": latency_budget, **more}


@contextmanager
def rig(folder: Path, table: TableSchema = TABLE) -> Iterator[Rig]:
    """A broker of its own with an empty upstream, and a schema registry."""
    with EmbeddedBroker(heap="1g") as broker, MemoryRegistry().serving() as schemas:
        registry = RegistryConfig.model_validate({"url": schemas.url})
        yield Rig(KafkaSettings(broker.bootstrap), folder, table, registry=registry)


@dataclass(frozen=True)
class Rig:
    """One upstream topic on one broker, with a folder for states. Its barriers are `beside` the data if need be.

    `partitions` is how many the upstream gets.
    """

    kafka: KafkaSettings
    folder: Path
    table: TableSchema = TABLE
    upstream: str = UPSTREAM
    format: Format = DEFAULT
    beside: bool = False
    registry: RegistryConfig = _NO_REGISTRY
    partitions: int = PARTITIONS

    @property
    def barrier_topic(self) -> str | None:
        """None where barriers are in the data."""
        return f"{self.upstream}.barriers" if self.beside or not self.format.may_hold_barriers else None

    def live(self, generator: ChangeGenerator, rate: float = LIVE_RATE) -> LiveLoad:
        """Changes of all kinds at a rate; a context."""
        return LiveLoad(self.kafka, self.upstream, generator, rate, SHARES)

    def watch(self, output: str = OUTPUT, partitions: int = OUTPUT_PARTITIONS, **more: Any) -> StableOffsets:
        """Make the topic that has an output's barriers and watch it grow; a context. `more` as of `job`."""
        topic = self.definition(output, **more).barrier_topic or output
        create_topic(self.kafka, topic, partitions)
        return StableOffsets(self.kafka, self.upstream, topic, partitions, self.barrier_topic)

    def verdict(self, *outputs: str, **more: Any) -> Line:
        """The verdict of `verify` on these outputs together; `more` as of `job`."""
        reports = [
            verify_job(
                self.kafka,
                self.upstream,
                self.definition(output, **more),
                self.table,
                upstream_format=self.format.with_schemas(AskedSchemas(Registry(self.registry))),
                upstream_barriers=self.barrier_topic,
            )
            for output in outputs or (OUTPUT,)
        ]
        return Line("findings of verify", sum(len(report.findings) for report in reports), "")

    def definition(self, name: str, latency_budget: str | None = None, **more: Any) -> JobDefinition:
        """Of a job with an output of its name."""
        return JobDefinition.declare(job(latency_budget, name, **more), self.table)

    def fill(self, rows: int) -> ChangeGenerator:
        """Create the upstream and write `rows` INSERTs; the generator goes on from there."""
        create_topic(self.kafka, self.upstream, self.partitions)
        register = TopicSchemas(Registry(self.registry), self.upstream)
        generator = ChangeGenerator(self.table, events=events_of(self.format, self.table, register))
        self.write(generator, rows)
        return generator

    def write(self, generator: ChangeGenerator, rows: int) -> None:
        """So many INSERTs more."""
        produce_rows(ChangeSender(self.kafka, self.upstream), generator, rows)

    def create(self, name: str, **more: Any) -> None:
        """A job for a service that runs; `more` as of `definition`."""
        added = Add(self.definition(name, **more).to_json())
        send_request(self.kafka, UpstreamTopics.of(self.upstream).control, added)

    def drop(self, name: str) -> None:
        """End a job of a service that runs."""
        send_request(self.kafka, UpstreamTopics.of(self.upstream).control, Drop(name))

    def build(self, rows: int, *, state: str) -> None:
        """The replica of a state, by a service without a job that ends again."""
        with self.service(state=state, jobs=[]) as run:
            run.await_changes(rows)

    @contextmanager
    def service(self, *, state: str, jobs: list[dict[str, Any]], **settings: Any) -> Iterator[ServiceRun]:
        """`backfill run` with these jobs, stopped by SIGTERM at the end of the block.

        `state` is a folder below the rig's, or a URI.
        """
        config = self.folder / f"{state.rpartition('/')[2]}.json"
        declaration = {
            "kafka": {"bootstrap": self.kafka.bootstrap},
            "upstream": {"topic": self.upstream, **self.format.model_dump(exclude_none=True)},
            "state": state if "://" in state else str(self.folder / state),
            "table": self.table.to_dict(),
            "jobs": jobs,
            "registry": self.registry.model_dump(exclude_none=True),
            **({"barrier_topic": self.barrier_topic} if self.barrier_topic else {}),
            **settings,
        }
        config.write_text(json.dumps(declaration), encoding="utf-8")
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "streaming.cli.app",
                "run",
                str(config),
                "--log-json",
                "--log-level",
                "debug",
            ],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        run, ended = ServiceRun(process), threading.Event()
        threads = [
            threading.Thread(target=run.read_log, daemon=True),
            threading.Thread(target=run.sample, args=(ended,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield run
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
            ended.set()
            for thread in threads:
                thread.join()
