"""Checks of a configuration's parts against each other: jobs, topics, formats, registry and lanes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from schemas.errors import Code
from schemas.faults import Faults, brief
from schemas.formats.protocol import Format
from schemas.job import JobDefinition
from schemas.kinds.lanes import lanes_incompatibility
from schemas.settings.spark import SparkConfig
from schemas.table import TableSchema
from schemas.topics import UpstreamSection, UpstreamTopics

MAX_DEFAULT_LANES = 4


def find_doubles(jobs: Sequence[JobDefinition], faults: Faults) -> None:
    """Add names and outputs that several jobs have."""
    for what in ("name", "output"):
        for value, count in Counter(getattr(job, what) for job in jobs).items():
            if count > 1:
                faults.add(f"{count} jobs with {what} {value!r}")


def find_incompatible(
    jobs: Sequence[JobDefinition], upstream: Format, topics: UpstreamTopics, faults: Faults
) -> None:
    """Add jobs that can't read the upstream or would write to its topics, and topics that are named twice."""
    for job in jobs:
        if reason := job.scan.incompatibility_with_format(upstream):
            faults.add(f"job {job.name}: {reason}")
    named = [name for name in (topics.data, topics.barriers, topics.control) if name is not None]
    for topic in sorted({name for name in named if named.count(name) > 1}):
        faults.add(f"{topic!r} is two of upstream, barrier_topic and control_topic", Code.SAME_TOPIC)
    for job in jobs:
        if job.output in topics.all:
            what = "is the upstream or a topic beside it"
            faults.add(f"job {job.name}: output {job.output!r} {what}", Code.SAME_TOPIC)
        _find_taken(job, topics, jobs, faults)


def _find_taken(
    job: JobDefinition, topics: UpstreamTopics, jobs: Sequence[JobDefinition], faults: Faults
) -> None:
    """Add topics of a job, other than its output, that have another use."""
    taken = dict.fromkeys(topics.all, "upstream")
    for other in jobs:
        taken[other.output] = f"output of job {other.name}"
        if other is not job and other.barrier_topic is not None:
            taken[other.barrier_topic] = f"barrier topic of job {other.name}"
    for what, topic in {"dead letters": job.dead_letters, "barriers": job.barrier_topic}.items():
        if topic in taken:
            faults.add(f"{taken[topic]} {topic!r} is for the {what} of job {job.name}", Code.SAME_TOPIC)


def checked_read_limit(declared: object) -> int | None:
    """The limit of the section `upstream`. Raises: ValueError."""
    if declared is not None and (type(declared) is not int or declared < 1):
        raise ValueError(f"read_limit {brief(declared)} is no whole number above 0")
    return declared


def find_no_pace(source: UpstreamSection, topics: UpstreamTopics, faults: Faults, *, injects: bool) -> None:
    """Add a limit that nothing keeps: a batch takes whole intervals, so it is barriers that set the pace."""
    if source.read_limit is not None and not (injects and topics.barriers is not None):
        faults.add(
            "upstream.read_limit without 'barriers: inject' and a 'barrier_topic', whose barriers keep it"
        )


def find_no_registry(upstream: Format | None, jobs: Sequence[JobDefinition], faults: Faults) -> None:
    """Add what needs a registry, of a configuration without one."""
    if upstream is not None and upstream.framed:
        faults.add("no 'registry.url', where the schemas of upstream.encoding are")
    for job in jobs:
        if job.format.framed:
            faults.add(f"no 'registry.url', where the schemas of job {job.name} are registered")


def lanes_for(
    lanes: int | None, spark: SparkConfig, table: TableSchema, jobs: Sequence[JobDefinition], faults: Faults
) -> int:
    """The declared lanes, or the default; 0 where it is the number of partitions, which is counted later."""
    if lanes is None:
        counted_later = table.by_partition or any(job.scan.reads_upstream for job in jobs)
        return 0 if counted_later else default_lanes(spark, table, jobs)
    if table.has_key and not table.by_partition and lanes > table.vnode_count:
        faults.add(f"{lanes} lanes for a vnode_count of {table.vnode_count}")
    for job in jobs:
        if reason := lanes_incompatibility(job, lanes):
            faults.add(f"job {job.name}: {reason}")
    return lanes


def default_lanes(spark: SparkConfig, table: TableSchema, jobs: Sequence[JobDefinition]) -> int:
    """The most lanes that suit every job, up to the cores of this machine, or `MAX_DEFAULT_LANES` on a cluster."""
    most = MAX_DEFAULT_LANES
    if spark.master is None:
        most = min(most, len(os.sched_getaffinity(0)))
    most = min(most, table.vnode_count)
    return max(n for n in range(1, most + 1) if all(lanes_incompatibility(job, n) is None for job in jobs))
