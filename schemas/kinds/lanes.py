"""Shares of lanes in a job's parts and output partitions: one lane writes a partition."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.job import JobDefinition
from schemas.table import TableSchema

MOST_LANES = 1_024


def lanes_incompatibility(job: JobDefinition, lanes: int) -> str | None:
    """The reason why a job can't run with so many lanes, None if it can.

    Parts that are partitions fall into contiguous shares of any size; vnodes have to fill whole partitions.
    """
    partitions = job.output_partitions
    if job.scan.reads_upstream:
        return f"{lanes} lanes for {partitions} partitions" if 0 < partitions < lanes else None
    return f"{lanes} lanes don't divide {partitions} output_partitions" if partitions % lanes else None


def rescale_incompatibility(
    lanes: int, jobs: Iterable[tuple[JobDefinition, bool]], table: TableSchema, partitions: int | None
) -> str | None:
    """The reason why these jobs can't run with so many lanes, None if they can.

    Each job is with True if it is read to its end: until then a no-shuffle backfill is tied to one lane a partition.
    `partitions` are the upstream's, None where they are not known.
    """
    most = partitions if table.by_partition or not table.has_key else table.vnode_count
    most = min(MOST_LANES, most or MOST_LANES)
    if not 1 <= lanes <= most:
        return f"{lanes} lanes, where 1 to {most} can have a share"
    if table.by_partition and partitions and partitions % lanes:
        return f"{lanes} lanes don't divide the upstream's {partitions} partitions"
    for job, is_read in jobs:
        if reason := lanes_incompatibility(job, lanes):
            return f"{reason} of {job.name}"
        if job.is_coupled and not is_read and partitions and lanes != partitions:
            return f"{lanes} lanes for {partitions} partitions, and job {job.name} is not complete"
    return None


def share_of(lane: int, lanes: int, count: int) -> range:
    """The vnodes or partitions, of `count`, that a lane has: number n is in the share of lane n * lanes // count."""
    return range(-(-lane * count // lanes), -(-(lane + 1) * count // lanes))


def parts_of(job: JobDefinition, partition: int) -> range:
    """The parts of a job that live in an output partition, see `JobDefinition.partition_of`."""
    first, end = (-(-n * job.part_count // job.output_partitions) for n in (partition, partition + 1))
    return range(first, end)
