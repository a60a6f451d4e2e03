"""The jobs that a command may name: those of the configuration, and those that were created since."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.errors import Code, ConfigError, StateError
from schemas.job import JobDefinition
from schemas.settings.config import ServiceConfig
from schemas.table import nearest
from state.storage import Storage
from streaming.control.state_view import StateReader


def known_jobs(config: ServiceConfig) -> dict[str, JobDefinition]:
    """By name. What is in the state wins over the file, as it does in the service.

    Only the file counts where the state's folder is not at hand: topics can be read from any machine.
    """
    jobs = {job.name: job for job in config.jobs}
    try:
        view = StateReader(Storage(str(config.state)), config.table).read()
    except StateError as error:
        if error.code is not Code.STATE_PATH_INVALID:
            raise
        return jobs
    return jobs | {job.name: job.state.definition for job in view.jobs}


def job_named(name: str, jobs: Mapping[str, JobDefinition]) -> JobDefinition:
    """One of `known_jobs`. Raises: ConfigError(JOB_UNKNOWN)."""
    if name not in jobs:
        raise ConfigError(
            Code.JOB_UNKNOWN,
            where=name,
            found=f"no job of that name{nearest(name, list(jobs))}",
            next_step="see `backfill list`; for an output without a job, name its topic",
        )
    return jobs[name]
