"""Tables of the simulation, and jobs of them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from schemas.job import JobDefinition
from schemas.kinds.configs import TopicScan
from schemas.kinds.lanes import rescale_incompatibility
from schemas.kinds.projection import OutputColumn
from schemas.table import TableSchema, declare

FORMS = ("change", "upsert", "debezium")
"""Of outputs that have their barriers in topics of their own."""

FROM_NOW, UNTIL_COMPLETE = 0.1, 0.15
"""Of all jobs, those that begin now, as rows by key, and those that end once they are complete."""


SHOWN = ("all", "all", "all", "names", "mask", "value")
KEYED = 0.2
"""Of all jobs, those whose records have another key."""


@cache
def table_by_partition(partitions: int) -> TableSchema:
    columns = {"id": "bigint", "n": "int"}
    declared = {"name": "t", "columns": columns, "primary_key": ["id"], "distribution": "upstream"}
    return declare(declared).with_partitions(partitions)


def by_partition(job: JobDefinition, partitions: int) -> JobDefinition:
    """The job for the table whose vnodes are the upstream's partitions, which the service counts."""
    declaration = {**json.loads(job.to_json()), "output_partitions": None}
    return JobDefinition.declare(declaration, table_by_partition(partitions))


@cache
def table_of(vnode_count: int) -> TableSchema:
    return declare(
        {
            "name": "t",
            "columns": {"id": "bigint", "n": "int"},
            "primary_key": ["id"],
            "vnode_count": vnode_count,
        }
    )


@cache
def job_of(
    name: str, output: str, vnode_count: int, rate_limit: int | None, condition: str | None = None
) -> JobDefinition:
    declaration = {
        "name": name,
        "output": output,
        "filter": condition,
        "output_partitions": 2,
        "rate_limit": rate_limit,
    }
    return JobDefinition.declare(declaration, table_of(vnode_count))


def in_form(job: JobDefinition, form: str) -> JobDefinition:
    """The job with its output in this form, whose barriers are in a topic of their own."""
    barriers = f"{job.output}.barriers"
    declaration = {**json.loads(job.to_json()), "format": form, "barrier_topic": barriers}
    declaration = {key: value for key, value in declaration.items() if key not in ("encoding", "tombstones")}
    return JobDefinition.declare(declaration, table_of(job.part_count))


def of_extent(job: JobDefinition, drawn: float) -> JobDefinition:
    """The job, or one that sends less, by a number from 0 to 1."""
    if drawn < FROM_NOW:
        return replace(in_form(job, "upsert"), from_now=True)
    return replace(job, until_complete=drawn < FROM_NOW + UNTIL_COMPLETE)


def shown_otherwise(job: JobDefinition, chance: random.Random) -> JobDefinition:
    """The job, or one whose columns have other names or a mask, and whose records have another key."""
    names = [OutputColumn("key", "id"), OutputColumn("m", "n")]
    masked = [OutputColumn("n", "n", "null"), OutputColumn("id", "id")]
    columns = {"names": names, "mask": masked, "value": names[1:]}.get(chance.choice(SHOWN))
    if columns is not None:
        job = replace(job, columns=tuple(columns))
    may_have = not job.scan.reads_upstream and columns is not masked
    key = chance.choice([("n", "id"), ("id", "n")]) if chance.random() < KEYED and may_have else ()
    return replace(job, key=key)


def reading_topic(job: JobDefinition) -> JobDefinition:
    """The job with `read: topic`, whose partitions the service counts."""
    return replace(job, scan=TopicScan(), output_partitions=0)


def fitting_lanes(
    known: Sequence[tuple[JobDefinition, bool]],
    new: Sequence[JobDefinition],
    table: TableSchema,
    partitions: int,
) -> int:
    """The lanes that RESCALE_REFUSED asks an operator to set: the most with which these jobs can run."""
    names = {job.name for job, _ in known}
    jobs = [*known, *((job, False) for job in new if job.name not in names)]
    return next(
        n for n in range(partitions, 0, -1) if rescale_incompatibility(n, jobs, table, partitions) is None
    )
