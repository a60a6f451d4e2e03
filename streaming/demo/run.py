"""The demo, step by step, with one configuration file as a user would write it.

    broker     embedded, in a folder
    upstream   a table of many rows, then live changes until the end
    Spark
    replica    the service's first batch: the whole topic, sorted by key into Delta
    snapshot   the job's backfill, during the live changes
    live       some more live load after completion
    verify     the checker, which reads the topics alone

The service runs in a thread of its own, as it would in any process; this one watches it by its batch reports.
"""

from __future__ import annotations

import json
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from schemas.job import JobDefinition
from schemas.records import Change
from schemas.settings.config import ServiceConfig, load
from schemas.table import TableSchema
from streaming.broker.embedded import EmbeddedBroker
from streaming.demo.console import DemoProgress, StepConsole
from streaming.demo.latency import Latencies, StableOffsets
from streaming.events.forms import events_of
from streaming.events.generator import ChangeGenerator, ChangeMix
from streaming.events.sender import ChangeSender, LiveLoad, SentChanges, produce_rows
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.consumer import RangeReader, located
from streaming.kafka.topics import create_topic
from streaming.protocol.report import BatchReport
from streaming.reading.entries import Place
from streaming.reading.records.forms import RecordForm
from streaming.reading.sources import entry_of
from streaming.reading.topic import RecordStream, plain
from streaming.runtime.java.jars import JarSet, broker_archive, ensure, recording
from streaming.service.bootstrap import ServiceOptions, hosted_service
from streaming.service.service import Service
from streaming.verify.findings import Report
from streaming.verify.judge import verify_job

UPSTREAM_PARTITIONS = 4
LIVE_RATE = 500


class Upstream(StrEnum):
    """Formats that the demo's upstream may have."""

    DEBEZIUM = "debezium"
    UPSERT = "upsert"
    CHANGE = "change"


_CONFIGURATION = """\
kafka:
  bootstrap: {bootstrap}
upstream: {upstream}
state: ./state
barrier_interval: 1s
lanes: 4
table:
  name: orders
  columns: {{id: bigint, region: string, amount: "decimal(18,2)", note: string}}
  primary_key: [id]
jobs:
  - name: big-orders
    output: big-orders
    format: {output}
    columns: [id, region, amount]
    filter: "amount >= 100 AND region IN ('EU', 'US')"
    latency_budget: 1s
"""


_UPSTREAMS = {
    Upstream.DEBEZIUM: "{topic: shop.public.orders, format: debezium, decimal: precise}",
    Upstream.UPSERT: "{topic: orders, format: upsert, encoding: json}",
    Upstream.CHANGE: "orders",
}
OUTPUTS = {Upstream.DEBEZIUM: "upsert", Upstream.UPSERT: "upsert", Upstream.CHANGE: "change"}
"""The format of the job's output, by that of the upstream."""


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """Size of the table, duration of the live load after completion, and folder of the demo."""

    folder: Path
    rows: int
    live_s: float
    upstream: Upstream = Upstream.DEBEZIUM

    @property
    def broker_data(self) -> Path:
        return self.folder / "kafka"

    @property
    def config_file(self) -> Path:
        return self.folder / "config.yaml"

    def configure(self, bootstrap: str) -> ServiceConfig:
        """Write the configuration for a broker, and read it as the service does."""
        text = _CONFIGURATION.format(
            bootstrap=bootstrap, upstream=_UPSTREAMS[self.upstream], output=OUTPUTS[self.upstream]
        )
        self.config_file.write_text(text, encoding="utf-8")
        return load(self.config_file)


def the_job(config: ServiceConfig) -> JobDefinition:
    (job,) = config.jobs
    return job


BROKER, UPSTREAM, SPARK, REPLICA, SNAPSHOT, LIVE, VERIFY = STEPS = (
    "broker",
    "upstream",
    "Spark",
    "replica",
    "snapshot",
    "live changes",
    "verify",
)
_REFRESH_S = 0.2


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """Results of the demo."""

    bootstrap: str
    progress: DemoProgress
    live: SentChanges
    during_snapshot: Latencies
    afterwards: Latencies
    report: Report
    rows: list[str]
    """A few rows of the output, as JSON."""


