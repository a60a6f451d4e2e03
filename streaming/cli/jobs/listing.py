"""`backfill list` and `table`: the jobs of a state, and its replica as a table for Spark, DuckDB and delta-rs.

`list` is over soon: nothing here draws bars or speaks to Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streaming.cli.configuration import ConfigArgument, ConfigOption, JsonOption
from streaming.cli.jobs.served import Served
from streaming.control.state_view import JobView
from streaming.control.table_version import ReplicaVersions


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


def grid(facts: Iterable[tuple[str, str]]) -> Table:
    """Labels and texts, a line each."""
    made = Table.grid(padding=(0, 3))
    for label, text in facts:
        made.add_row(label, text)
    return made


def table(
    config: ConfigOption = None,
    at: Annotated[
        int | None, typer.Option(help="The barrier, by its epoch; by default the newest one.")
    ] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Keep these versions until --unpin.")] = False,
    unpin: Annotated[
        int | None, typer.Option(help="Let the versions that are kept for a barrier go.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the versions of the replica's tables at a barrier, and SQL that reads the table from them."""
    served = Served.of(config)
    versions = ReplicaVersions(served.storage, served.config.table)
    if unpin is not None:
        versions.unpin(unpin)
        typer.echo(json.dumps({"unpinned": unpin}) if as_json else f"unpinned: barrier {unpin}")
        return
    found = versions.at(at)
    if pin:
        versions.pin(found)
    pinned, view = list(versions.pins.read()), served.state_reader.read()
    is_whole = view.read is None and view.copy is None
    sql = {"spark": found.spark, "duckdb": found.duckdb, "delta-rs": found.delta_rs}
    if as_json:
        version = {"base": found.version.base, "log": found.version.log}
        shown = {"barrier": found.epoch, "is_whole": is_whole, **version, "pinned": pinned, "sql": sql}
        typer.echo(json.dumps(shown))
        return
    facts = {
        "barrier": str(found.epoch),
        **({} if is_whole else {"rows": "not all: the table that it starts from is still being read"}),
        "base": f"version {found.version.base}",
        "log": f"version {found.version.log}",
        "pinned": ", ".join(map(str, pinned)) or "none: versions are kept for some minutes",
    }
    Console(soft_wrap=True).print(grid(facts.items()), highlight=False)
    for name, text in sql.items():
        typer.echo(f"\n-- {name}\n{text}")
