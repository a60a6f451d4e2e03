"""`make bench`: measure rates, latencies, memory and starts on this machine; every figure of `docs/` is from here."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import strftime
from typing import Annotated, Protocol

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.status import Status
from rich.table import Table

from schemas.errors import BackfillError
from tests.bench import live, long, months, scale, snapshot, start
from tests.bench.compared import altered, before, cluster, formats, initial, kinds, large, outputs
from tests.bench.expected import KEYS
from tests.bench.report.line import Line, Notify, Summary, against, by_size, number, spread, summarised
from tests.bench.report.results import write_results

_TABLE_ROWS = (1_000_000, 4_000_000, 10_000_000)
_START_ROWS, _WIDE_ROWS = 50_000, 200_000
_JOBS, _QUIET_JOBS, _MANY_JOBS, _MANY_ROWS = (4, 16), 6, 50, 20_000
_FREQUENT_MS, _PARTITIONS = 200, 1_000
_HISTORY_RATE, _SOAK_RATE = 2_000, 5_000
_KILL_EVERY_S = 300.0


class Case(StrEnum):
    """The parts of the bench."""

    SNAPSHOT = "snapshot"
    LIVE = "live"
    STEADY = "steady"
    IDLE = "idle"
    QUIET = "quiet"
    FREQUENT = "frequent"
    CREATED = "created"
    SUSTAINED = "sustained"
    BUILD = "build"
    JOBS = "jobs"
    WIDE = "wide"
    MANY = "many"
    PARTITIONS = "partitions"
    CLUSTER = "cluster"
    LARGE = "large"
    FORMATS = "formats"
    BEFORE = "before"
    ALTERED = "altered"
    OUTPUTS = "outputs"
    KINDS = "kinds"
    INITIAL = "initial"
    START = "start"
    HISTORY = "history"
    SOAK = "soak"
    MONTHS = "months"


class Run(Protocol):
    """Runs a case once, in a folder of its own; `notify` is called with what goes on."""

    def __call__(self, folder: Path, notify: Notify, /) -> list[Line]: ...


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes, durations and rates of the cases."""

    rows: tuple[int, ...]
    seconds: float
    rate: float
    high_rate: float
    restarts: int
    minutes: float
    batches: int
    readers: int
    state: str | None

    def runs(self, case: Case) -> dict[int, Run]:
        """The runs of a case, by rows of the table."""
        first, long_s = self.rows[0], self.minutes * 60
        match case:
            case Case.SNAPSHOT:
                return {rows: partial(snapshot.snapshot, rows) for rows in self.rows}
            case Case.LIVE:
                return {rows: partial(live.beside, rows) for rows in self.rows}
            case Case.STEADY:
                return {first: partial(live.steady, first, self.seconds, self.rate)}
            case Case.IDLE:
                return {first: partial(live.idle, first, self.seconds)}
            case Case.QUIET:
                return {first: partial(live.quiet, first, _QUIET_JOBS, self.seconds)}
            case Case.FREQUENT:
                return {first: partial(live.frequent, first, _FREQUENT_MS, self.seconds, self.rate)}
            case Case.CREATED:
                return {first: partial(scale.created, first)}
            case Case.SUSTAINED:
                return {first: partial(live.sustained, first, self.high_rate, self.seconds)}
            case Case.BUILD:
                return {rows: partial(start.build, rows) for rows in self.rows}
            case Case.JOBS:
                return {first: partial(snapshot.jobs, first, _JOBS)}
            case Case.WIDE:
                return {_WIDE_ROWS: partial(snapshot.wide, _WIDE_ROWS)}
            case Case.MANY:
                return {_MANY_ROWS: partial(scale.many, _MANY_ROWS, _MANY_JOBS, self.seconds, self.rate)}
            case Case.PARTITIONS:
                return {first: partial(scale.partitions, first, _PARTITIONS, self.seconds, self.rate)}
            case Case.CLUSTER:
                return {first: partial(cluster.cluster, first, self.seconds, self.rate, self.state)}
            case Case.LARGE:
                return {rows: partial(large.large, rows) for rows in self.rows}
            case Case.FORMATS:
                return {first: partial(formats.formats, first, self.seconds, self.rate)}
            case Case.BEFORE:
                return {rows: partial(before.before, rows, self.seconds, self.rate) for rows in self.rows}
            case Case.ALTERED:
                return {first: partial(altered.altered, first, self.seconds, self.rate)}
            case Case.OUTPUTS:
                return {first: partial(outputs.outputs, first, self.seconds, self.rate)}
            case Case.KINDS:
                return {first: partial(kinds.kinds, first, self.seconds, self.rate)}
            case Case.INITIAL:
                return {first: partial(initial.initial, first, self.readers)}
            case Case.START:
                return {_START_ROWS: partial(start.start, _START_ROWS, self.restarts)}
            case Case.HISTORY:
                return {first: partial(long.history, first, _HISTORY_RATE, long_s)}
            case Case.SOAK:
                return {first: partial(long.soak, first, _SOAK_RATE, long_s, _KILL_EVERY_S)}
            case Case.MONTHS:
                return {KEYS: partial(months.months, self.batches)}


