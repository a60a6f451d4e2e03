"""`backfill list`: the jobs of a service."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streaming.cli.served import DEFAULT_CONFIG, ConfigOption, Served
from streaming.steering.sight import SeenJob


def command(
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, one object a line.")] = False,
) -> None:
    """List the jobs: how far each is, its limit, its output. The service need not run."""
    jobs = Served.of(config).onlooker.look().jobs
    if as_json:
        for job in jobs:
            typer.echo(json.dumps(as_dict(job)))
        return
    if not jobs:
        typer.echo("no jobs; `backfill create` makes one")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("job", "state", "read", "rows", "limit", "output"):
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
        )
    Console().print(table)


def as_dict(job: SeenJob) -> dict[str, object]:
    """A job as JSON values."""
    return {
        "job": job.name,
        "state": job.phase,
        "paused": job.state.paused,
        "rate_limit": job.state.rate_limit,
        "share": round(job.extent.share, 4),
        "rows_read": job.extent.rows_read,
        "rows_left": job.extent.rows_left,
        "vnodes_done": job.vnodes_done,
        "start": job.state.start,
        "definition": json.loads(job.state.definition.to_json()),
    }
