"""A backfill under live load whose service is killed, stopped, cut off or started twice; then the verdict.

    scenario = KillScenario(kafka, folder)    an upstream topic with a table, and a job that takes its time
    with scenario.live():                     changes at a steady rate
        scenario.falls("replicated@3:kill")   start the service, which ends there
        scenario.completes()                  start it again and let it come to its end
    scenario.judge()                          verify: nothing lost, nothing twice

Services are real processes with their own Spark, on a real broker. Times are kept for the table of results.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from schemas.filter.ast import Filter
from schemas.filter.parse import parse_filter
from schemas.records import BARRIER_HEADER
from schemas.settings.config import load
from streaming.cli.jobs.served import known_jobs
from streaming.cli.topics.target import Broker, upstream_target
from streaming.cli.topics.verify import judged
from streaming.events.generator import ChangeGenerator, ChangeMix
from streaming.events.sender import ChangeSender, LiveLoad, produce_rows
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import header_of
from streaming.kafka.topics import create_topic, partitions_of
from streaming.registry.outputs import OutputSchemas
from streaming.runtime.failpoints import VARIABLE
from streaming.verify.findings import Report
from tests.bench.rig import TABLE
from tests.kit.kafka_topics import read_tail
from tests.kit.process import Process
from tests.kit.real import WAIT_S, await_condition

SHARES = ChangeMix(updates=0.5, deletes=0.2)


@dataclass
class KillScenario:
    """One upstream, one state folder, one job, as many services as it takes.

    `rows` are there before the first service; `rate_limit` (rows per second) decides how many batches the backfill
    has. `config` is the YAML's other keys, `job` the job's, `environment` goes to the services. `beside`: barriers have
    their own topic.
    """

    kafka: KafkaSettings
    folder: Path
    rows: int = 1_000
    rate_limit: int | None = 200
    live_rate: int = 200
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    beside: bool = False
    job: dict[str, Any] = field(default_factory=dict)
    recoveries_s: list[float] = field(default_factory=list)
    _started: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        unique = uuid.uuid4().hex[:8]
        self.upstream, self.output = f"up-{unique}", f"copy-{unique}"
        self._fill()
        self.folder.mkdir(exist_ok=True)
        self.logs = self.folder / "logs"
        self.file = self.folder / "config.json"
        job = {"name": "copy", "output": self.output, "rate_limit": self.rate_limit, "latency_budget": "2s"}
        declared: dict[str, Any] = {
            "kafka": {"bootstrap": self.kafka.bootstrap},
            "upstream": self.upstream,
            "barrier_topic": f"{self.upstream}.barriers" if self.beside else None,
            "state": "state",
            "barrier_interval": "300ms",
            "table": TABLE.to_dict(),
            "jobs": [{**job, **self.job}],
            **self.config,
        }
        self.file.write_text(json.dumps(declared), encoding="utf-8")
        [self._job] = load(self.file).jobs

    @property
    def barriers_of_output(self) -> str:
        """The topic that has them."""
        return self._job.with_barriers

    def _fill(self) -> None:
        create_topic(self.kafka, self.upstream, 4)
        self.generator = ChangeGenerator(TABLE)
        produce_rows(ChangeSender(self.kafka, self.upstream), self.generator, self.rows)

    def declare_job(self, job: dict[str, Any]) -> None:
        """A further job for the next start."""
        self.declare(jobs=[*json.loads(self.file.read_text(encoding="utf-8"))["jobs"], job])

    def declare(self, **keys: Any) -> None:
        """Other keys of the configuration for the next start."""
        declared = json.loads(self.file.read_text(encoding="utf-8"))
        self.file.write_text(json.dumps({**declared, **keys}), encoding="utf-8")

    @staticmethod
    def condition(text: str) -> Filter:
        """A filter on the table, for a verdict."""
        return parse_filter(text, TABLE)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Inserts, updates and deletes for the length of the block."""
        with LiveLoad(self.kafka, self.upstream, self.generator, self.live_rate, SHARES):
            yield

    def start(
        self, failpoint: str | None = None, *, until_complete: bool = False, rebuild: bool = False
    ) -> Process:
        """A service, which may have something happen to it."""
        options = ["--exit-when-complete"] * until_complete
        for left in self.logs.glob("failpoint-*"):
            left.unlink()
        verb = "rebuild" if rebuild else "run"
        environment = (
            self.environment
            | {"BACKFILL_LOGS": str(self.logs)}
            | ({VARIABLE: failpoint} if failpoint else {})
        )
        self._started.append(Process.start(self.file, *options, verb=verb, **environment))
        return self._started[-1]

    def leave_nothing(self) -> None:
        """Kill what a test that failed has left."""
        for process in self._started:
            process.kill()

    def reached(self, failpoint: str) -> bool:
        """True if it happened."""
        return (self.logs / f"failpoint-{failpoint.split('@')[0].split(':')[0]}").exists()

    def await_reached(self, process: Process, failpoint: str) -> None:
        """Wait for it to happen in a service that lives on."""
        await_condition(lambda: self.reached(failpoint) or process.popen.poll() is not None, failpoint)
        assert self.reached(failpoint), process.lines[-5:]

    def falls(self, failpoint: str, *, limit_s: float = WAIT_S) -> None:
        """A service that is killed there, with everything that it started."""
        process = self.start(failpoint)
        status = process.end(limit_s=limit_s)
        assert self.reached(failpoint), (failpoint, process.lines[-5:])
        assert status == -9, process.lines[-5:]

    def killed_when(self, condition: Callable[[], bool], what: str, *, limit_s: float = WAIT_S) -> Process:
        """A service that is killed as soon as this holds, with everything that it started."""
        process = self.start()
        await_condition(lambda: condition() or process.popen.poll() is not None, what, limit_s=limit_s)
        process.kill()
        assert process.end() == -9, process.lines[-5:]
        return process

    def killed_after(self, seconds: float) -> None:
        """A service that is killed at a moment of its own, wherever it is then, with everything that it started."""
        process = self.start()
        time.sleep(seconds)
        process.kill()
        assert process.end() == -9, process.lines[-5:]

    def recovers(self, *, until_complete: bool = True, limit_s: float = WAIT_S) -> Process:
        """Start a service at once; it has to bring a barrier that was never seen. The time that took is kept."""
        began, seen = time.monotonic(), self.epoch()
        process = self.start(until_complete=until_complete)
        await_condition(
            lambda: self.epoch() > seen or process.popen.poll() is not None,
            "a barrier after the crash",
            limit_s=limit_s,
        )
        assert self.epoch() > seen, process.lines[-5:]
        self.recoveries_s.append(time.monotonic() - began)
        return process

    def completes(self) -> None:
        """A service that recovers, finishes the backfill and ends by itself."""
        process = self.recovers()
        assert process.end() == 0, process.lines[-5:]

    def epoch(self) -> int:
        """The last barrier that readers of the output's first partition see now.

        What a dead service left undecided is not waited for: to end that is its successor's work.
        """
        topic = self.barriers_of_output
        if partitions_of(self.kafka, topic) is None:
            return 0
        last = read_tail(self.kafka, topic, 0, lambda record: header_of(record, BARRIER_HEADER) is not None)
        return 0 if last is None else int(header_of(last, BARRIER_HEADER) or 0)

    def judge(self) -> Report:
        """Nothing lost, nothing twice, the law at every barrier, every row there: `backfill verify` of the job."""
        upstream = upstream_target(load(self.file), Broker(None, None), None, None)
        config = load(self.file)
        job = OutputSchemas(config.registry, config.table).registered(known_jobs(config)[self._job.name])
        report = judged(upstream, job, require_complete=True)
        assert report.clean, report
        return report


def spark_of(process: Process) -> psutil.Process:
    """The service's JVM."""
    return next(child for child in process.children() if child.name() == "java")


def workers_of(process: Process) -> list[psutil.Process]:
    """The Python processes that lanes run in; the first is their parent."""
    return [child for child in spark_of(process).children(recursive=True) if "python" in child.name()]
