"""`backfill bench`: measure on this machine."""

from __future__ import annotations

import json
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streaming.bench import cases


class Case(StrEnum):
    """The parts of the bench."""

    SNAPSHOT = "snapshot"
    LIVE = "live"
    STEADY = "steady"


def command(
    case: Annotated[list[Case] | None, typer.Argument(help="What to measure; all by default.")] = None,
    rows: Annotated[int, typer.Option(min=1_000, help="Rows of the upstream table.")] = 2_000_000,
    live_rows: Annotated[
        list[int] | None, typer.Option(help="Rows for `live`; may be repeated [default: 1M and 4M].")
    ] = None,
    steady_seconds: Annotated[float, typer.Option(help="How long `steady` goes on.")] = 600,
    output: Annotated[Path | None, typer.Option(help="Write the result as JSON to this file.")] = None,
) -> None:
    """Measure snapshot rate, live latency, steady batches and memory, with ratios."""
    console = Console(stderr=True)
    lines: list[cases.Line] = []
    with tempfile.TemporaryDirectory(prefix="backfill-bench-") as scratch:
        for number, (what, run) in enumerate(_plan(case or list(Case), rows, live_rows, steady_seconds)):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            with console.status(what) as status:
                found = run(folder, lambda doing, what=what, status=status: status.update(f"{what}: {doing}"))
            lines += found
            for line in found:
                console.print(_told(line))
    Console().print(_table(lines))
    if output is not None:
        output.write_text(json.dumps([line.to_dict() for line in lines], indent=2) + "\n", encoding="utf-8")


def _plan(wanted, rows, live_rows, steady_seconds):  # type: ignore[no-untyped-def]
    for case in wanted:
        if case is Case.SNAPSHOT:
            yield f"snapshot of {rows:,} rows", lambda folder, tell: cases.snapshot(folder, rows, tell)
        elif case is Case.LIVE:
            for count in live_rows or [1_000_000, 4_000_000]:
                yield (
                    f"live, {count:,} rows",
                    lambda folder, tell, count=count: cases.live(folder, count, tell),
                )
        else:
            yield "steady", lambda folder, tell: cases.steady(folder, 1_000_000, steady_seconds, tell)


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
