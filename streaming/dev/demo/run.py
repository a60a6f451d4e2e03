"""The demo, act by act.

    broker     embedded, in a folder
    upstream   a table of many rows, then live changes until the end
    Spark
    replica    the service's first batch: the whole topic, sorted by key into Delta
    snapshot   the job's backfill, beside the live changes
    live       some more live load after completion
    verify     the judge, who knows nothing of how the output came about

The service runs in a thread of its own, as it would in any process; this one watches it by its batch reports.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

from schemas.settings.config import ServiceConfig
from streaming.dev.bench.latency import Latencies, StableOffsets
from streaming.dev.broker import EmbeddedBroker
from streaming.dev.demo.config import LIVE_RATE, UPSTREAM_PARTITIONS, Scene, condition_of, the_job
from streaming.dev.demo.console import Screen
from streaming.dev.demo.progress import Course
from streaming.dev.generator import ChangeGenerator, Shares
from streaming.dev.produce import ChangeSender, LiveChanges, Sent, produce_rows
from streaming.kafka.clients import KafkaSettings
from streaming.kafka.topics import create_topic
from streaming.service.bootstrap import hosted_service
from streaming.service.service import Service
from streaming.verify.findings import Report
from streaming.verify.judge import verify_topics

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
class Latency:
    """Milliseconds from produced to readable: the median and the 99th percentile."""

    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, latencies: Latencies) -> Latency | None:
        """None if nothing was measured."""
        if not len(latencies):
            return None
        return cls(latencies.percentile_ms(0.50), latencies.percentile_ms(0.99))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    bootstrap: str
    course: Course
    live: Sent
    during_snapshot: Latency | None
    afterwards: Latency | None
    report: Report


def play(scene: Scene, screen: Screen) -> Outcome:
    """Run the demo. Afterwards every process that it started is gone; the scene's folder stays.

    Raises: BackfillError of whatever ended it early. What the judge found is in the outcome, not raised.
    """
    with ExitStack() as stack:
        screen.begin(BROKER, "a Kafka in one process")
        broker = stack.enter_context(EmbeddedBroker(data=scene.broker_data))
        screen.end(BROKER, broker.bootstrap)
        kafka, config = KafkaSettings(broker.bootstrap), scene.configure(broker.bootstrap)
        generator = _fill(scene, kafka, config, screen)
        course, live, watch = _serve(scene, kafka, config, generator, screen)
        during, afterwards = _latencies(course, live, watch.latencies())
        report = _verify(kafka, config, screen)
    return Outcome(broker.bootstrap, course, live, during, afterwards, report)


def _fill(scene: Scene, kafka: KafkaSettings, config: ServiceConfig, screen: Screen) -> ChangeGenerator:
    """The upstream's rows, before anybody looks at them."""
    screen.begin(UPSTREAM, "", total=scene.rows)
    create_topic(kafka, config.upstream, UPSTREAM_PARTITIONS)
    generator, sent = ChangeGenerator(config.table), 0

    def tell(count: int) -> None:
        nonlocal sent
        sent += count
        screen.tell(UPSTREAM, f"{sent:,} rows", completed=sent, total=scene.rows)

    produce_rows(ChangeSender(kafka, config.upstream), generator, scene.rows, on_sent=tell)
    screen.end(UPSTREAM, f"{scene.rows:,} rows, {UPSTREAM_PARTITIONS} partitions")
    return generator


