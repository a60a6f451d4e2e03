"""What is measured. Each case gives lines of the table: a value, what it is compared with, the ratio."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from schemas.epoch import unix_ms_from_epoch
from streaming.bench.latency import StableOffsets, live_latencies_ms, percentile
from streaming.bench.passthrough import passthrough_rows_per_s
from streaming.bench.rig import OUTPUT, Batch, Rig, ServiceRun
from streaming.runtime.broker import EmbeddedBroker
from streaming.runtime.kafka import KafkaSettings
from streaming.runtime.topics import create_topic
from streaming.upstream.generator import ChangeGenerator, Shares
from streaming.upstream.produce import LiveChanges
from streaming.verify.findings import Report
from streaming.verify.judge import verify_topics

OUTPUT_PARTITIONS = 4
LIVE_RATE = 500
_BUILD_TIMEOUT_S, _BACKFILL_TIMEOUT_S = 600.0, 900.0
_SHARES = Shares(updates=0.5, deletes=0.2)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. `ratio` is value / compared, None where nothing is compared."""

    what: str
    value: float
    unit: str
    compared_with: str = ""
    compared: float | None = None

    @property
    def ratio(self) -> float | None:
        """How the value stands to what it is compared with."""
        return self.value / self.compared if self.compared else None

    def to_dict(self) -> dict[str, Any]:
        """For the result file."""
        return {**asdict(self), "ratio": self.ratio}


Tell = Callable[[str], None]


@contextmanager
def rig(folder: Path) -> Iterator[Rig]:
    """A broker of its own with an empty upstream."""
    with EmbeddedBroker(heap="1g") as broker:
        yield Rig(KafkaSettings(broker.bootstrap), folder)


def _job(latency_budget: str | None, name: str = OUTPUT) -> dict[str, Any]:
    return {"name": name, "output": name, "latency_budget": latency_budget}


def _is_complete(batch: Batch, name: str = OUTPUT) -> bool:
    return bool(batch.fields.get(f"vnodes_done.{name}") == batch.fields["vnodes"])


def _reads_snapshot(batch: Batch) -> bool:
    return batch.snapshot_rows > 0


def _snapshot_rate(run: ServiceRun, done: Batch) -> float:
    """Rows per second from the start of the first batch that read until the end of the last."""
    read = sum(batch.snapshot_rows for batch in run.batches if batch.at <= done.at)
    return read / _snapshot_s(run, done)


def _snapshot_s(run: ServiceRun, done: Batch) -> float:
    first = next(batch for batch in run.batches if _reads_snapshot(batch))
    return done.at - (first.at - first.took_ms / 1_000)