def command(
    case: Annotated[
        list[Case] | None,
        typer.Argument(metavar="CASE", help="What to measure; all by default."),
    ] = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="Rows of the table; may be repeated [default: 1M, 4M and 10M].")
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            help="How long `steady`, `idle`, `quiet`, `sustained` and each of `altered`, `before`, `cluster`, "
            "`formats`, `outputs`, `kinds` go on."
        ),
    ] = 120,
    rate: Annotated[
        float,
        typer.Option(
            help="Live changes per second of `steady`, `altered`, `formats`, `before`, `outputs` and `kinds`."
        ),
    ] = 500,
    high_rate: Annotated[float, typer.Option(help="Live changes per second of `sustained`.")] = 40_000,
    minutes: Annotated[float, typer.Option(help="How long `history` and `soak` go on.")] = 30,
    restarts: Annotated[int, typer.Option(min=1, help="How often `start` kills the service.")] = 20,
    batches: Annotated[int, typer.Option(min=100, help="How many batches `months` plays.")] = 20_000,
    readers: Annotated[int, typer.Option(min=1, help="Sessions that read the table in `initial`.")] = 1,
    state: Annotated[
        str | None,
        typer.Option(help="Where `cluster` has its state, as in s3://bucket/bench; else a folder."),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each case, for medians and spread.")] = 1,
    output: Annotated[
        Path | None, typer.Option(help="Write a JSON file of each case to this folder.")
    ] = None,
) -> None:
    """Measure rates, latencies, memory and starts, each against a target or something in the same run."""
    console = Console(stderr=True)
    sizes = Sizes(
        tuple(rows or _TABLE_ROWS), seconds, rate, high_rate, restarts, minutes, batches, readers, state
    )
    summaries: list[Summary] = []
    for wanted in case or Case:
        of_case = summarised(_measured(wanted, sizes.runs(wanted), repeat, console))
        if output is not None:
            write_results(output, wanted, of_case)
        if wanted is Case.KINDS:
            Console().print(kinds.side_by_side(of_case))
        else:
            summaries += of_case
    if summaries:
        Console().print(_table(summaries))


def _measured(case: Case, runs: Mapping[int, Run], repeat: int, console: Console) -> list[Line]:
    """The lines of all runs; those of larger tables are followed by how they stand to the smallest one's."""
    lines: list[Line] = []
    smallest: list[list[Line]] = []
    for rows, run in runs.items():
        what = f"{case}, {rows:,} rows"
        for turn in range(repeat):
            with (
                tempfile.TemporaryDirectory(prefix="backfill-bench-") as scratch,
                console.status(what) as status,
            ):
                found = run(Path(scratch), partial(_show_step, console, status, what))
            if rows == min(runs):
                smallest.append(found)
            else:
                found += by_size(smallest[turn], found, min(runs))
            lines += found
            for line in found:
                console.print(_line_text(line))
    return lines


def _show_step(console: Console, status: Status, what: str, doing: str) -> None:
    """Show a step; without a terminal as a line with the time, as figures may take half an hour to come."""
    status.update(f"{what}: {doing}")
    if not console.is_terminal:
        console.print(f"{strftime('%X')} {what}: {doing}", highlight=False)


def _line_text(line: Line) -> str:
    text = f"{line.what}: {number(line.value)} {line.unit}"
    if line.compared is None or line.ratio is None:
        return text
    return f"{text} ({line.ratio:.2f} of {line.compared_with}: {number(line.compared)})"


def _table(summaries: list[Summary]) -> Table:
    """The figures of each subject below its name, a spread below its median: 80 columns hold them."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", ratio=1)
    table.add_column("median", justify="right", no_wrap=True)
    table.add_column("against")
    last = ""
    for line in summaries:
        subject, _, aspect = line.what.rpartition(": ")
        if subject and subject != last:
            table.add_row(f"[bold]{escape(subject)}[/bold]")
        lowest_to_highest = spread(line)
        value = f"{number(line.value)} {line.unit}".strip()
        value += f"\n[dim]{lowest_to_highest}[/dim]" if lowest_to_highest else ""
        table.add_row(Padding(escape(aspect), (0, 0, 0, 2 if subject else 0)), value, escape(against(line)))
        last = subject
    return table


if __name__ == "__main__":
    try:
        typer.run(command)
    except BackfillError as error:
        sys.exit(str(error))
