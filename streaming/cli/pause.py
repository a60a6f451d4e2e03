"""`backfill pause`: stop reading the snapshot for a job, or for all of them."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.errors import Code, ConfigError
from schemas.records import Pause
from streaming.cli.served import (
    DEFAULT_CONFIG,
    DEFAULT_PATIENCE_S,
    ConfigOption,
    NoWaitOption,
    PatienceOption,
    steer,
    tell,
)


def command(
    job: Annotated[str | None, typer.Argument(help="Name of the job.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    every: Annotated[bool, typer.Option("--all", help="All jobs, in place of one.")] = False,
    no_wait: NoWaitOption = False,
    timeout: PatienceOption = DEFAULT_PATIENCE_S,
) -> None:
    """Halt the backfill of a job, or of all, at the next barrier. Live changes go on.

    It stays so through restarts, until `backfill resume`.
    """
    if (job is None) != every:
        raise ConfigError(
            Code.USAGE,
            found="no job" if job is None else "a job and --all",
            expected="one of them",
            next_step="name a job, or say --all",
        )
    tell(steer(config, Pause(job), wait=not no_wait, patience_s=timeout))
