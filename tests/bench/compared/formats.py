"""Upstreams of each format side by side: how fast a replica is built from one, and how long its batches take.

All hold the same table and the same changes. What they are compared with is the format `change`, in the same run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from schemas.epoch import unix_ms_from_epoch
from schemas.formats.debezium import DebeziumFormat
from schemas.formats.protocol import Format
from schemas.formats.registry import DEFAULT
from schemas.formats.upsert import UpsertFormat
from schemas.table import TableSchema, declare
from streaming.events.forms import FORMATS, EventForm
from streaming.events.generator import ChangeGenerator
from tests.bench.report.batch import Batch
from tests.bench.report.line import Line, Notify, median
from tests.bench.rig import BACKFILL_TIMEOUT_S, TABLE, Rig, ServiceRun, job, rig

SETTLE_S = 5.0
_WARM_UP_ROWS = 20_000
_BUILD_INTERVAL = "60s"
"""Longer than it takes to write the rows, so that few batches bring them all, after they were written."""
_COLUMNS, _TYPES = 80, ("string", "decimal(18,2)", "int", "double", "timestamp", "string", "boolean", "date")
_WIDE_SHARE = 20
"""A row of the wide table is some twenty times as long."""
WIDE = declare(
    {
        "name": "wide",
        "columns": {
            "id": "bigint",
            **{f"c{number}": _TYPES[number % len(_TYPES)] for number in range(1, _COLUMNS)},
        },
        "primary_key": ["id"],
    }
)


@dataclass(frozen=True, slots=True)
class _Upstream:
    name: str
    format: Format
    beside: bool = False

    def of(self, bench: Rig, table: TableSchema) -> Rig:
        topic = f"{self.name}-{table.name}".replace(" ", "-")
        return replace(bench, table=table, upstream=topic, format=self.format, beside=self.beside)


_BASE = _Upstream("change", DEFAULT)
_OTHERS = (
    _Upstream("change beside", DEFAULT, beside=True),
    _Upstream("upsert-avro-registry", UpsertFormat(encoding="avro-registry")),
    _Upstream("debezium-avro-registry", DebeziumFormat(encoding="avro-registry")),
    _Upstream("upsert-json", FORMATS[EventForm.UPSERT_JSON]),
    _Upstream("debezium-json-schema", FORMATS[EventForm.DEBEZIUM_JSON_SCHEMA]),
    _Upstream("debezium-json", FORMATS[EventForm.DEBEZIUM_JSON]),
)


@dataclass(frozen=True, slots=True)
class _Found:
    """Of one upstream: rates of builds in changes/s, and the median batch."""

    build: float
    wide_build: float
    batch_ms: float
    verdict: Line


def formats(rows: int, seconds: float, rate: float, folder: Path, notify: Notify) -> list[Line]:
    """Builds and batches of each format against `change`."""
    with rig(folder) as bench:
        base, *others = (_measured(bench, each, rows, seconds, rate, notify) for each in (_BASE, *_OTHERS))
    lines = _own_lines(_BASE.name, base, base, rows, rate)
    for each, found in zip(_OTHERS, others, strict=True):
        lines += _own_lines(each.name, found, base, rows, rate)
    findings = sum(found.verdict.value for found in (base, *others))
    target = Line(
        f"replica of {rows:,} rows from debezium-json", others[-1].build, "changes/s", "target", 80_000
    )
    return [*lines, replace(target, what=f"{target.what}, by target"), replace(base.verdict, value=findings)]


def _own_lines(name: str, found: _Found, base: _Found, rows: int, rate: float) -> list[Line]:
    is_base = found is base

    def line(what: str, value: float, unit: str, compared: float) -> Line:
        return Line(f"{what} from {name}", value, unit, *(() if is_base else (_BASE.name, compared)))

    wide = f"replica of {rows // _WIDE_SHARE:,} rows of {_COLUMNS} columns"
    return [
        line(f"replica of {rows:,} rows", found.build, "changes/s", base.build),
        line(wide, found.wide_build, "changes/s", base.wide_build),
        line(f"batch at {rate:g} changes/s", found.batch_ms, "ms", base.batch_ms),
    ]


def _measured(bench: Rig, of: _Upstream, rows: int, seconds: float, rate: float, notify: Notify) -> _Found:
    wide, own = of.of(bench, WIDE), of.of(bench, TABLE)
    _, wide_build = _build(wide, rows // _WIDE_SHARE, f"{of.name}, {_COLUMNS} columns", notify)
    generator, build = _build(own, rows, of.name, notify)
    output = f"{own.upstream}-copy"
    with own.service(state=own.upstream, jobs=[job(None, output)]) as run:
        notify(f"{of.name}: backfill")
        await_complete(run, output)
        with own.live(generator, rate):
            notify(f"{of.name}: {seconds:g} s of live load")
            batch = batch_ms(run, seconds)
        verdict = own.verdict(output)
    return _Found(build, wide_build, batch, verdict)


def await_complete(run: ServiceRun, output: str) -> Batch:
    """The batch after which a job's backfill is complete."""
    return run.await_batch(lambda batch: batch.completes(output), BACKFILL_TIMEOUT_S)


def _build(bench: Rig, rows: int, of: str, notify: Notify) -> tuple[ChangeGenerator, float]:
    """A table, and the changes a second at which a service that runs already brings its rows into the replica."""
    generator = bench.fill(_WARM_UP_ROWS)
    with bench.service(state=bench.upstream, jobs=[], barrier_interval=_BUILD_INTERVAL) as run:
        notify(f"{of}: starting")
        warm = run.await_changes(_WARM_UP_ROWS)
        notify(f"{of}: writing {rows:,} rows")
        bench.write(generator, rows)
        notify(f"{of}: building")
        done = run.await_changes(_WARM_UP_ROWS + rows)
    return generator, _build_rate(run, warm, done)


def _build_rate(run: ServiceRun, warm: Batch, done: Batch) -> float:
    """Changes a second behind `warm`, each batch from the barrier that ends it, before which its rows were there."""
    since = (batch for batch in run.batches if warm.at < batch.at <= done.at)
    batches = [batch for batch in since if batch.changes or batch is done]  # a last part may have none
    took_s = sum(batch.at - unix_ms_from_epoch(batch.epoch) / 1_000 for batch in batches)
    return (done.upstream_records - warm.upstream_records) / took_s


def batch_ms(run: ServiceRun, seconds: float) -> float:
    """The median batch of so many seconds, after some that do not count."""
    run.await_seconds(SETTLE_S)
    return median(batch.took_ms for batch in run.await_seconds(seconds))
