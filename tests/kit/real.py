"""The service in the test's own process, on a real broker and a real Spark session, driven barrier by barrier.

Tests write to a real topic, wait for what the service tells (batch reports, or its end), and have `verify` judge the
output topic. Nothing here sleeps: every wait is for a condition.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from confluent_kafka import Message, Producer
from pyspark.sql import SparkSession

from schemas.avro.codec import barrier_header, encode_barrier
from schemas.filter.parse import parse_filter
from schemas.position import Key
from schemas.records import BARRIER_HEADER, Barrier, Change, Mutation, Op, Row
from schemas.settings.config import ServiceConfig, check
from schemas.settings.security import hash_key_of
from schemas.table import TableSchema
from schemas.topics import UpstreamTopics
from state.values.progress import is_complete
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader
from streaming.kafka.topics import create_topic
from streaming.protocol.report import BatchReport
from streaming.service.service import Service
from streaming.source.barriers.injecting.injector import BarrierInjector, next_barrier, unix_ms
from streaming.source.barriers.injecting.target import target_of
from streaming.verify.findings import Report
from streaming.verify.judge import verify_topics
from tests.kit.avro_codec import ChangeCodec, KeyCodec

WAIT_S = 240.0  # for one batch; a wait ends as soon as its condition holds
OPTIONS = "compaction_least_rows", "accept_log_reset", "paused"
"""Options of a service that a test may set."""


class RealUpstream:
    """The changelog of a table on a topic.

    `put`, `delete` and `barrier` write what a good producer would; `send`, `change` and `deliver` what one likes.
    """

    form: ClassVar[dict[str, str]] = {}
    """The further keys of `upstream` in the configuration."""
    sections: Mapping[str, Any] = MappingProxyType({})
    """Further sections of the configuration."""

    def __init__(
        self,
        table: TableSchema,
        kafka: KafkaSettings,
        topic: str,
        partitions: int,
        barriers: str | None = None,
    ) -> None:
        self.table, self.kafka, self.name, self.partitions = table, kafka, topic, partitions
        self.rows: dict[Key, Row] = {}
        self.age_ms = self.ahead_ms = 0
        """The age that records are said to have, and how far the barriers' clock is ahead."""
        self.headers: list[tuple[str, str | bytes | None]] = []
        self.last: Barrier | None = None
        for made in filter(None, (topic, barriers)):  # before a service looks for it
            create_topic(kafka, made, partitions)
        self.changes, self.keys = ChangeCodec(table.columns), KeyCodec(table.key_columns)
        self._producer = Producer(kafka.producer(**{"message.max.bytes": 2_000_000}))
        self.topics, clock = UpstreamTopics.of(topic, barriers=barriers), lambda: unix_ms() + self.ahead_ms
        self._injector = BarrierInjector(kafka, target_of(self.topics), 1_000, clock=clock)

    def close(self) -> None:
        self._producer.flush(30)
        self._injector.stop()

    def flush(self) -> None:
        """Wait until all that was put is in the topic."""
        assert self._producer.flush(30) == 0

    def put(self, row: Row) -> None:
        """INSERT the row, or UPDATE the one with its key."""
        key = self.table.key_of(row)
        before = self.rows.get(key)
        self.rows[key] = row
        self._append(key, Change(Op.INSERT if before is None else Op.UPDATE, before, row))

    def delete(self, *key: Any) -> None:
        """DELETE the row with this key."""
        self._append(key, Change(Op.DELETE, self.rows.pop(key), None))

    def _append(self, key: Key, change: Change) -> None:
        data = self.keys.encode(key)
        home = zlib.crc32(data) % self.partitions
        self._produce(self.changes.encode(change), data, home)

    def _produce(self, value: bytes | None, key: bytes | None, partition: int, **more: Any) -> None:
        more = {"headers": self.headers, "timestamp": unix_ms() - self.age_ms, **more}
        self._producer.produce(self.name, value, key, partition, **more)
        self._producer.poll(0)

    def send(
        self, partition: int, key: bytes | None, value: bytes | None, *, barrier: bytes | None = None
    ) -> int:
        """A record as given, behind everything sent so far; its offset."""
        delivered, headers = list[Message](), [] if barrier is None else [(BARRIER_HEADER, barrier)]
        self._produce(value, key, partition, headers=headers, on_delivery=lambda _, m: delivered.append(m))
        assert self._producer.flush(30) == 0
        offset = delivered[0].offset()
        assert offset is not None
        return offset

    def change(self, change: Change, *, key: bytes | None = None, partition: int = 0) -> int:
        """A change as given, illegal ones too, with its own key unless another is given; its offset."""
        own = self.keys.encode(self.table.key_of(change.row)) if key is None else key
        return self.send(partition, own, self.changes.encode(change))

    def barrier(self, mutation: Mutation | None = None) -> Barrier:
        """The next barrier, in every partition, behind everything sent so far."""
        self.flush()
        self.last = self._injector.inject_one(mutation)
        return self.last

    def next(self) -> Barrier:
        """The next barrier, for tests that send its copies themselves."""
        self._injector.stop()  # it reads the topic's end again before it injects
        return next_barrier(self.last, partitions=self.partitions, now_ms=unix_ms(), mutation=None)

    def deliver(self, barrier: Barrier, *partitions: int) -> int:
        """A copy of a barrier into each of these partitions; the offset of the last one."""
        offset = -1
        for number in partitions:
            offset = self.send(number, None, encode_barrier(barrier), barrier=barrier_header(barrier))
        if self.last is None or barrier.curr > self.last.curr:
            self.last = barrier
        return offset