def _serve(
    scene: Scene, kafka: KafkaSettings, config: ServiceConfig, generator: ChangeGenerator, screen: Screen
) -> tuple[Course, Sent, StableOffsets]:
    """The service and its live load, from Spark's start until all live changes are in the output."""
    job = the_job(config)
    course = Course(job.name, config.table.vnode_count)
    create_topic(kafka, job.output, job.output_partitions)  # there already, so that it can be watched
    watch = StableOffsets(kafka, config.upstream, job.output, job.output_partitions)
    with ExitStack() as stack:
        stack.enter_context(watch)
        load = LiveChanges(kafka, config.upstream, generator, LIVE_RATE, Shares())
        stack.enter_context(load)
        screen.begin(LIVE, f"{LIVE_RATE}/s", total=scene.live_s)
        screen.begin(SPARK, "starting its JVM")
        service = stack.enter_context(hosted_service(config, on_batch=course.note))
        screen.end(SPARK, f"{service.spark().sparkContext.defaultParallelism} cores")
        screen.begin(REPLICA, "the topic goes into Delta, by key")
        pool = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="service"))
        stack.callback(service.stop)
        running = pool.submit(service.run)
        sent = _follow(scene, course, load, running, screen)
        _stop(service, course, running)
        screen.end(LIVE, f"{sent.total:,} sent, none waiting")
    return course, sent, watch


def _follow(scene: Scene, course: Course, load: LiveChanges, running: Future[None], screen: Screen) -> Sent:
    """Show the service's way to completion and the live load until its end."""
    shown = REPLICA
    while True:
        course.await_news(_REFRESH_S)
        if running.done():
            running.result()  # raises what ended it
        if shown is REPLICA and course.replica_at is not None:
            screen.end(REPLICA, f"{course.about_rows:,} changes, now in Delta")
            screen.begin(SNAPSHOT, "", total=course.about_rows)
            shown = SNAPSHOT
        if shown is SNAPSHOT:
            _show_snapshot(course, screen)
        if shown is SNAPSHOT and course.complete_at is not None:
            screen.end(SNAPSHOT, f"{course.snapshot_rows:,} rows, {course.snapshot_rate:,.0f} rows/s")
            shown = LIVE
        over_s = 0.0 if course.complete_at is None else time.time() - course.complete_at
        screen.tell(LIVE, _live_note(course, load), completed=over_s, total=scene.live_s)
        if shown is LIVE and over_s >= scene.live_s:
            return load.stop()


def _show_snapshot(course: Course, screen: Screen) -> None:
    left = "" if course.left_s is None else f", {course.left_s:.0f} s left"
    screen.tell(
        SNAPSHOT,
        f"{course.snapshot_rows:,} rows, {course.snapshot_rate:,.0f}/s{left}",
        completed=course.snapshot_rows,
        total=course.about_rows,
    )


def _live_note(course: Course, load: LiveChanges) -> str:
    lag = "" if course.replica_at is None else f", lag {course.lag_s:.1f} s"
    return f"{LIVE_RATE}/s, {load.sent.total:,} sent{lag}"


def _stop(service: Service, course: Course, running: Future[None]) -> None:
    """End the service once a barrier behind the last live change is out."""
    end = time.time()
    while not course.has_passed(end) and not running.done():
        course.await_news(_REFRESH_S)
    service.stop()
    running.result()


def _latencies(course: Course, live: Sent, latencies: Latencies) -> tuple[Latency | None, Latency | None]:
    """Of changes produced during the snapshot, and after it."""
    assert course.replica_at is not None  # it is complete
    assert course.complete_at is not None
    bounds = (course.replica_at, course.complete_at, live.last_at_ms / 1_000)
    during, afterwards = (Latency.of(latencies.between(since, until)) for since, until in pairwise(bounds))
    return during, afterwards


def _verify(kafka: KafkaSettings, config: ServiceConfig, screen: Screen) -> Report:
    job = the_job(config)
    screen.begin(VERIFY, "record by record")
    report = verify_topics(
        kafka,
        config.upstream,
        job.output,
        config.table,
        columns=job.columns,
        condition=condition_of(config),
        progress=lambda read, total: screen.tell(
            VERIFY, f"{read:,} of {total:,} records", completed=read, total=total
        ),
        require_complete=True,
    )
    screen.end(VERIFY, "the law holds" if report.clean else f"{report.found} findings")
    return report
