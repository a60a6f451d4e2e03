"""`backfill prepare`: everything that a start would have to fetch or find out."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from streaming.runtime import logs
from streaming.runtime.java.jars import JarSet, broker_archive, class_archive, ensure


def command(
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
    logs.configure(
        level=logs.LogLevel.ERROR
    )  # the rehearsal is of no interest, slow as it may be, unless it fails
    from streaming.demo.run import warm_up

    with console.status("Rehearsing a start (about half a minute)"):
        warm_up()
    size = sum(archive.stat().st_size for archive in archives)
    console.print(f"Prepared: {size / 1e6:,.0f} MB of classes noted.")
