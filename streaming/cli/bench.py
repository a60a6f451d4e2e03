"""`backfill bench`: measure on this machine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer
from rich.console import Console
from rich.status import Status
from rich.table import Table

if TYPE_CHECKING:
    from streaming.bench.line import Line, Summary, Tell

_TABLE_ROWS = (1_000_000, 4_000_000)
_START_ROWS, _WIDE_ROWS = 50_000, 200_000
_JOBS = 4
_BUILD_KEYS, _BUILD_CHANGES = 1_000_000, 5_000_000


class Case(StrEnum):
    """The parts of the bench."""

    SNAPSHOT = "snapshot"
    LIVE = "live"
    STEADY = "steady"
    IDLE = "idle"
    SUSTAINED = "sustained"
    BUILD = "build"
    JOBS = "jobs"
    WIDE = "wide"
    START = "start"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large and how long."""

    rows: tuple[int, ...]
    seconds: float
    rate: float
    high_rate: float
    restarts: int


class Run(Protocol):
    """A case with its sizes: a folder of its own, and somebody to tell what goes on."""

    def __call__(self, folder: Path, tell: Tell, /) -> list[Line]: ...  # noqa: D102


def command(
    case: Annotated[list[Case] | None, typer.Argument(help="What to measure; all by default.")] = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="Rows of the table; may be repeated [default: 1M and 4M].")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long `steady`, `idle` and `sustained` go on.")] = 120,
    rate: Annotated[float, typer.Option(help="Live changes per second of `steady`.")] = 500,
    high_rate: Annotated[float, typer.Option(help="Live changes per second of `sustained`.")] = 40_000,
    restarts: Annotated[int, typer.Option(min=1, help="How often `start` kills the service.")] = 20,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each case, for medians and spread.")] = 1,
    output: Annotated[Path | None, typer.Option(help="Write the result as JSON to this file.")] = None,
) -> None:
    """Measure rates, latencies, memory and starts, each against a target or something in the same run."""
    from streaming.bench.line import summarised

    console = Console(stderr=True)
    sizes = Sizes(tuple(rows or _TABLE_ROWS), seconds, rate, high_rate, restarts)
    lines: list[Line] = []
    for what, run in _plan(case or list(Case), sizes):
        for _ in range(repeat):
            with (
                tempfile.TemporaryDirectory(prefix="backfill-bench-") as scratch,
                console.status(what) as status,
            ):
                found = run(Path(scratch), partial(_tell, status, what))
            lines += found
            for line in found:
                console.print(_told(line))
    summaries = summarised(lines)
    Console().print(_table(summaries))
    if output is not None:
        text = json.dumps([summary.to_dict() for summary in summaries], indent=2)
        output.write_text(text + "\n", encoding="utf-8")


def _plan(wanted: list[Case], sizes: Sizes) -> Iterator[tuple[str, Run]]:
    from streaming.bench import live, snapshot, start

    first = sizes.rows[0]
    for case in wanted:
        match case:
            case Case.SNAPSHOT:
                for rows in sizes.rows:
                    yield f"snapshot of {rows:,} rows", partial(snapshot.snapshot, rows)
            case Case.LIVE:
                for rows in sizes.rows:
                    yield f"live, {rows:,} rows", partial(live.beside, rows)
            case Case.STEADY:
                yield "steady", partial(live.steady, first, sizes.seconds, sizes.rate)
            case Case.IDLE:
                yield "idle", partial(live.idle, first, sizes.seconds)
            case Case.SUSTAINED:
                yield "sustained", partial(live.sustained, first, sizes.high_rate, sizes.seconds)
            case Case.BUILD:
                yield "build", partial(start.build, _BUILD_KEYS, _BUILD_CHANGES)
            case Case.JOBS:
                yield "jobs", partial(snapshot.jobs, first, _JOBS)
            case Case.WIDE:
                yield "wide", partial(snapshot.wide, _WIDE_ROWS)
            case Case.START:
                yield "start", partial(start.start, _START_ROWS, sizes.restarts)


def _tell(status: Status, what: str, doing: str) -> None:
    status.update(f"{what}: {doing}")


def _told(line: Line) -> str:
    compared = (
        "" if line.ratio is None else f" ({line.ratio:.2f} of {line.compared_with}: {line.compared:,.0f})"
    )
    return f"{line.what}: {line.value:,.0f} {line.unit}{compared}"


def _table(summaries: list[Summary]) -> Table:
    table = Table("what", "median", "unit", "spread", "compared with", "its value", "ratio")
    for line in summaries:
        spread = f"{line.lowest:,.0f} to {line.highest:,.0f}" if line.runs > 1 else ""
        compared = "" if line.compared is None else f"{line.compared:,.0f}"
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        table.add_row(line.what, f"{line.value:,.0f}", line.unit, spread, line.compared_with, compared, ratio)
    return table
