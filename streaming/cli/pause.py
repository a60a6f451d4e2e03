"""`backfill pause`: stop reading the snapshot for a job, or for all of them."""

from __future__ import annotations

from schemas.records import Pause
from streaming.cli.served import (
    DEFAULT_CONFIG,
    DEFAULT_PATIENCE_S,
    AllOption,
    ConfigOption,
    JobOrAllArgument,
    NoWaitOption,
    PatienceOption,
    require_one,
    steer,
    tell,
)


def command(
    job: JobOrAllArgument = None,
    config: ConfigOption = DEFAULT_CONFIG,
    every: AllOption = False,
    no_wait: NoWaitOption = False,
    timeout: PatienceOption = DEFAULT_PATIENCE_S,
) -> None:
    """Halt the backfill of a job, or of all, at the next barrier. Live changes go on.

    It stays so through restarts, until `backfill resume`.
    """
    require_one(job, every)
    tell(steer(config, Pause(job), wait=not no_wait, patience_s=timeout))
