"""`backfill table`: the replica as a table at a barrier, for Spark, DuckDB and delta-rs."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streaming.cli.configuration import ConfigOption, JsonOption
from streaming.cli.jobs.served import Served
from streaming.control.table_version import ReplicaVersions


def command(
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
        typer.echo(
            json.dumps(
                {"barrier": found.epoch, "is_whole": is_whole, **version, "pinned": pinned, "sql": sql}
            )
        )
        return
    facts = Table.grid(padding=(0, 3))
    facts.add_row("barrier", str(found.epoch))
    if not is_whole:
        facts.add_row("rows", "not all: the table that it starts from is still being read")
    facts.add_row("base", f"version {found.version.base}")
    facts.add_row("log", f"version {found.version.log}")
    facts.add_row("pinned", ", ".join(map(str, pinned)) or "none: versions are kept for some minutes")
    Console(soft_wrap=True).print(facts, highlight=False)
    for name, text in sql.items():
        typer.echo(f"\n-- {name}\n{text}")
