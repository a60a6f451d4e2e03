"""`backfill bench`: measure on this machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table

from streaming.bench import cases

_LIVE_ROWS = (1_000_000, 4_000_000)
_STEADY_ROWS = 1_000_000
_START_ROWS = 50_000
_JOBS, _JOBS_ROWS = 4, 1_000_000


class Case(StrEnum):
    """The parts of the bench."""

    SNAPSHOT = "snapshot"
    LIVE = "live"
    STEADY = "steady"
    START = "start"
    JOBS = "jobs"


def command(
    case: Annotated[list[Case] | None, typer.Argument(help="What to measure; all by default.")] = None,
    rows: Annotated[int, typer.Option(min=1_000, help="Rows of the upstream table.")] = 2_000_000,
    live_rows: Annotated[
        list[int] | None, typer.Option(help="Rows for `live`; may be repeated [default: 1M and 4M].")
    ] = None,
    steady_seconds: Annotated[float, typer.Option(help="How long `steady` goes on.")] = 600,
    restarts: Annotated[int, typer.Option(min=1, help="How often `start` kills the service.")] = 20,
    output: Annotated[Path | None, typer.Option(help="Write the result as JSON to this file.")] = None,
) -> None:
    """Measure snapshot rate, live latency, steady batches, starts and memory, with ratios."""
    console = Console(stderr=True)
    lines: list[cases.Line] = []
    with tempfile.TemporaryDirectory(prefix="backfill-bench-") as scratch:
        for number, (what, run) in enumerate(
            _plan(case or list(Case), rows, live_rows, steady_seconds, restarts)
        ):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            with console.status(what) as status:
                found = run(folder, _teller(status, what))
            lines += found
            for line in found:
                console.print(_told(line))
    Console().print(_table(lines))
    if output is not None:
        output.write_text(json.dumps([line.to_dict() for line in lines], indent=2) + "\n", encoding="utf-8")


Run = Callable[[Path, cases.Tell], list[cases.Line]]


def _plan(
    wanted: list[Case], rows: int, live_rows: list[int] | None, steady_seconds: float, restarts: int
) -> Iterator[tuple[str, Run]]:
    for case in wanted:
        match case:
            case Case.SNAPSHOT:
                yield f"snapshot of {rows:,} rows", partial(cases.snapshot, rows)
            case Case.LIVE:
                for count in live_rows or _LIVE_ROWS:
                    yield f"live, {count:,} rows", partial(cases.live, count)
            case Case.STEADY:
                yield "steady", partial(cases.steady, _STEADY_ROWS, steady_seconds)
            case Case.JOBS:
                yield "jobs", partial(cases.jobs, _JOBS_ROWS, _JOBS)
            case Case.START:
                yield "start", partial(cases.start, _START_ROWS, restarts)


def _teller(status: Status, what: str) -> cases.Tell:
    return lambda doing: status.update(f"{what}: {doing}")


def _told(line: cases.Line) -> str:
    compared = (
        "" if line.ratio is None else f" ({line.ratio:.2f} of {line.compared_with}: {line.compared:,.0f})"
    )
    return f"{line.what}: {line.value:,.0f} {line.unit}{compared}"


def _table(lines: list[cases.Line]) -> Table:
    table = Table("what", "value", "unit", "compared with", "its value", "ratio")
    for line in lines:
        compared = "" if line.compared is None else f"{line.compared:,.0f}"
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        table.add_row(line.what, f"{line.value:,.0f}", line.unit, line.compared_with, compared, ratio)
    return table
