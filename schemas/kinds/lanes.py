"""Shares of lanes in a job's parts and output partitions: one lane writes a partition."""

from __future__ import annotations

from schemas.job import JobDefinition


def lanes_misfit(job: JobDefinition, lanes: int) -> str | None:
    """The reason why a job can't run with so many lanes, None if it can.

    Parts that are partitions fall into contiguous shares of any size; vnodes have to fill whole partitions.
    """
    partitions = job.output_partitions
    if job.scan.reads_upstream:
        return f"{lanes} lanes for {partitions} partitions" if 0 < partitions < lanes else None
    return f"{lanes} lanes don't divide {partitions} output_partitions" if partitions % lanes else None


def share_of(lane: int, lanes: int, count: int) -> range:
    """The vnodes or partitions, of `count`, that a lane has: number n is in the share of lane n * lanes // count."""
    return range(-(-lane * count // lanes), -(-(lane + 1) * count // lanes))


def parts_of(job: JobDefinition, partition: int) -> range:
    """The parts of a job that live in an output partition, see `JobDefinition.partition_of`."""
    first, end = (-(-n * job.part_count // job.output_partitions) for n in (partition, partition + 1))
    return range(first, end)
