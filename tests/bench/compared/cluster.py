"""A standalone Spark cluster of a master and two nodes, processes of this machine, against the service's own JVM."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench.live import SETTLE_S
from tests.bench.report.batch import Batch
from tests.bench.report.line import Line, Notify, median
from tests.bench.rig import BACKFILL_TIMEOUT_S, Rig, job, rig
from tests.kit.spark_cluster import spark_cluster

_LANES = 2
_WARM_UP = "bench-warm-up"


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows per second of a job's snapshot, the median batch afterwards, and the findings of `verify`."""

    rate: float
    batch_ms: float
    verdict: Line


def cluster(
    rows: int, seconds: float, rate: float, state: str | None, folder: Path, notify: Notify
) -> list[Line]:
    """A snapshot, and batches at a constant live load. `state`: of the service on the cluster, by default a folder."""
    place = folder / "spark"
    place.mkdir()
    with rig(folder) as bench:
        local = _measured(bench, "local", "local", rows, seconds, rate, notify)
        notify("starting a cluster")
        with spark_cluster(place, nodes=_LANES) as spark:
            where = "cluster" if state is None else state
            found = _measured(bench, "cluster", where, rows, seconds, rate, notify, spark=spark.section())
    against = "one process"
    what = f"a cluster of {_LANES} nodes, state in {'a folder' if state is None else state.partition(':')[0]}"
    verdict = replace(local.verdict, value=local.verdict.value + found.verdict.value)
    return [
        Line(f"{what}: snapshot of {rows:,} rows", found.rate, "rows/s", against, local.rate),
        Line(f"{what}: batch at {rate:g} changes/s", found.batch_ms, "ms", against, local.batch_ms),
        verdict,
    ]


def _measured(
    rigged: Rig,
    name: str,
    state: str,
    rows: int,
    seconds: float,
    rate: float,
    notify: Notify,
    **settings: Any,
) -> _Found:
    """With a job before the one that is measured, for a JVM that has just come up is slow."""
    bench, output = replace(rigged, upstream=f"bench-{name}"), f"bench-{name}-copy"
    notify(f"{name}: writing {rows:,} rows")
    generator = bench.fill(rows)
    with bench.service(state=state, jobs=[job(None, f"{_WARM_UP}-{name}")], lanes=_LANES, **settings) as run:
        notify(f"{name}: building the replica, and a backfill that is not measured")
        warm = run.await_batch(lambda batch: batch.completes(f"{_WARM_UP}-{name}"), BACKFILL_TIMEOUT_S)
        run.await_seconds(SETTLE_S)
        notify(f"{name}: backfill")
        bench.create(output)
        done = run.await_batch(lambda batch: batch.completes(output), BACKFILL_TIMEOUT_S)
        with bench.live(generator, rate):
            notify(f"{name}: {seconds:g} s of live load")
            run.await_seconds(SETTLE_S)
            batches: list[Batch] = run.await_seconds(seconds)
        verdict = bench.verdict(output)
    return _Found(run.snapshot_rate(done, since=warm.at), median(batch.took_ms for batch in batches), verdict)
