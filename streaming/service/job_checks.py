"""The jobs that the state knows against what the configuration says now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schemas.errors import Code, ConfigError
from schemas.job import JobDefinition


def refuse_changed_jobs(known: Iterable[JobDefinition], configured: Iterable[JobDefinition]) -> None:
    """A job is what it was created as. Raises: ConfigError(JOB_CHANGED)."""
    by_name = {job.name: job for job in known}
    for job in configured:
        differences = by_name[job.name].differences(job) if job.name in by_name else []
        if differences:
            raise ConfigError(Code.JOB_CHANGED, where=f"job {job.name}", found="; ".join(differences))


def refuse_misfit_lanes(known: Iterable[JobDefinition], lanes: int) -> None:
    """A partition has the records of one lane only. Raises: ConfigError(CONFIG_INVALID)."""
    for job in known:
        if job.output_partitions % lanes:
            raise ConfigError(
                Code.CONFIG_INVALID,
                where="lanes",
                found=f"{lanes} lanes, {job.output_partitions} partitions of {job.name}",
                expected="lanes that divide the output_partitions of every job",
                next_step="choose another number of lanes",
            )


def refuse_nothing_to_do(known: Sequence[JobDefinition], configured: Sequence[JobDefinition]) -> None:
    """Who waits for jobs to complete needs one. Raises: ConfigError(NO_JOB)."""
    if not known and not configured:
        raise ConfigError(Code.NO_JOB, found="no job in the configuration or the state")
