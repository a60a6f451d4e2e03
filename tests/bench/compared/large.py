"""A table of any size: its build, a snapshot of it, and one with a latency budget beside live changes."""

from __future__ import annotations

import time
from pathlib import Path

from streaming.demo.latency import Latencies
from tests.bench.live import AFTER_S, SETTLE_S, compaction_line
from tests.bench.report.batch import Batch, reads_snapshot
from tests.bench.report.line import Line, Notify
from tests.bench.rig import BACKFILL_TIMEOUT_S, TABLE, Rig, ServiceRun, rig
from tests.bench.totals import last_common_epoch, totals

_FREE, _BUDGETED = "bench-free", "bench-budgeted"
_LEAST_RATE = 50_000
"""Rows a second below which a step is given up."""


def large(rows: int, folder: Path, notify: Notify) -> list[Line]:
    """Nothing is compared record by record, which takes more memory than there is: both topics have to add up alike."""
    of, timeout_s = f"a table of {rows:,} rows", max(BACKFILL_TIMEOUT_S, rows / _LEAST_RATE)
    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        notify("building the replica")
        began = time.time()
        with bench.service(state="large", jobs=[]) as run:
            built = run.await_changes(rows)
            with bench.live(generator):
                run.await_seconds(SETTLE_S)
                notify("a snapshot")
                bench.create(_FREE)
                done = run.await_batch(lambda batch: batch.completes(_FREE), timeout_s)
                rate = run.snapshot_rate(done)
                notify("a snapshot with a budget of 2 s")
                first, last, latencies = _budgeted(bench, run, timeout_s, since=done.at)
            peak = run.peak_mib
        notify("adding up both topics")
        verdict = _same_totals(bench)
    beside = latencies.between(first.at, last.at)
    compactions = [(since, until) for since, until in run.compactions if until > first.at]
    return [
        Line(f"{of}: built", rows / (built.at - began), "rows/s", "target", 200_000),
        Line(f"{of}: snapshot", rate, "rows/s"),
        Line(f"{of}: snapshot, budget 2s", run.snapshot_rate(last, since=done.at), "rows/s"),
        Line(f"{of}: live latency p99, budget 2s", beside.percentile_ms(0.99), "ms", "target", 2_200),
        *([compaction_line(of, compactions, latencies)] if compactions else []),
        Line(f"{of}: peak memory of driver, JVM and workers", peak, "MiB", "target", 2_560),
        verdict,
    ]


def _budgeted(
    bench: Rig, run: ServiceRun, timeout_s: float, *, since: float
) -> tuple[Batch, Batch, Latencies]:
    """The first and the last batch that read the snapshot, and what live changes took meanwhile."""
    with bench.watch(_BUDGETED, latency_budget="2s") as watch:
        bench.create(_BUDGETED, latency_budget="2s")
        first = run.await_batch(lambda batch: batch.at > since and reads_snapshot(batch), timeout_s)
        last = run.await_batch(lambda batch: batch.completes(_BUDGETED), timeout_s)
        run.await_seconds(AFTER_S)
    return first, last, watch.latencies()


def _same_totals(bench: Rig) -> Line:
    """The number of outputs that add up to something else than the upstream."""
    outputs = (_FREE, _BUDGETED)
    epoch = min(last_common_epoch(bench.kafka, output) for output in outputs)
    expected, *found = (
        totals(bench.kafka, topic, TABLE.columns, TABLE.column_names, epoch)
        for topic in (bench.upstream, *outputs)
    )
    differing = sum(each != expected for each in found)
    return Line("outputs that add up to something else than the upstream", differing, "")