class UpsertUpstream(RealUpstream):
    """An upstream of JSON rows by key."""

    form: ClassVar[dict[str, str]] = {"format": "upsert"}

    def _append(self, key: Key, change: Change) -> None:
        names = self.table.column_names
        value = None if change.after is None else json_of(dict(zip(names, change.after, strict=True)))
        data = json_of(dict(zip(self.table.primary_key, key, strict=True)))
        self._produce(value, data, zlib.crc32(data) % self.partitions)

    def delete_absent(self, *key: Any) -> None:
        """Say once more that there is no row with this key."""
        self._append(key, Change(Op.DELETE, None, None))


def json_of(row: dict[str, Any]) -> bytes:
    return json.dumps(row, default=str).encode()


@dataclass
class Run:
    """A service that runs in a thread of its own. Reports and the error, if any, are kept."""

    service: Service
    reports: list[BatchReport] = field(default_factory=list)
    error: BaseException | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False

    def __post_init__(self) -> None:
        self.service.on_batch = self._take
        self._thread = threading.Thread(target=self._run, name="service", daemon=True)
        self._thread.start()

    def _take(self, report: BatchReport) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            self.service.run()
        except BaseException as error:  # noqa: BLE001  # handed to the test
            self.error = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def epoch(self) -> int:
        return self.reports[-1].plan.epoch if self.reports else 0

    def until(self, condition: Callable[[], bool]) -> BatchReport:
        """Wait until the condition holds after a batch; the last report. The service's own error ends the wait."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended or condition(), WAIT_S), "no batch in time"
            if not condition():
                raise self.error or AssertionError("the service ended before")
        return self.reports[-1]

    def reach(self, barrier: Barrier) -> BatchReport:
        """Wait for the batch that takes this barrier."""
        return self.until(lambda: self.epoch >= barrier.curr)

    def await_more(self) -> None:
        """Wait until there is a further batch, or no service any more."""
        with self._changed:
            seen = len(self.reports)
            assert self._changed.wait_for(lambda: self._ended or len(self.reports) > seen, WAIT_S)

    @property
    def is_alive(self) -> bool:
        return not self._ended

    def is_complete(self, job: str) -> bool:
        """True if every part of the job was read to its end."""
        if not self.reports:
            return False
        report = self.reports[-1]
        counts = [each.definition.part_count for each in report.outcome.jobs if each.name == job]
        return any(is_complete(report.progress.get(job, {}), count) for count in counts)

    def end(self) -> BaseException | None:
        """Wait until the service has ended by itself; its error."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended, WAIT_S), "the service did not end"
        return self.error

    def stop(self) -> None:
        """Stop it and wait; raises what went wrong."""
        self.service.stop()
        if (error := self.end()) is not None:
            raise error


