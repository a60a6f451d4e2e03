"""`backfill kafka`: the embedded broker alone, until a signal."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from streaming.broker.embedded import EmbeddedBroker

_STOPS = (signal.SIGINT, signal.SIGTERM)


def command(
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
