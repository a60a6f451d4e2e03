"""Checks of the jobs of the state against the configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from schemas.errors import Code, ConfigError
from schemas.job import JobDefinition
from schemas.kinds.lanes import rescale_misfit
from schemas.settings.config import ServiceConfig
from schemas.settings.consistency import default_lanes
from schemas.table import TableSchema
from state.values.progress import is_complete

if TYPE_CHECKING:  # `doctor` needs none of what runs batches
    from streaming.protocol.batches import Batches


def counted(config: ServiceConfig, partitions: int) -> ServiceConfig:
    """The configuration with the values that follow from the number of the upstream's partitions.

    Raises: ConfigError(CONFIG_INVALID) for lanes that don't divide it, where vnodes are partitions.
    """
    if not config.table.by_partition:
        if config.lanes:
            return config
        return with_default_lanes(config, partitions)
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


def with_default_lanes(
    config: ServiceConfig, partitions: int, known: Iterable[JobDefinition] = ()
) -> ServiceConfig:
    """The configuration with a number of lanes that nothing asks for: it suits its jobs, and `known` ones."""
    jobs = [*(job.with_partitions(partitions) for job in config.jobs), *known]
    return config.model_copy(update={"lanes": default_lanes(config.spark, config.table, jobs)})


def refuse_changed_jobs(
    known: Iterable[JobDefinition], configured: Iterable[JobDefinition], table_widths: Collection[int]
) -> None:
    """Raises: ConfigError(JOB_CHANGED) if a configured job differs from the known one of its name."""
    by_name = {job.name: job for job in known}
    for job in configured:
        differences = by_name[job.name].differences(job, table_widths) if job.name in by_name else []
        if differences:
            raise ConfigError(Code.JOB_CHANGED, where=f"job {job.name}", found="; ".join(differences))


def refuse_rescale(
    known: Iterable[tuple[JobDefinition, bool]],
    configured: Iterable[JobDefinition],
    lanes: int,
    table: TableSchema,
    partitions: int,
    *,
    is_set: bool = False,
) -> None:
    """Raises: ConfigError(RESCALE_REFUSED) for lanes with which a job can't run, see `rescale_misfit`.

    `known` jobs are with True once they are read to their end; `is_set`: a `Lanes` has set the number.
    """
    jobs = list(known)
    names = {job.name for job, _ in jobs}
    jobs += [(job, False) for job in configured if job.name not in names]
    misfit = rescale_misfit(lanes, jobs, table, partitions)
    if misfit is not None:
        found = (
            f"{misfit}; `backfill lanes` has set the number, before `lanes` of the file" if is_set else misfit
        )
        step = "take the new job out of the file, start, and give `backfill lanes` and `backfill create`"
        raise ConfigError(
            Code.RESCALE_REFUSED, where="lanes", found=found, next_step=step if is_set else None
        )


def check_jobs(batches: Batches, config: ServiceConfig, table_widths: Collection[int]) -> None:
    """Check the jobs that the state knows against the configuration's. Raises: ConfigError."""
    partitions = len(batches.next_offsets())
    known = [job.definition for job in batches.jobs]
    configured = [job.with_partitions(partitions) for job in config.jobs]
    refuse_changed_jobs(known, configured, table_widths)
    read = [(job, is_complete(batches.progress.get(job.name, {}), job.part_count)) for job in known]
    # A new job that a `Lanes` leaves no room for was refused by the start of the process, or is by its first batch.
    new = () if batches.state.lanes_set else configured
    refuse_rescale(read, new, batches.state.lanes, config.table, partitions)


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
