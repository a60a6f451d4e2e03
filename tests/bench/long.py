"""Long runs: half an hour of live load, of compactions, and of kills."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streaming.demo.latency import Latencies, percentile
from streaming.events.forms import FORMATS, EventForm
from tests.bench.live import AFTER_S, SETTLE_S, compaction_line
from tests.bench.report.batch import OUTPUT, Batch, reads_snapshot
from tests.bench.report.line import Course, Line, Notify, course, median
from tests.bench.rig import BACKFILL_TIMEOUT_S, BUILD_TIMEOUT_S, Rig, ServiceRun, job, rig

_LATER = "bench-later"
_STEP_S = 15.0
_FIFTH = 0.2
_WARM_S = 60.0
"""After a kill, until a JVM is as fast as it gets."""
_SOAKED: dict[str, Any] = {"format": "debezium", "encoding": "json", "filter": "amount >= 10"}


def history(rows: int, rate: float, seconds: float, folder: Path, notify: Notify) -> list[Line]:
    """A long time at a live load: its last fifth against its first, and compactions against the rest.

    A job after it stands against one before it: each is the first work of a service just started.
    """
    with rig(folder) as bench:
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        notify("building the replica")
        bench.build(rows, state="history")
        with bench.watch() as watch:
            with (
                bench.service(state="history", jobs=[job(None)]) as run,
                bench.live(generator, rate),
            ):
                before = _slices_us_per_row(run, OUTPUT)
                notify(f"{seconds:g} s of live load")
                run.await_seconds(SETTLE_S)
                batches = run.await_seconds(seconds)
            notify("a job after it")
            with (
                bench.service(state="history", jobs=[job(None), job(None, _LATER)]) as late,
                bench.live(generator, rate),
            ):
                after = _slices_us_per_row(late, _LATER)
        notify("reading what came out when")
        latencies = watch.latencies().between(batches[0].at, batches[-1].at - AFTER_S)
        notify("verify")
        verdict = bench.verdict(OUTPUT, _LATER)
    of = f"{rate:,.0f} changes/s for {seconds:g} s"
    return [
        *_flat(of, run, batches, latencies),
        *_beside_compactions(of, run, latencies),
        Line(f"{of}: slices of a job after it", after, "µs a row", "a job before it", before),
        verdict,
    ]


def _slices_us_per_row(run: ServiceRun, name: str) -> float:
    """The time of the lanes' snapshot reads of a job, in microseconds a row."""
    done = run.await_batch(lambda batch: batch.completes(name), BUILD_TIMEOUT_S)
    read = [batch for batch in run.batches if reads_snapshot(batch) and batch.at <= done.at]
    steps = [batch.fields["lane_steps"] for batch in read]
    took_ms = sum(step["overlay"] + step["snapshot"] for step in steps)
    return float(took_ms) * 1_000 / sum(batch.snapshot_rows for batch in read)


def _flat(of: str, run: ServiceRun, batches: Sequence[Batch], latencies: Latencies) -> list[Line]:
    """The last fifth against the first."""
    began, ended = batches[0].at, batches[-1].at
    fifth = (ended - began) * _FIFTH
    took = [(batch.at, batch.took_ms) for batch in batches]
    files = [(batch.at, float(batch.fields["log_files"])) for batch in batches]
    memory = [(at, used) for at, used in run.memory_mib if began <= at <= ended]

    def parts(values: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
        return (
            [value for at, value in values if at <= began + fifth],
            [value for at, value in values if at >= ended - fifth],
        )

    lines = []
    for what, unit, values, total in (
        ("batch, median", "ms", took, median),
        ("files of the log, most", "", files, max),
        ("memory of driver, JVM and workers, median", "MiB", memory, median),
    ):
        first, last = (total(part) for part in parts(values))
        lines.append(
            Line(
                f"{of}: {what}, last fifth", last, unit, "first fifth", first, course(values, _STEP_S, total)
            )
        )
    first, last = (
        latencies.between(since, since + fifth).percentile_ms(0.99) for since in (began, ended - fifth)
    )
    lines.append(
        Line(f"{of}: live latency p99, last fifth", last, "ms", "first fifth", first, _p99_course(latencies))
    )
    return lines


def _p99_course(latencies: Latencies) -> Course:
    order = latencies.produced_s.argsort()
    pairs = zip(latencies.produced_s[order].tolist(), latencies.took_ms[order].tolist(), strict=True)
    return course(pairs, _STEP_S, lambda values: percentile(values, 0.99))


def _beside_compactions(of: str, run: ServiceRun, latencies: Latencies) -> list[Line]:
    return [
        Line(f"{of}: compactions", len(run.compactions), ""),
        compaction_line(of, run.compactions, latencies),
    ]


@dataclass(frozen=True, slots=True)
class _Leg:
    """From one start to the kill: when it was warm, when it ended, and its memory, as (when, MiB)."""

    warm_at: float
    ended_at: float
    memory_mib: list[tuple[float, float]]

    @property
    def last_memory_mib(self) -> float:
        """The median of the last minute."""
        return median(used for at, used in self.memory_mib if at > self.ended_at - _WARM_S)


def soak(
    rows: int, rate: float, seconds: float, kill_every_s: float, folder: Path, notify: Notify
) -> list[Line]:
    """A backfill and a long time at a high live load, with a SIGKILL of everything now and then; then `verify`.

    From `upsert-json`, and filtered, so that each change needs its row before.
    """
    legs: list[_Leg] = []
    with rig(folder) as own:
        bench = replace(own, format=FORMATS[EventForm.UPSERT_JSON])
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        with bench.watch(**_SOAKED) as watch, bench.live(generator, rate) as load:
            began = time.time()
            while time.time() < began + seconds:
                notify(f"{rate:,.0f} changes/s, {len(legs)} kills so far")
                legs.append(_leg(bench, kill_every_s))
            with bench.service(state="soak", jobs=[job("2s", **_SOAKED)]) as run:
                run.await_seconds(_WARM_S)
            sent = load.sent.total
        notify("reading what came out when")
        latencies = watch.latencies()
        notify("verify")
        verdict = bench.verdict(**_SOAKED)
    first, last = (
        latencies.between(leg.warm_at, leg.ended_at - AFTER_S).percentile_ms(0.99)
        for leg in (legs[0], legs[-1])
    )
    of = f"{rate:,.0f} changes/s from {EventForm.UPSERT_JSON} for {seconds:g} s with {len(legs)} kills"
    return [
        Line(f"{of}: changes sent", sent, ""),
        Line(f"{of}: live latency p99, last leg", last, "ms", "first leg", first, _p99_course(latencies)),
        Line(
            f"{of}: memory at the end of the last leg",
            legs[-1].last_memory_mib,
            "MiB",
            "first leg",
            legs[0].last_memory_mib,
            course([at_used for leg in legs for at_used in leg.memory_mib], _STEP_S),
        ),
        verdict,
    ]


def _leg(bench: Rig, seconds: float) -> _Leg:
    with bench.service(state="soak", jobs=[job("2s", **_SOAKED)]) as run:
        began = time.time()
        run.await_batch(Batch.completes, BACKFILL_TIMEOUT_S)
        warm = time.time() + _WARM_S
        run.await_seconds(max(began + seconds - time.time(), _WARM_S + SETTLE_S))
        ended = run.kill()
    return _Leg(warm, ended, run.memory_mib)