def run_demo(demo: DemoConfig, console: StepConsole) -> DemoOutcome:
    """Run the demo. Afterwards every process that it started is gone; the demo's folder stays.

    Raises: BackfillError of whatever ended it early. What the judge found is in the outcome, not raised.
    """
    with ExitStack() as stack:
        console.begin(BROKER, "a Kafka in one process")
        broker = stack.enter_context(EmbeddedBroker(data=demo.broker_data))
        console.end(BROKER, broker.bootstrap)
        kafka, config = KafkaSettings(broker.bootstrap), demo.configure(broker.bootstrap)
        generator = _fill(demo, kafka, config, console)
        progress, live, watch = _serve(demo, kafka, config, generator, console)
        during, afterwards = _latencies(progress, live, watch.latencies())
        report = _verify(kafka, config, console)
        rows = last_rows(kafka, the_job(config), config.table)
    return DemoOutcome(broker.bootstrap, progress, live, during, afterwards, report, rows)


def _fill(
    demo: DemoConfig, kafka: KafkaSettings, config: ServiceConfig, console: StepConsole
) -> ChangeGenerator:
    """Create the upstream and write its first rows."""
    console.begin(UPSTREAM, "", total=demo.rows)
    create_topic(kafka, config.upstream, UPSTREAM_PARTITIONS)
    events = events_of(config.upstream_format, config.table)
    generator, sent = ChangeGenerator(config.table, events=events), 0

    def on_sent(count: int) -> None:
        nonlocal sent
        sent += count
        console.update(UPSTREAM, f"{sent:,} rows", completed=sent, total=demo.rows)

    produce_rows(ChangeSender(kafka, config.upstream), generator, demo.rows, on_sent=on_sent)
    console.end(UPSTREAM, f"{demo.rows:,} rows, {UPSTREAM_PARTITIONS} partitions")
    return generator


def _serve(
    demo: DemoConfig,
    kafka: KafkaSettings,
    config: ServiceConfig,
    generator: ChangeGenerator,
    console: StepConsole,
) -> tuple[DemoProgress, SentChanges, StableOffsets]:
    """The service and its live load, from Spark's start until all live changes are in the output."""
    job = the_job(config)
    progress = DemoProgress(job.name, config.table.vnode_count)
    create_topic(kafka, job.with_barriers, job.output_partitions)  # there already, so that it can be watched
    watch = StableOffsets(
        kafka, config.upstream, job.with_barriers, job.output_partitions, config.topics.barriers
    )
    with ExitStack() as stack:
        stack.enter_context(watch)
        load = LiveLoad(kafka, config.upstream, generator, LIVE_RATE, ChangeMix())
        stack.enter_context(load)
        console.begin(LIVE, f"{LIVE_RATE}/s", total=demo.live_s)
        console.begin(SPARK, "starting its JVM")
        service = stack.enter_context(hosted_service(config, kafka, ServiceOptions(on_batch=progress.note)))
        console.end(SPARK, f"{service.spark().sparkContext.defaultParallelism} cores")
        console.begin(REPLICA, "the topic goes into Delta, by key")
        pool = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="service"))
        stack.callback(service.stop)
        running = pool.submit(service.run)
        sent = _follow(demo, progress, load, running, console)
        _stop(service, progress, running)
        console.end(LIVE, f"{sent.total:,} sent, none waiting")
    return progress, sent, watch


def _follow(
    demo: DemoConfig, progress: DemoProgress, load: LiveLoad, running: Future[None], console: StepConsole
) -> SentChanges:
    """Show the service's way to completion and the live load until its end."""
    shown = REPLICA
    while True:
        progress.await_change(_REFRESH_S)
        if running.done():
            running.result()  # raises what ended it
        if shown is REPLICA and progress.replica_at is not None:
            console.end(REPLICA, f"{progress.about_rows:,} changes, now in Delta")
            console.begin(SNAPSHOT, "", total=progress.about_rows)
            shown = SNAPSHOT
        if shown is SNAPSHOT:
            _show_snapshot(progress, console)
        if shown is SNAPSHOT and progress.complete_at is not None:
            console.end(SNAPSHOT, f"{progress.snapshot_rows:,} rows, {progress.snapshot_rate:,.0f} rows/s")
            shown = LIVE
        over_s = 0.0 if progress.complete_at is None else time.time() - progress.complete_at
        console.update(LIVE, _live_note(progress, load), completed=over_s, total=demo.live_s)
        if shown is LIVE and over_s >= demo.live_s:
            return load.stop()


