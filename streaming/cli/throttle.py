"""`backfill throttle`: bound how many snapshot rows a second a job reads."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.errors import Code, ConfigError
from schemas.records import Throttle
from streaming.cli.served import (
    DEFAULT_CONFIG,
    DEFAULT_PATIENCE_S,
    ConfigOption,
    JobArgument,
    NoWaitOption,
    PatienceOption,
    steer,
    tell,
)


def command(
    job: JobArgument,
    rows_per_second: Annotated[
        str, typer.Argument(help="Rows per second, 0 for none, `unlimited` to take the limit away.")
    ],
    config: ConfigOption = DEFAULT_CONFIG,
    no_wait: NoWaitOption = False,
    timeout: PatienceOption = DEFAULT_PATIENCE_S,
) -> None:
    """Limit the backfill of a job, all its lanes together. Live changes are never limited."""
    tell(steer(config, Throttle(job, _limit(rows_per_second)), wait=not no_wait, patience_s=timeout))


def _limit(text: str) -> int | None:
    if text == "unlimited":
        return None
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    raise ConfigError(
        Code.USAGE,
        found=f"rows per second {text[:40]!r}",
        expected="a whole number from 0, or `unlimited`",
        next_step="give one of them",
    )
