"""`backfill demo`: everything on this machine, shown while it runs, and verified at its end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Never

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from schemas.errors import Code, ConfigError, LawViolation
from streaming.demo.console import StepConsole
from streaming.demo.latency import Latencies
from streaming.demo.run import LIVE_RATE, OUTPUTS, STEPS, DemoConfig, DemoOutcome, Upstream, run_demo
from streaming.runtime import logs
from streaming.runtime.paths import log_folder

_KEPT = Path("backfill-demo")
_SHOWN = {
    "debezium": "Debezium's events in JSON",
    "upsert": "rows by key in JSON",
    "change": "changes in Avro",
}


def command(
    rows: Annotated[int, typer.Option(min=1, help="Rows of the upstream table.")] = 100_000,
    live_seconds: Annotated[
        float, typer.Option(min=0, help="How long live changes go on after the backfill is complete.")
    ] = 15,
    source: Annotated[
        Upstream, typer.Option("--from", help="Format of the upstream; of `change`, the output has it too.")
    ] = Upstream.DEBEZIUM,
    keep: Annotated[
        bool, typer.Option("--keep", help=f"Keep the broker's data and the state, in ./{_KEPT}.")
    ] = False,
) -> None:
    """Run everything on this machine: a broker, an upstream, a backfill, and the check of its output.

    A table of --rows rows goes on changing while a job with a projection and a filter sends it to a new
    topic, as JSON rows by key unless --from change. The exit status is 8 if the check finds anything.
    """
    signal.signal(signal.SIGTERM, _leave)
    log = log_folder() / f"demo-{os.getpid()}.log"
    logs.configure(as_json=False, file=log)
    console, began = Console(highlight=False), time.monotonic()
    console.print(
        f"A table of {rows:,} rows changes {LIVE_RATE} times a second; its topic has {_SHOWN[source]}. "
        "Meanwhile a new job sends a part of it, and every later change of that part, to a "
        f"new topic of {_SHOWN[OUTPUTS[source]]}.\n"
    )
    with _folder(keep=keep) as folder, StepConsole(console, STEPS) as steps:
        # Of the workers, whose rows by key are gone with it, too.
        os.environ["TMPDIR"] = str(folder.resolve())
        outcome = run_demo(DemoConfig(folder, rows, live_seconds, source), steps)
    console.print(_figures(outcome, rows, time.monotonic() - began))
    for line in (f"The last rows that came to {outcome.report.output}:", *outcome.rows, ""):
        console.print(line, soft_wrap=True, markup=False)
    if not outcome.report.clean:
        raise _broken(outcome)
    for line in _kept(outcome) if keep else _next():
        console.print(line, soft_wrap=True)


def _leave(number: int, frame: FrameType | None) -> Never:
    raise SystemExit(128 + number)  # unwinds, so that nothing is left behind


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    if not keep:
        with tempfile.TemporaryDirectory(prefix="backfill-demo-", ignore_cleanup_errors=True) as scratch:
            yield Path(scratch)
        return
    if _KEPT.exists():
        raise ConfigError(
            Code.USAGE,
            where=str(_KEPT),
            found="what an earlier demo has kept",
            expected="no such folder",
            next_step=f"rm -r {_KEPT}, or start without --keep",
        )
    _KEPT.mkdir()
    yield _KEPT


def _figures(outcome: DemoOutcome, rows: int, took_s: float) -> Table:
    progress, live, report = outcome.progress, outcome.live, outcome.report
    verdict = "[green]the law holds[/green]" if report.clean else f"[red]{report.found} findings[/red]"
    figures = {
        "upstream": f"{rows:,} rows, then {live.total:,} changes",
        "snapshot": f"{progress.snapshot_rows:,} rows read, {progress.snapshot_rate:,.0f} rows/s; "
        f"{progress.snapshot_sent:,} sent",
        "live changes": f"{progress.live_sent:,} sent",
        "  during snapshot": _latency(outcome.during_snapshot),
        "  after it": _latency(outcome.afterwards),
        "barriers": f"{progress.barriers:,}; at each the output is a cut of the table",
        "verify": f"{report.upstream_records + report.output_records:,} records, {verdict}",
        "took": f"{took_s:.0f} s",
    }
    table = Table(show_header=False, box=box.SIMPLE)
    for name, text in figures.items():
        table.add_row(name, text)
    return table


def _latency(latencies: Latencies) -> str:
    if not len(latencies):
        return "none"
    p50_s, p99_s = (latencies.percentile_ms(share) / 1_000 for share in (0.50, 0.99))
    return f"readable after {p50_s:.1f} s (median), {p99_s:.1f} s (p99)"


def _broken(outcome: DemoOutcome) -> LawViolation:
    report = outcome.report
    return LawViolation(
        Code.LAW_BROKEN,
        where=str(report.findings[0].where) if report.findings else report.output,
        found=f"{report.found} findings ({', '.join(sorted(report.counts))})",
        next_step="run it again with --keep and look with `backfill verify`; this is a bug worth reporting",
    )


def _program() -> str:
    """The command by which this user starts `backfill`."""
    started = Path(sys.argv[0]).absolute()
    if shutil.which("backfill") or not started.is_file():
        return "backfill"
    return str(started.relative_to(Path.cwd()) if started.is_relative_to(Path.cwd()) else started)


def _kept(outcome: DemoOutcome) -> list[str]:
    program, config, port = _program(), _KEPT / "config.yaml", outcome.bootstrap.rpartition(":")[2]
    return [
        "To go on where it stopped, each in a terminal of its own:",
        f"  {program} kafka --data {_KEPT / 'kafka'} --port {port}",
        f"  {program} run {config}",
        f"  {program} produce {config} --rows 0 --live 60",
        f"  {program} consume {config} --job {outcome.progress.job} --follow",
        f"  {program} verify {config}",
    ]


def _next() -> list[str]:
    return [
        f"To keep it all and go on by hand: {_program()} demo --keep",
        "With a Kafka of your own: README.md",
    ]
