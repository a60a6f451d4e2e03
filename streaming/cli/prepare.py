"""`backfill prepare`: everything that a start would have to fetch or find out."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from streaming.runtime.java.class_archive import class_archive
from streaming.runtime.java.jars import JarSet, ensure


def command(
    again: Annotated[bool, typer.Option("--again", help="Rehearse even if it was done before.")] = False,
) -> None:
    """Fetch the jars, and rehearse a start so that later ones take a third less time.

    The rehearsal runs a small backfill on a broker of its own. What Java notes of it takes 200 MB beside the installed
    packages, and is only used with exactly these jars and this Java.
    """
    ensure(JarSet.BROKER)
    archive = class_archive(ensure(JarSet.SPARK))
    console = Console(stderr=True)
    if archive.exists() and not again:
        console.print("Prepared before; nothing to do.")
        return
    from streaming.dev.demo.warmup import warm_up

    with console.status("Rehearsing a start (about half a minute)"):
        warm_up()
    console.print(f"Prepared: {archive.stat().st_size / 1e6:,.0f} MB of classes noted.")