def snapshot(rows: int, folder: Path, tell: Tell) -> list[Line]:
    """Snapshot into Kafka with transactions, no latency budget, beside live changes; against the pass-through."""
    with rig(folder) as bench:
        tell(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        tell("Spark's pass-through")
        yardstick = passthrough_rows_per_s(bench.kafka, bench.upstream, "bench-through")
        tell("backfill")
        with (
            bench.service(state="snapshot", jobs=[_job(None)]) as run,
            LiveChanges(bench.kafka, bench.upstream, generator, LIVE_RATE, _SHARES),
        ):
            done = run.await_batch(_is_complete, _BACKFILL_TIMEOUT_S)
            rate = _snapshot_rate(run, done)
    return [
        Line(f"snapshot of {rows:,} rows, exactly once", rate, "rows/s", "Spark pass-through", yardstick),
    ]


def live(rows: int, folder: Path, tell: Tell, *, latency_budget: str = "2s") -> list[Line]:
    """Latency of live changes beside a backfill with a latency budget, its rate, and the memory of it all."""
    with rig(folder) as bench:
        tell(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        create_topic(bench.kafka, OUTPUT, OUTPUT_PARTITIONS)
        tell("backfill with live load")
        with (
            bench.service(state="live", jobs=[_job(latency_budget)]) as run,
            LiveChanges(bench.kafka, bench.upstream, generator, LIVE_RATE, _SHARES),
            StableOffsets(bench.kafka, OUTPUT, OUTPUT_PARTITIONS) as watch,
        ):
            first = run.await_batch(_reads_snapshot, _BUILD_TIMEOUT_S)
            done = run.await_batch(_is_complete, _BACKFILL_TIMEOUT_S)
            run.await_batch(lambda batch: batch.at > done.at + 5, 60)
            rate, peak = _snapshot_rate(run, done), run.peak_mib
        latencies = live_latencies_ms(bench.kafka, bench.upstream, watch, since=first.at, until=done.at)
    of = f"backfill of {rows:,} rows, budget {latency_budget}"
    return [
        Line(f"live latency p50, {of}", percentile(latencies, 0.50), "ms"),
        Line(f"live latency p99, {of}", percentile(latencies, 0.99), "ms", "issue's limit", 4_000),
        Line(f"snapshot rate, {of}", rate, "rows/s"),
        Line(f"peak memory of driver, JVM and workers, {of}", peak, "MiB"),
    ]


def steady(rows: int, seconds: float, folder: Path, tell: Tell) -> list[Line]:
    """Batches after completion, at a constant live load; the last fifth of them against the first."""
    with rig(folder) as bench:
        tell(f"writing {rows:,} rows")
        generator: ChangeGenerator = bench.fill(rows)
        create_topic(bench.kafka, OUTPUT, OUTPUT_PARTITIONS)
        with (
            bench.service(state="steady", jobs=[_job(None)]) as run,
            LiveChanges(bench.kafka, bench.upstream, generator, LIVE_RATE, _SHARES),
            StableOffsets(bench.kafka, OUTPUT, OUTPUT_PARTITIONS) as watch,
        ):
            tell("backfill")
            done = run.await_batch(_is_complete, _BACKFILL_TIMEOUT_S)
            tell(f"{seconds:g} s of live load")
            run.await_batch(lambda batch: batch.at > done.at + seconds, seconds + 120)
            batches = [batch for batch in run.batches if batch.at > done.at]
            until, peak = time.time(), run.peak_mib
        latencies = live_latencies_ms(bench.kafka, bench.upstream, watch, since=done.at, until=until - 5)
        tell("verify")
        report = verify_topics(bench.kafka, bench.upstream, OUTPUT, bench.table)
    took = [batch.took_ms for batch in batches]
    fifth = max(len(took) // 5, 1)
    of = f"{LIVE_RATE} changes/s for {seconds:g} s after completion"
    return [
        Line(f"batch, median, {of}", _median(took), "ms"),
        Line(
            "batch, median of the last fifth",
            _median(took[-fifth:]),
            "ms",
            "first fifth",
            _median(took[:fifth]),
        ),
        Line(f"live latency p50, {of}", percentile(latencies, 0.50), "ms"),
        Line(f"live latency p99, {of}", percentile(latencies, 0.99), "ms"),
        Line(f"peak memory of driver, JVM and workers, {of}", peak, "MiB"),
        Line(f"findings of verify in {report.output_records:,} output records", len(report.findings), ""),
    ]


def jobs(rows: int, count: int, folder: Path, tell: Tell) -> list[Line]:
    """Several jobs at once on one replica, beside live changes, against one job alone; each is verified."""
    took_s: list[float] = []
    with rig(folder) as bench:
        tell(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        tell("building the replica")
        with bench.service(state="jobs", jobs=[]) as run:
            run.await_batch(lambda batch: batch.fields["changes"] >= rows, _BUILD_TIMEOUT_S)
        names = [f"bench-copy-{number}" for number in range(count + 1)]
        for these in (names[:1], names[1:]):
            tell(f"{len(these)} at once")
            with (
                bench.service(state="jobs", jobs=[_job(None, name) for name in these]) as run,
                LiveChanges(bench.kafka, bench.upstream, generator, LIVE_RATE, _SHARES),
            ):
                done = run.await_batch(
                    lambda batch: all(_is_complete(batch, name) for name in these),  # noqa: B023 (asked at once)
                    _BACKFILL_TIMEOUT_S,
                )
                took_s.append(_snapshot_s(run, done))
        tell("verify")
        reports = [verify_topics(bench.kafka, bench.upstream, name, bench.table) for name in names]
    alone, together = took_s
    sent = sum(report.output_records for report in reports)
    return [
        Line(f"{count} jobs at once, {rows:,} rows", together * 1_000, "ms", "one alone", alone * 1_000),
        Line(f"findings of verify in {sent:,} records of {count + 1} outputs", _findings(reports), ""),
    ]


def _findings(reports: Sequence[Report]) -> int:
    return sum(len(report.findings) for report in reports)


def start(rows: int, restarts: int, folder: Path, tell: Tell) -> list[Line]:
    """The first start, and starts after a SIGKILL of everything; until the first barrier injected since is committed.

    A restart has the killed batch to recover, and the look at the upstream behind it, before that barrier.
    """
    took_ms: list[float] = []
    with rig(folder) as bench:
        tell(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        create_topic(bench.kafka, OUTPUT, OUTPUT_PARTITIONS)
        with LiveChanges(bench.kafka, bench.upstream, generator, LIVE_RATE, _SHARES):
            began = time.time()
            for number in range(restarts + 1):
                tell(f"restart {number} of {restarts}" if number else "first start")
                with bench.service(state="start", jobs=[_job("2s")]) as run:
                    done = run.await_batch(partial(_began_after, began), _BUILD_TIMEOUT_S)
                    took_ms.append((done.at - began) * 1_000)
                    run.await_batch(partial(_ended_after, done.at + random.uniform(0, 2)), 60)
                    began = run.kill()
        tell("verify")
        report = verify_topics(bench.kafka, bench.upstream, OUTPUT, bench.table)
    first, *again = took_ms
    return [
        Line(f"start to the first committed barrier, {rows:,} rows", first, "ms", "issue's limit", 15_000),
        Line(f"restart after SIGKILL, median of {restarts}", _median(again), "ms", "issue's limit", 15_000),
        Line(f"restart after SIGKILL, most of {restarts}", max(again), "ms", "issue's limit", 20_000),
        Line(f"findings of verify in {report.output_records:,} output records", len(report.findings), ""),
    ]


def _ended_after(instant: float, batch: Batch) -> bool:
    return batch.at > instant


def _began_after(instant: float, batch: Batch) -> bool:
    """Whether the batch's last barrier was injected after an instant (Unix seconds)."""
    return unix_ms_from_epoch(int(batch.fields["epoch"])) > instant * 1_000


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0
