"""Checks of the jobs of the state against the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from schemas.errors import Code, ConfigError
from schemas.job import JobDefinition
from schemas.kinds.lanes import lanes_misfit
from schemas.settings.config import ServiceConfig
from schemas.settings.consistency import default_lanes
from state.values.progress import Progress, is_complete

if TYPE_CHECKING:  # `doctor` needs none of what runs batches
    from streaming.protocol.batches import Batches


def counted(config: ServiceConfig, partitions: int) -> ServiceConfig:
    """The configuration with the values that follow from the number of the upstream's partitions.

    Raises: ConfigError(CONFIG_INVALID) for lanes that don't divide it, where vnodes are partitions.
    """
    if not config.table.by_partition:
        if config.lanes:
            return config
        counted_jobs = [job.with_partitions(partitions) for job in config.jobs]
        lanes = default_lanes(config.spark, config.table, counted_jobs)
        return config.model_copy(update={"lanes": lanes})
    lanes = config.lanes or partitions
    if partitions % lanes:
        raise ConfigError(
            Code.CONFIG_INVALID,
            where="lanes",
            found=f"{lanes} lanes, {partitions} partitions of {config.upstream}",
            expected="lanes that divide the upstream's partitions, with table.distribution: upstream",
            next_step="leave lanes out, which makes it the number of partitions",
        )
    jobs = tuple(job.with_partitions(partitions) for job in config.jobs)
    table = config.table.with_partitions(partitions)
    return config.model_copy(update={"table": table, "lanes": lanes, "jobs": jobs})


def refuse_changed_jobs(known: Iterable[JobDefinition], configured: Iterable[JobDefinition]) -> None:
    """Raises: ConfigError(JOB_CHANGED) if a configured job differs from the known one of its name."""
    by_name = {job.name: job for job in known}
    for job in configured:
        differences = by_name[job.name].differences(job) if job.name in by_name else []
        if differences:
            raise ConfigError(Code.JOB_CHANGED, where=f"job {job.name}", found="; ".join(differences))


def refuse_incompatible_lanes(known: Iterable[JobDefinition], lanes: int) -> None:
    """Raises: ConfigError(CONFIG_INVALID) for lanes with which a job can't run, see `JobDefinition.lanes_misfit`."""
    for job in known:
        misfit = lanes_misfit(job, lanes)
        if misfit is not None:
            raise ConfigError(
                Code.CONFIG_INVALID,
                where="lanes",
                found=f"{misfit} of {job.name}",
                expected="lanes that divide the output_partitions of every job, or, with read: topic, are no more "
                "than the upstream's partitions",
                next_step="choose another number of lanes",
            )


def refuse_rescale(
    known: Iterable[tuple[JobDefinition, Mapping[int, Progress]]],
    configured: Iterable[JobDefinition],
    lanes: int,
    partitions: int,
) -> None:
    """A no-shuffle backfill is tied to one lane a partition until it is complete; `known` jobs have their progress.

    Raises: ConfigError(RESCALE_REFUSED).
    """
    if lanes == partitions:
        return
    by_name = {job.name: (job, progress) for job, progress in known}
    new = {job.name: (job, dict[int, Progress]()) for job in configured if job.name not in by_name}
    for job, progress in (*by_name.values(), *new.values()):
        if job.is_coupled and not is_complete(progress, job.part_count):
            raise ConfigError(
                Code.RESCALE_REFUSED,
                where="lanes",
                found=f"{lanes} lanes for {partitions} partitions, and job {job.name} is not complete",
            )


def check_jobs(batches: Batches, config: ServiceConfig) -> None:
    """Check the jobs that the state knows against the configuration's. Raises: ConfigError."""
    partitions = len(batches.next_offsets())
    known = [job.definition for job in batches.jobs]
    configured = [job.with_partitions(partitions) for job in config.jobs]
    refuse_changed_jobs(known, configured)
    refuse_incompatible_lanes((*known, *configured), config.lanes)
    progress = [(job, batches.progress.get(job.name, {})) for job in known]
    refuse_rescale(progress, configured, config.lanes, partitions)


def are_complete(batches: Batches) -> bool:
    """True if every job has read its snapshot to the end, and none is still to be added."""
    return (
        bool(batches.jobs)
        and not batches.state.configured
        and all(
            job.opened and is_complete(batches.progress.get(job.name, {}), job.definition.part_count)
            for job in batches.jobs
        )
    )


def refuse_nothing_to_do(known: Sequence[JobDefinition], configured: Sequence[JobDefinition]) -> None:
    """For `--exit-when-complete`, which needs a job. Raises: ConfigError(NO_JOB)."""
    if not known and not configured:
        raise ConfigError(Code.NO_JOB, found="no job in the configuration or the state")