def _show_snapshot(progress: DemoProgress, console: StepConsole) -> None:
    left = "" if progress.left_s is None else f", {progress.left_s:.0f} s left"
    console.update(
        SNAPSHOT,
        f"{progress.snapshot_rows:,} rows, {progress.snapshot_rate:,.0f}/s{left}",
        completed=progress.snapshot_rows,
        total=progress.about_rows,
    )


def _live_note(progress: DemoProgress, load: LiveLoad) -> str:
    lag = "" if progress.replica_at is None else f", lag {progress.lag_s:.1f} s"
    return f"{LIVE_RATE}/s, {load.sent.total:,} sent{lag}"


def _stop(service: Service, progress: DemoProgress, running: Future[None]) -> None:
    """End the service once a barrier behind the last live change is out."""
    end = time.time()
    while not progress.has_passed(end) and not running.done():
        progress.await_change(_REFRESH_S)
    service.stop()
    running.result()


def _latencies(
    progress: DemoProgress, live: SentChanges, latencies: Latencies
) -> tuple[Latencies, Latencies]:
    """Latencies of changes produced during the snapshot, and after it."""
    assert progress.replica_at is not None  # it is complete
    assert progress.complete_at is not None
    during = latencies.between(progress.replica_at, progress.complete_at)
    return during, latencies.between(progress.complete_at, live.last_at_ms / 1_000)


def _verify(kafka: KafkaSettings, config: ServiceConfig, console: StepConsole) -> Report:
    console.begin(VERIFY, "record by record")
    report = verify_job(
        kafka,
        config.upstream,
        the_job(config),
        config.table,
        upstream_format=config.upstream_format,
        upstream_barriers=config.topics.barriers,
        progress=lambda read, total: console.update(
            VERIFY, f"{read:,} of {total:,} records", completed=read, total=total
        ),
        require_complete=True,
    )
    console.end(VERIFY, "the law holds" if report.clean else f"{report.found} findings")
    return report


_LOOKED_AT = 200


def last_rows(kafka: KafkaSettings, job: JobDefinition, table: TableSchema, count: int = 3) -> list[str]:
    """The newest rows at the end of a partition that has some."""
    columns = job.columns_of(table)
    stream = RecordStream(columns, job.key_columns_of(table), RecordForm.of_output(job, table))
    with RangeReader(kafka) as reader:
        rows = []
        for partition, marks in enumerate(reader.watermarks(job.output)):
            first = max(marks.earliest, marks.stable - _LOOKED_AT)
            for chunk in reader.read(job.output, {partition: (first, marks.stable)}):
                records = (
                    stream.read(Place(job.output, *located(message)), entry_of(message)) for message in chunk
                )
                bodies = [record.body for record in records if record is not None]
                rows += [body.after for body in bodies if isinstance(body, Change) and body.after is not None]
            if rows:
                break
    names = [column.name for column in columns]
    shown = [dict(zip(names, map(plain, row), strict=True)) for row in rows[-count:]]
    return [json.dumps(row, ensure_ascii=False) for row in shown]


_ROWS, _BATCHES = 5_000, 8  # more than a short batch, and live changes that are short ones
_COMPACTION_LEAST_ROWS = 100


def warm_up() -> None:
    """Record the class archives of Spark and of the broker, in about half a minute.

    Raises: EnvironmentProblem when broker or Spark do not come up.
    """
    with (
        tempfile.TemporaryDirectory(prefix="backfill-rehearsal-") as folder,
        recording(broker_archive(ensure(JarSet.BROKER))) as option,
        EmbeddedBroker(heap="512m", recording=option) as broker,
    ):
        kafka = KafkaSettings(broker.bootstrap)
        config = DemoConfig(Path(folder), _ROWS, 0, Upstream.CHANGE).configure(broker.bootstrap)
        create_topic(kafka, config.upstream, UPSTREAM_PARTITIONS)
        generator = ChangeGenerator(config.table)
        produce_rows(ChangeSender(kafka, config.upstream), generator, _ROWS)
        seen = 0

        def on_batch(report: BatchReport) -> None:
            nonlocal seen
            seen += 1
            if seen >= _BATCHES:
                service.stop()

        with (
            hosted_service(config, kafka, ServiceOptions(on_batch=on_batch), record_classes=True) as service,
            LiveLoad(kafka, config.upstream, generator, LIVE_RATE, ChangeMix()),
        ):
            service.compaction_least_rows = _COMPACTION_LEAST_ROWS
            service.run()
