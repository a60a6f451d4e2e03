"""`backfill resume`: go on with a paused backfill."""

from __future__ import annotations

from schemas.records import Resume
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
    """Go on with the backfill of a job, or of all, from the next barrier on."""
    require_one(job, every)
    tell(steer(config, Resume(job), wait=not no_wait, patience_s=timeout))
