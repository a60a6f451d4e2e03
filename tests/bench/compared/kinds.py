"""The kinds of backfill side by side: batches, snapshots, the first part that is complete, and a rescale under way.

Each has an upstream of its own with the same rows, and a service of its own with one lane an upstream partition. What
they are compared with is arrangement backfill, in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from schemas.errors import Code, EnvironmentProblem
from schemas.table import TableSchema, declare
from streaming.events.generator import ChangeGenerator
from tests.bench.report.batch import Batch
from tests.bench.report.line import Line, Notify, Summary, median, number
from tests.bench.rig import (
    BACKFILL_TIMEOUT_S,
    BUILD_TIMEOUT_S,
    DECLARATION,
    PARTITIONS,
    TABLE,
    Rig,
    ServiceRun,
    rig,
)

SETTLE_S = 5.0
LIMITED_S = 20
"""How long the backfill takes in which the first part is waited for: its limit follows."""
FEWER_LANES = PARTITIONS // 2


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    table: TableSchema
    job: dict[str, Any]

    def part_count(self, bench: Rig) -> int:
        """Of one of its jobs."""
        return bench.definition("any", **self.job).with_partitions(PARTITIONS).part_count


KINDS = (
    _Kind("arrangement", TABLE, {}),
    _Kind("no-shuffle", declare({**DECLARATION, "distribution": "upstream"}), {}),
    _Kind("source", TABLE, {"read": "topic"}),
)
BASE = KINDS[0].name


@dataclass(frozen=True, slots=True)
class _Found:
    """Of one kind. `rescaled_s` is None where another number of lanes was refused; `findings` are `verify`'s."""

    batch_ms: float
    rows_per_s: float
    first_part_s: float
    rescaled_s: float | None
    findings: float


def kinds(rows: int, seconds: float, rate: float, folder: Path, notify: Notify) -> list[Line]:
    """All kinds, one after the other on one broker."""
    with rig(folder) as bench:
        found = {
            kind.name: _measured(
                replace(bench, table=kind.table, upstream=f"up-{kind.name}"),
                kind,
                rows,
                seconds,
                rate,
                notify,
            )
            for kind in KINDS
        }
    lines: list[Line] = []
    for name, own in found.items():
        base = found[BASE]

        def line(what: str, value: float, unit: str, compared: float | None, name: str = name) -> Line:
            return Line(f"{what}, {name}", value, unit, *(() if name == BASE else (BASE, compared)))

        lines += [
            line(f"batch at {rate:g} changes/s", own.batch_ms, "ms", base.batch_ms),
            line("snapshot", own.rows_per_s, "rows/s", base.rows_per_s),
            line(f"first part of a {LIMITED_S} s backfill", own.first_part_s, "s", base.first_part_s),
            line("rescale under way, refused", float(own.rescaled_s is None), "", None),
        ]
        if own.rescaled_s is not None:
            lines.append(line("rescale under way, first batch", own.rescaled_s, "s", base.rescaled_s))
        lines.append(Line(f"findings of verify, {name}", own.findings, ""))
    return lines


def _measured(bench: Rig, kind: _Kind, rows: int, seconds: float, rate: float, notify: Notify) -> _Found:
    notify(f"{kind.name}: writing {rows:,} rows")
    generator = bench.fill(rows)
    state, full, slow, late = (f"{kind.name}-{each}" for each in ("state", "full", "slow", "late"))
    with bench.service(state=state, jobs=[], lanes=PARTITIONS) as run:
        notify(f"{kind.name}: building the replica")
        run.await_changes(rows)
        with bench.live(generator, rate):
            notify(f"{kind.name}: snapshot")
            _backfill(bench, run, kind, f"{kind.name}-warm-up")
            bench.drop(f"{kind.name}-warm-up")
            rows_per_s = _backfill(bench, run, kind, full)
            notify(f"{kind.name}: first part")
            first_part_s = _first_part_s(bench, run, kind, slow, rows)
            bench.drop(slow)
            notify(f"{kind.name}: {seconds:g} s of live load")
            run.await_seconds(SETTLE_S)
            batch_ms = median(batch.took_ms for batch in run.await_seconds(seconds))
            bench.create(late, rate_limit=rows // LIMITED_S, **kind.job)
            run.await_batch(lambda batch: _done(batch, late) is not None, BACKFILL_TIMEOUT_S)
    notify(f"{kind.name}: rescale")
    rescaled_s = _rescaled_s(bench, state, generator, rate)
    notify(f"{kind.name}: verify")
    return _Found(batch_ms, rows_per_s, first_part_s, rescaled_s, bench.verdict(full, **kind.job).value)


def _done(batch: Batch, name: str) -> int | None:
    """The number of complete parts of a job; None while there is no such job."""
    done = batch.fields.get(f"vnodes_done.{name}")
    return None if done is None else int(done)


def _backfill(bench: Rig, run: ServiceRun, kind: _Kind, name: str) -> float:
    """Rows a second of a job, from its first slice to its last one."""
    since = run.batches[-1].at
    bench.create(name, **kind.job)
    parts = kind.part_count(bench)
    done = run.await_batch(lambda batch: _done(batch, name) == parts, BACKFILL_TIMEOUT_S)
    return run.snapshot_rate(done, since=since)


def _first_part_s(bench: Rig, run: ServiceRun, kind: _Kind, name: str, rows: int) -> float:
    """From the first slice of a job that is limited to the first of its parts that is complete."""
    since = run.batches[-1].at
    bench.create(name, rate_limit=rows // LIMITED_S, **kind.job)
    first = run.await_batch(lambda batch: (_done(batch, name) or 0) > 0, BACKFILL_TIMEOUT_S)
    return run.snapshot_s(first, since=since)


def _rescaled_s(bench: Rig, state: str, generator: ChangeGenerator, rate: float) -> float | None:
    """From the start of a service with fewer lanes to the end of its first batch; None where it is refused."""
    began = time.time()
    with bench.service(state=state, jobs=[], lanes=FEWER_LANES) as run, bench.live(generator, rate):
        try:
            return run.await_batch(lambda batch: batch.changes > 0, BUILD_TIMEOUT_S).at - began
        except EnvironmentProblem as problem:
            ended = problem
    # All its lines are there by now.
    if any(Code.RESCALE_REFUSED in line for line in run.lines):
        return None
    raise ended


def side_by_side(summaries: Sequence[Summary]) -> Table:
    """The lines of `kinds` in a table of one column a kind, which fits into 80 characters."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for kind in KINDS:
        table.add_column(kind.name, justify="right", no_wrap=True)
    figures: dict[str, dict[str, str]] = {}
    for line in summaries:
        what, _, name = line.what.rpartition(", ")
        figures.setdefault(what, {})[name] = f"{number(line.value)} {line.unit}".strip()
    for what, cells in figures.items():
        table.add_row(what, *(cells.get(kind.name, "") for kind in KINDS))
    return table
