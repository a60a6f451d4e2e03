"""`backfill failpoints`: where a test can have the service killed, held up or made to fail."""

from __future__ import annotations

import json

import typer
from rich.console import Console
from rich.table import Table

from streaming.cli.configuration import JsonOption
from streaming.runtime.failpoints import VARIABLE, Failpoint


def command(as_json: JsonOption = False) -> None:
    """List the places between effects that BACKFILL_FAILPOINT can name.

    For tests of recovery: BACKFILL_FAILPOINT=replicated@3:kill ends the service, Spark and its workers in the third
    batch, between the commit of the log and that of the progress. Actions: kill, sleep, raise; count: a number or last.
    """
    if as_json:
        typer.echo(json.dumps({point: point.meaning for point in Failpoint}))
        return
    table = Table()
    table.add_column("name", no_wrap=True)
    table.add_column("what was done last")
    for point in Failpoint:
        table.add_row(point, point.meaning)
    console = Console()
    console.print(f"{VARIABLE}=name[@count]:kill|sleep|raise", markup=False)
    console.print(table)
