"""Columns that appear under load: what the batch that meets one costs, against the ones before it.

The upstream is Debezium's events with their schemas, and a job gets each column that its table gets.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from schemas.epoch import unix_ms_from_epoch
from schemas.settings.config import load
from schemas.table import declare
from streaming.cli.jobs.served import known_jobs
from streaming.cli.topics.target import Broker, upstream_target
from streaming.cli.topics.verify import judged
from streaming.control.known_table import as_known
from streaming.demo.latency import Latencies
from streaming.events.forms import FORMATS, EventForm, events_of
from streaming.events.generator import ChangeGenerator
from tests.bench.live import AFTER_S, SETTLE_S
from tests.bench.report.batch import OUTPUT, Batch
from tests.bench.report.line import Line, Notify, median
from tests.bench.rig import BACKFILL_TIMEOUT_S, DECLARATION, TABLE, Rig, ServiceRun, job, rig

_TURNS = 5
_AROUND_S = 5.0
_MORE_MS = 500
"""The most that changes of the batch that meets a column may take beyond those before it."""
_GROWS: dict[str, Any] = {"format": "upsert", "encoding": "json-schema", "new_columns": "send"}


def altered(rows: int, seconds: float, rate: float, folder: Path, notify: Notify) -> list[Line]:
    """Medians over some columns that appear one after another, so many seconds apart."""
    format_ = FORMATS[EventForm.DEBEZIUM_JSON_SCHEMA].model_copy(update={"on_new_column": "add"})
    with rig(folder) as own:
        bench = replace(own, format=format_)
        notify(f"writing {rows:,} rows")
        generator = bench.fill(rows)
        with (
            bench.watch(**_GROWS) as watch,
            bench.service(state="altered", jobs=[job(None, **_GROWS)]) as run,
        ):
            notify("backfill")
            run.await_batch(Batch.completes, BACKFILL_TIMEOUT_S)
            with bench.live(generator, rate):
                run.await_seconds(SETTLE_S)
                since = time.time()
                run.await_seconds(seconds)
                until = time.time()
            for number in range(1, _TURNS + 1):
                notify(f"column {number}")
                with bench.live(_with_columns(bench, rows, number), rate):
                    run.await_seconds(seconds)
            run.await_seconds(AFTER_S)
        latencies = watch.latencies()
        notify("verify")
        verdict = _verdict(folder / "altered.json")
    before_ms = latencies.between(since, until).percentile_ms(0.99)
    met = [_met(run, at, latencies) for at in run.columns_added]
    around = [latencies.between(at - _AROUND_S, at + _AROUND_S) for at in run.columns_added]
    of = f"{rate:,.0f} changes/s, a column appears"
    return [
        Line(f"{of}: batches that are tried again", (len(run.served) - 1) / _TURNS, "", "target", 1),
        _p99(of, "of its batch", met, "target", before_ms + _MORE_MS),
        _p99(of, f"within {_AROUND_S:g} s", around, "before", before_ms),
        verdict,
    ]


def _p99(of: str, when: str, found: Sequence[Latencies], to: str, compared: float) -> Line:
    """The median over the columns."""
    value = median(each.percentile_ms(0.99) for each in found)
    return Line(f"{of}: live latency p99 {when}", value, "ms", to, compared)


def _with_columns(bench: Rig, rows: int, count: int) -> ChangeGenerator:
    """Changes of the rows that are there, by a table with so many further columns."""
    columns: dict[str, Any] = TABLE.to_dict()["columns"]
    further = {f"further_{number}": "int" for number in range(count)}
    table = declare({**DECLARATION, "columns": {**columns, **further}})
    generator = ChangeGenerator(table, events=events_of(bench.format, table))
    # Their positions in the log follow from the sum of versions: they are above those before.
    generator.restore(np.full(rows, 1 + count, np.uint32), np.ones(rows, np.bool_))
    return generator


def _met(run: ServiceRun, at: float, latencies: Latencies) -> Latencies:
    """Latencies of the batch that a column was added for at this time."""
    number = next(number for number, batch in enumerate(run.batches) if batch.at > at)
    since, until = (unix_ms_from_epoch(batch.epoch) / 1_000 for batch in run.batches[number - 1 : number + 1])
    return latencies.between(since, until)


def _verdict(file: Path) -> Line:
    """The findings of `verify` in the output, which has the columns by now."""
    config = as_known(load(file))
    upstream = upstream_target(config, Broker(None, None), None, None)
    report = judged(upstream, known_jobs(config)[OUTPUT], require_complete=True)
    return Line("findings of verify", report.found, "")
