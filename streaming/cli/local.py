"""`backfill kafka`, `prepare` and `failpoints`: what needs nothing but this machine."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from streaming.broker.embedded import EmbeddedBroker
from streaming.cli.configuration import JsonOption
from streaming.runtime import logs
from streaming.runtime.failpoints import VARIABLE, Failpoint
from streaming.runtime.java.jars import JarSet, broker_archive, class_archive, ensure

_STOPS = (signal.SIGINT, signal.SIGTERM)


def kafka(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 9092,
    data: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, help="Folder to keep the data in; without it they are deleted at the end."
        ),
    ] = None,
    heap: Annotated[str, typer.Option(help="Heap of the broker's JVM.")] = "512m",
) -> None:
    """Run a Kafka broker on 127.0.0.1 until Ctrl-C or SIGTERM.

    The first line of the output is its address.
    """
    # Blocked before the broker's threads and process exist, so a stop that comes early waits for its turn.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    with EmbeddedBroker(port=port, data=data, heap=heap) as broker:
        print(broker.bootstrap, flush=True)  # noqa: T201
        kept = f"data in {broker.data}" if data else "data deleted at the end"
        Console(stderr=True).print(
            f"Kafka runs; {kept}; log in {broker.log}. Ctrl-C stops it.", soft_wrap=True
        )
        signal.sigwait(_STOPS)


def prepare(
    again: Annotated[bool, typer.Option("--again", help="Rehearse even if it was done before.")] = False,
) -> None:
    """Fetch the jars, and rehearse a start so that later ones take a third less time.

    The rehearsal runs a small backfill on a broker of its own. What Java notes of it takes 250 MB beside the installed
    packages, and is only used with exactly these jars and this Java.
    """
    archives = broker_archive(ensure(JarSet.BROKER)), class_archive(ensure(JarSet.SPARK))
    console = Console(stderr=True)
    if all(archive.exists() for archive in archives) and not again:
        console.print("Prepared before; nothing to do.")
        return
    # The rehearsal is of no interest, slow as it may be, unless it fails.
    logs.configure(level=logs.LogLevel.ERROR)
    from streaming.demo.run import warm_up

    with console.status("Rehearsing a start (about half a minute)"):
        warm_up()
    size = sum(archive.stat().st_size for archive in archives)
    console.print(f"Prepared: {size / 1e6:,.0f} MB of classes noted.")


def failpoints(as_json: JsonOption = False) -> None:
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
