"""`backfill list`: the jobs of a state. It is over soon, and imports nothing that draws bars or speaks to Kafka."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streaming.cli.configuration import ConfigArgument, ConfigOption
from streaming.cli.jobs.served import Served
from streaming.control.state_view import JobView


def command(
    file: ConfigArgument = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, one object a line.")] = False,
) -> None:
    """List the jobs: how far each is, its limit, its output. The service need not run."""
    jobs = Served.of(config, file).state_reader.read().jobs
    if as_json:
        for job in jobs:
            typer.echo(json.dumps(as_dict(job)))
        return
    if not jobs:
        typer.echo("no jobs; `backfill create` makes one")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("job", "state", "read", "rows", "limit", "output", "form"):
        table.add_column(
            heading, justify="right" if heading in ("read", "rows", "limit") else "left", no_wrap=True
        )
    for job in jobs:
        limit = job.state.rate_limit
        table.add_row(
            job.name,
            job.phase,
            f"{job.extent.share:.1%}",
            f"{job.extent.rows_read:,}",
            "none" if limit is None else f"{limit:,}/s",
            job.state.definition.output,
            job.state.definition.form,
        )
    Console().print(table)


def as_dict(job: JobView) -> dict[str, object]:
    """A job as JSON values."""
    ids = job.state.definition.format.ids
    return {
        "job": job.name,
        "state": job.phase,
        "paused": job.state.paused,
        "paused_by": job.state.paused_by,
        "columns": [column.name for column in job.state.definition.columns],
        "columns_refused": job.state.columns_refused,
        "rate_limit": job.state.rate_limit,
        "share": round(job.extent.share, 4),
        "rows_read": job.extent.rows_read,
        "rows_left": job.extent.rows_left,
        "vnodes_done": job.vnodes_done,
        "start": job.state.start,
        "definition": json.loads(job.state.definition.to_json()),
        "schema_ids": None if ids is None else {"key": ids.key, "value": ids.value},
    }