@dataclass
class Stage:
    """One upstream, one state folder, and as many runs of the service as a test needs."""

    spark: SparkSession
    upstream: RealUpstream
    folder: Path
    jobs: Sequence[dict[str, Any]] = ()
    lanes: int | None = 2

    def declared(self, **over: Any) -> dict[str, Any]:
        """The configuration as a user writes it."""
        return {
            "kafka": {"bootstrap": self.upstream.kafka.bootstrap},
            "upstream": {"topic": self.upstream.name, **self.upstream.form},
            "barrier_topic": self.upstream.topics.barriers,
            "state": "state",
            "barriers": "embedded",
            "lanes": self.lanes,
            "table": self.upstream.table.to_dict(),
            "jobs": list(self.jobs),
            "on_table_fault": "stop",  # most tests of faults await the error itself
            **self.upstream.sections,
            **over,
        }

    def config(self, **over: Any) -> ServiceConfig:
        return check(self.declared(**over), path=self.folder / "config.yaml")

    def service(
        self,
        *,
        until_complete: bool = False,
        skip: frozenset[tuple[int, int]] = frozenset(),
        **over: Any,
    ) -> Service:
        options = {name: over.pop(name) for name in OPTIONS if name in over}
        self.upstream.flush()  # it finds all that was put
        return Service(
            self.config(**over),
            self.upstream.kafka,
            lambda: self.spark,
            exit_when_complete=until_complete,
            skip_records=skip,
            **options,
        )

    @contextmanager
    def running(self, **how: Any) -> Iterator[Run]:
        """A run of the service, stopped at the end of the block; its error, if it had one, is raised there."""
        run = Run(self.service(**how))
        try:
            yield run
        except BaseException:
            run.service.stop()
            run.end()
            raise
        run.stop()

    def fails(self, **how: Any) -> BaseException:
        """Run the service until it ends by itself with an error."""
        error = Run(self.service(**how)).end()
        assert error is not None, "the service ended without an error"
        return error

    def verify(
        self, number: int = 0, *, output: str | None = None, complete: bool = True, **how: Any
    ) -> Report:
        """The report of `verify` on the output of a job, or on another topic as if it were."""
        config, upstream = self.config(), self.upstream
        job = config.jobs[number]
        given = {"hash_key": hash_key_of(job), "key": job.key, "from_now": job.from_now}
        return verify_topics(
            upstream.kafka,
            upstream.name,
            output or job.output,
            upstream.table,
            columns=job.columns,
            condition=None if job.filter is None else parse_filter(job.filter, upstream.table),
            require_complete=complete,
            **{
                "barriers": (config.topics.barriers, job.barrier_topic),
                "formats": (config.upstream_format, job.format),
                "reads_upstream": job.scan.reads_upstream,
                **given,
                **how,
            },
        )


def records(kafka: KafkaSettings, topic: str) -> list[list[Message]]:
    """Everything committed on a topic, by partition."""
    with RangeReader(kafka) as reader:
        marks = reader.await_stable(topic, timeout_s=WAIT_S)
        found: list[list[Message]] = [[] for _ in marks]
        ranges = {number: (each.earliest, each.stable) for number, each in enumerate(marks)}
        for chunk in reader.read(topic, ranges):
            for message in chunk:
                found[message.partition() or 0].append(message)
    return found


def await_condition(condition: Callable[[], bool], what: str, *, limit_s: float = WAIT_S) -> None:
    """Wait for something that is not reported, by looking often."""
    deadline, ticks = time.monotonic() + limit_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not in time"
        ticks.wait(0.02)
