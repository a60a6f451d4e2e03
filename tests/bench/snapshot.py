"""Rates of snapshots: against Spark's pass-through and librdkafka alone; several jobs at once, many vnodes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from schemas.table import declare
from streaming.events.generator import ChangeGenerator
from tests.bench.passthrough import passthrough_rows_per_s
from tests.bench.raw import raw_rows_per_s
from tests.bench.report.batch import Batch, all_complete
from tests.bench.report.line import Line, Notify, median
from tests.bench.rig import BACKFILL_TIMEOUT_S, DECLARATION, OUTPUT_PARTITIONS, TABLE, Rig, job, rig

_SECOND = "bench-second"
_WIDE_VNODES, _WIDE_PARTITIONS = 1_024, 32
_WIDE_S = 30.0


def snapshot(rows: int, folder: Path, notify: Notify) -> list[Line]:
    """Snapshots into Kafka with transactions, no latency budget, beside live changes; against the pass-through.

    That one runs twice, and its second run counts; so it is with two jobs here, one after the other. Then the output's
    records go once more by librdkafka alone, already encoded: the limit.
    """
    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        notify("Spark's pass-through")
        yardstick = passthrough_rows_per_s(bench.kafka, bench.upstream, "bench-through")
        notify("backfill")
        with bench.service(state="snapshot", jobs=[job(None)]) as run, bench.live(generator):
            cold = run.await_batch(Batch.completes, BACKFILL_TIMEOUT_S)
            bench.create(_SECOND)
            warm = run.await_batch(lambda batch: batch.completes(_SECOND), BACKFILL_TIMEOUT_S)
        rate, peak = run.snapshot_rate(warm, since=cold.at), run.peak_mib
        notify("librdkafka alone")
        limit = raw_rows_per_s(bench.kafka, _SECOND, "bench-raw", rows)
        notify("verify")
        verdict = bench.verdict(_SECOND)
    what = f"snapshot of {rows:,} rows, exactly once"
    return [
        Line(what, rate, "rows/s", "Spark pass-through", yardstick),
        Line(f"{what}, of the limit", rate, "rows/s", "librdkafka alone", limit),
        Line(
            f"{what}, first after a start", run.snapshot_rate(cold), "rows/s", "Spark pass-through", yardstick
        ),
        Line(f"{what}: peak memory of driver, JVM and workers", peak, "MiB", "target", 3_072),
        verdict,
    ]


def jobs(rows: int, counts: Sequence[int], folder: Path, notify: Notify) -> list[Line]:
    """Several jobs at once on one replica, beside live changes, against one job alone; each is verified."""
    names = [f"bench-copy-{number}" for number in range(1 + sum(counts))]
    unused = iter(names)
    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        notify("building the replica")
        bench.build(rows, state="jobs")
        notify("one alone")
        alone = _took_s(bench, generator, [next(unused)])
        lines = []
        for count in counts:
            notify(f"{count} at once")
            together = _took_s(bench, generator, list(islice(unused, count)))
            what = f"{count} jobs at once, {rows:,} rows"
            lines.append(Line(what, together * 1_000, "ms", "one alone", alone * 1_000))
        notify("verify")
        return [*lines, bench.verdict(*names)]


def _took_s(bench: Rig, generator: ChangeGenerator, names: list[str]) -> float:

    declared = [job(None, name) for name in names]
    with bench.service(state="jobs", jobs=declared) as run, bench.live(generator):
        return run.snapshot_s(run.await_batch(all_complete(names), BACKFILL_TIMEOUT_S))


def wide(rows: int, folder: Path, notify: Notify) -> list[Line]:
    """Batches of a job with 1,024 vnodes and 32 output partitions, after completion, against 64 and 4."""
    wide_table = declare({**DECLARATION, "vnode_count": _WIDE_VNODES})
    medians = []
    for table, partitions in ((wide_table, _WIDE_PARTITIONS), (TABLE, OUTPUT_PARTITIONS)):
        place = folder / str(partitions)
        place.mkdir()
        with rig(place, table) as bench:
            notify(f"{table.vnode_count} vnodes, {partitions} partitions")
            generator = bench.fill(rows)
            declared = job(None, output_partitions=partitions)
            with bench.service(state="wide", jobs=[declared]) as run, bench.live(generator):
                run.await_batch(Batch.completes, BACKFILL_TIMEOUT_S)
                medians.append(median(batch.took_ms for batch in run.await_seconds(_WIDE_S)))
    what = f"batch, median, {_WIDE_VNODES:,} vnodes and {_WIDE_PARTITIONS} partitions"
    narrow = f"{TABLE.vnode_count} and {OUTPUT_PARTITIONS}"
    return [Line(what, medians[0], "ms", narrow, medians[1])]
