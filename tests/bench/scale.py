"""Costs of scale: more jobs, vnodes, partitions; and the time until a new job's first row is out."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from schemas.records import BARRIER_HEADER
from schemas.table import declare
from streaming.demo.latency import StableOffsets
from streaming.kafka.consumer import RangeReader, header_of, located
from streaming.kafka.topics import partitions_of
from tests.bench.live import AFTER_S, SETTLE_S, batch_lines
from tests.bench.report.batch import Batch, all_complete
from tests.bench.report.line import Line, Notify, median
from tests.bench.rig import (
    BACKFILL_TIMEOUT_S,
    BUILD_TIMEOUT_S,
    DECLARATION,
    OUTPUT_PARTITIONS,
    TABLE,
    Rig,
    job,
    rig,
)

_LOOK_S = 0.01
_CREATED = "bench-created"
_WARM_UP = "bench-warm-up"
_MANY_VNODES = 8_192


def created(rows: int, folder: Path, notify: Notify) -> list[Line]:
    """`backfill create --wait` beside a warm service: from its start until a reader has the first and the last row."""
    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        bench.fill(rows)
        with bench.service(state="created", jobs=[job(None, _WARM_UP)]) as run:
            notify("building the replica")
            run.await_batch(lambda batch: batch.completes(_WARM_UP), BUILD_TIMEOUT_S)
            run.await_seconds(SETTLE_S)
            notify("create --wait")
            first_s, last_s, command_s = _create_and_wait(bench, folder / "created.json")
        notify("verify")
        verdict = bench.verdict(_CREATED)
    of = f"`create --wait`, {rows:,} rows"
    return [
        Line(f"{of}: the first row is readable", first_s * 1_000, "ms", "target", 2_000),
        Line(f"{of}: the last row is readable", last_s * 1_000, "ms", "target", 4_000),
        Line(f"{of}: the command ends", command_s * 1_000, "ms"),
        verdict,
    ]


def _create_and_wait(bench: Rig, config: Path) -> tuple[float, float, float]:
    """Seconds until the first row, the last row, and the end of the command."""
    arguments = ["create", "-c", str(config), "--name", _CREATED, "--output", _CREATED, "--wait"]
    began = time.time()
    command = subprocess.Popen(
        [sys.executable, "-m", "streaming.cli.app", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while partitions_of(bench.kafka, _CREATED) is None and command.poll() is None:
        time.sleep(_LOOK_S)
    with StableOffsets(bench.kafka, bench.upstream, _CREATED, OUTPUT_PARTITIONS) as watch:
        command.wait(BACKFILL_TIMEOUT_S)
        ended = time.time()
        time.sleep(AFTER_S)
    first, last = _rows_readable(bench, watch)
    return first - began, last - began, ended - began


def _rows_readable(bench: Rig, watch: StableOffsets) -> tuple[float, float]:
    """When the first and the last row of an output could be read, in Unix seconds; it has rows and barriers alone."""
    seen: list[float] = []
    with RangeReader(bench.kafka) as reader:
        for partition, marks in enumerate(reader.watermarks(watch.topic)):
            offsets = [
                located(message)[1]
                for chunk in reader.read(watch.topic, {partition: (marks.earliest, marks.stable)})
                for message in chunk
                if header_of(message, BARRIER_HEADER) is None
            ]
            for offset in (offsets[0], offsets[-1]):
                readable = watch.readable_at(partition, offset)
                if readable is not None:
                    seen.append(readable)
    return min(seen), max(seen)


def many(rows: int, jobs: int, seconds: float, rate: float, folder: Path, notify: Notify) -> list[Line]:
    """Batches of many completed jobs on a table of many vnodes, against those of one on a table of the usual 64."""
    wide = declare({**DECLARATION, "vnode_count": _MANY_VNODES})
    medians = []
    for table, count in ((TABLE, 1), (wide, jobs)):
        names = [f"bench-copy-{number}" for number in range(count)]

        place = folder / str(count)
        place.mkdir()
        with rig(place, table) as bench:
            notify(f"{count} jobs, {table.vnode_count:,} vnodes")
            generator = bench.fill(rows)
            declared = [job(None, name) for name in names]
            with bench.service(state="many", jobs=declared) as run, bench.live(generator, rate):
                run.await_batch(all_complete(names), BACKFILL_TIMEOUT_S)
                run.await_seconds(SETTLE_S)
                medians.append(median(batch.took_ms for batch in run.await_seconds(seconds)))
    what = f"batch, median, {jobs} jobs and {_MANY_VNODES:,} vnodes"
    return [Line(what, medians[1], "ms", f"1 and {TABLE.vnode_count}", medians[0])]


def partitions(
    rows: int, count: int, seconds: float, rate: float, folder: Path, notify: Notify
) -> list[Line]:
    """Batches of an upstream of many partitions, a job completed, at a constant live load."""
    with rig(folder) as plain:
        bench = replace(plain, partitions=count)
        notify(f"writing {rows:,} rows to {count:,} partitions")
        generator = bench.fill(rows)
        with bench.service(state="partitions", jobs=[job(None)]) as run, bench.live(generator, rate):
            notify("backfill")
            run.await_batch(Batch.completes, BACKFILL_TIMEOUT_S)
            notify(f"{seconds:g} s of live load")
            run.await_seconds(SETTLE_S)
            batches = run.await_seconds(seconds)
        notify("verify")
        verdict = bench.verdict()
    lines = batch_lines(f"{count:,} upstream partitions, {rate:,.0f} changes/s", batches)
    return [replace(lines[0], compared=1_000), *lines[1:], verdict]
