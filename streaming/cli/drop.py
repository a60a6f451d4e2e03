"""`backfill drop`: end a job."""

from __future__ import annotations

from schemas.records import Drop
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
    config: ConfigOption = DEFAULT_CONFIG,
    no_wait: NoWaitOption = False,
    timeout: PatienceOption = DEFAULT_PATIENCE_S,
) -> None:
    """End a job: all partitions of its output end with the same barrier. The topic stays as it is.

    The name is free again, for another output topic.
    """
    tell(steer(config, Drop(job), wait=not no_wait, patience_s=timeout))
