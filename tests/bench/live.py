"""Latencies of live changes: during a backfill, after it, without a job, and at a high rate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from schemas.epoch import unix_ms_from_epoch
from streaming.demo.latency import Latencies, percentile
from streaming.events.forms import FORMATS, EventForm
from tests.bench.latencies import course_ms, during
from tests.bench.report.batch import Batch, all_complete, reads_snapshot
from tests.bench.report.line import CPU, Course, Line, Notify, course, median
from tests.bench.rig import BACKFILL_TIMEOUT_S, BUILD_TIMEOUT_S, Rig, job, rig

AFTER_S = 5.0
"""Until what was produced last has come out."""
SETTLE_S = 10.0
_CALM_S = 20.0
"""After a backfill, for its picture."""


def beside(rows: int, folder: Path, notify: Notify, *, latency_budget: str = "2s") -> list[Line]:
    """Latency of live changes beside a backfill with a latency budget, its rate, and the memory of it all."""
    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        notify("backfill with live load")
        with (
            bench.watch() as watch,
            bench.service(state="live", jobs=[job(latency_budget)]) as run,
            bench.live(generator),
        ):
            first = run.await_batch(reads_snapshot, BUILD_TIMEOUT_S)
            done = run.await_batch(Batch.completes, BACKFILL_TIMEOUT_S)
            run.await_seconds(_CALM_S + AFTER_S)
            rate, peak = run.snapshot_rate(done), run.peak_mib
            read = _rows_read(run.batches, first.at, done.at + _CALM_S)
        notify("reading what came out when")
        latencies = watch.latencies()
    of = f"backfill of {rows:,} rows, budget {latency_budget}"
    p50, p99 = _latency_lines(of, latencies.between(first.at, done.at), 2_500)
    return [
        p50,
        replace(p99, course=course_ms(latencies.between(first.at, done.at + _CALM_S), 0.99)),
        Line(f"{of}: snapshot rate", rate, "rows/s", "target", 40_000, read),
        Line(f"{of}: peak memory of driver, JVM and workers", peak, "MiB", "target", 3_072),
    ]


def _latency_lines(of: str, latencies: Latencies, target_p99_ms: float) -> list[Line]:
    """The median and the 99th percentile."""
    return [
        Line(f"{of}: live latency p50", latencies.percentile_ms(0.50), "ms"),
        Line(f"{of}: live latency p99", latencies.percentile_ms(0.99), "ms", "target", target_p99_ms),
    ]


def _rows_read(batches: Sequence[Batch], since: float, until: float) -> Course:
    """Snapshot rows of each second, as their batches end."""
    ended = [(batch.at, batch.snapshot_rows) for batch in batches if since < batch.at <= until]
    nothing = [(since + second, 0) for second in range(int(until - since) + 1)]
    return course(sorted(nothing + ended), 1.0, sum)


def compaction_line(of: str, spans: Sequence[tuple[float, float]], latencies: Latencies) -> Line:
    """The latencies of changes during compactions, and the rest of the time."""
    wider = [(since - 1.0, until) for since, until in spans]  # a change waits for its barrier
    inside, rest = (
        during(latencies, wider, outside=outside).percentile_ms(0.99) for outside in (False, True)
    )
    return Line(f"{of}: live latency p99 during compactions", inside, "ms", "the rest of the time", rest)


def batch_lines(of: str, batches: Sequence[Batch]) -> list[Line]:
    """The median batch, and the median of each of its steps."""
    return [
        Line(f"{of}: batch, median", median(batch.took_ms for batch in batches), "ms", "target", 150),
        *(
            Line(f"{of}: of which {step}", median(batch.step_ms[step] for batch in batches), "ms")
            for step in batches[0].step_ms
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Steady:
    batches: Sequence[Batch]
    latencies: Latencies
    cores: float
    peak_mib: float
    verdict: Line


def _completed(
    rows: int, seconds: float, rate: float, folder: Path, notify: Notify, **settings: Any
) -> _Steady:
    """A job that completes, then so many seconds at a constant live load. `settings` as of `Rig.service`."""
    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        with (
            bench.watch() as watch,
            bench.service(state="steady", jobs=[job(None)], **settings) as run,
            bench.live(generator, rate),
        ):
            notify("backfill")
            run.await_batch(Batch.completes, BACKFILL_TIMEOUT_S)
            notify(f"{seconds:g} s of live load")
            run.await_seconds(SETTLE_S)
            since = time.time()
            batches, cores = run.await_cores(seconds)
            until, peak_mib = time.time() - AFTER_S, run.peak_mib
        latencies = watch.latencies().between(since, until)
        notify("verify")
        return _Steady(batches, latencies, cores, peak_mib, bench.verdict())


def steady(rows: int, seconds: float, rate: float, folder: Path, notify: Notify) -> list[Line]:
    """Batches and latencies after completion, at a constant live load."""
    found = _completed(rows, seconds, rate, folder, notify)
    of = f"{rate:,.0f} changes/s for {seconds:g} s after completion"
    return [
        *batch_lines(of, found.batches),
        *_latency_lines(of, found.latencies, 1_250),
        Line(f"{of}: {CPU}", found.cores, "cores"),
        Line(f"{of}: peak memory of driver, JVM and workers", found.peak_mib, "MiB", "target", 3_072),
        found.verdict,
    ]


def frequent(
    rows: int, interval_ms: int, seconds: float, rate: float, folder: Path, notify: Notify
) -> list[Line]:
    """Live changes with barriers several times a second."""
    found = _completed(rows, seconds, rate, folder, notify, barrier_interval=f"{interval_ms}ms")
    of = f"barriers every {interval_ms} ms, {rate:,.0f} changes/s"
    p50, p99 = _latency_lines(of, found.latencies, 700)
    return [
        *batch_lines(of, found.batches),
        replace(p50, compared_with="target", compared=350),
        p99,
        Line(f"{of}: {CPU}", found.cores, "cores"),
        found.verdict,
    ]


def idle(rows: int, seconds: float, folder: Path, notify: Notify) -> list[Line]:
    """Without any job: batches, and how old a barrier is when its batch is done."""
    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        with bench.service(state="idle", jobs=[]) as run, bench.live(generator):
            notify("building the replica")
            run.await_changes(rows)
            notify(f"{seconds:g} s of live load")
            run.await_seconds(SETTLE_S)
            batches, cores = run.await_cores(seconds)
    return [
        *batch_lines("no job", batches),
        Line(f"no job: {CPU}", cores, "cores"),
        Line("no job: age of a barrier, p99", percentile(_ages_ms(batches), 0.99), "ms", "target", 1_800),
    ]


def quiet(rows: int, jobs: int, seconds: float, folder: Path, notify: Notify) -> list[Line]:
    """Some completed jobs and no changes at all, one barrier a second: batches, and the CPU of the whole tree."""
    names = [f"bench-copy-{number}" for number in range(jobs)]

    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        bench.fill(rows)
        with bench.service(state="quiet", jobs=[job(None, name) for name in names]) as run:
            notify(f"backfill of {jobs} jobs")
            run.await_batch(all_complete(names), BACKFILL_TIMEOUT_S)
            run.await_seconds(SETTLE_S)
            notify(f"{seconds:g} s without changes")
            batches, cores = run.await_cores(seconds)
        notify("verify")
        verdict = bench.verdict(*names)
    of = f"{jobs} completed jobs, no changes"
    return [
        *batch_lines(of, batches),
        Line(f"{of}: {CPU}", cores, "cores", "target", 0.15),
        Line(f"{of}: age of a barrier, p99", percentile(_ages_ms(batches), 0.99), "ms", "target", 1_800),
        verdict,
    ]


def _ages_ms(batches: Sequence[Batch]) -> list[float]:
    return [batch.at * 1_000 - unix_ms_from_epoch(batch.epoch) for batch in batches]


def sustained(rows: int, rate: float, seconds: float, folder: Path, notify: Notify) -> list[Line]:
    """A high live rate with one job completed: what comes out a second, and whether barriers get older.

    Of `upsert-json` every change needs its row before, as the output has it.
    """
    lines: list[Line] = []
    for form in (EventForm.CHANGE, EventForm.UPSERT_JSON):
        with rig(folder) as bench:
            lines += _sustained(replace(bench, format=FORMATS[form]), form, rows, rate, seconds, notify)
    return lines


def _sustained(
    bench: Rig, form: EventForm, rows: int, rate: float, seconds: float, notify: Notify
) -> list[Line]:
    notify(f"{form}: writing {rows:,} rows")
    generator = bench.fill(rows)
    with bench.service(state=f"sustained-{form}", jobs=[job(None)]) as run:
        notify("backfill")
        run.await_batch(Batch.completes, BACKFILL_TIMEOUT_S)
        notify(f"{rate:,.0f} changes/s for {seconds:g} s")
        with bench.live(generator, rate) as load:
            run.await_seconds(SETTLE_S)
            before, began = load.sent.total, time.time()
            batches, cores = run.await_cores(seconds)
            offered = (load.sent.total - before) / (time.time() - began)
    notify("verify")
    verdict = bench.verdict()
    third = max(len(batches) // 3, 1)
    first_ms, last_ms = (median(_ages_ms(part)) for part in (batches[:third], batches[-third:]))
    rate_out = sum(batch.changes for batch in batches) / (batches[-1].at - began)
    of = f"{rate:,.0f} changes/s with a job completed, from {form}"
    return [
        Line(f"{of}: changes that come out", rate_out, "changes/s", "the rate asked for", rate),
        Line(f"{of}: changes that were sent", offered, "changes/s", "the rate asked for", rate),
        Line(f"{of}: age of a barrier, last third", last_ms, "ms", "first third", first_ms),
        Line(f"{of}: {CPU}", cores, "cores"),
        replace(verdict, what=f"{of}: {verdict.what}"),
    ]
