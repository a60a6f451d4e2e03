"""Tables of the simulation, and jobs of them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

from schemas.job import JobDefinition
from schemas.kinds.scans import TopicScan
from schemas.table import TableSchema, declare

FORMS = ("change", "upsert", "debezium")
"""Of outputs that have their barriers in topics of their own."""

FROM_NOW, UNTIL_COMPLETE = 0.1, 0.15
"""Of all jobs, those that begin now, as rows by key, and those that end once they are complete."""


@cache
def table_by_partition(partitions: int) -> TableSchema:
    columns = {"id": "bigint", "n": "int"}
    declared = {"name": "t", "columns": columns, "primary_key": ["id"], "distribution": "upstream"}
    return declare(declared).with_partitions(partitions)


def by_partition(job: JobDefinition, partitions: int) -> JobDefinition:
    """The same job of the table whose vnodes are the upstream's partitions, which the service counts."""
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
    """The same job with an output of this form, whose barriers are in a topic of their own."""
    barriers = f"{job.output}.barriers"
    declaration = {**json.loads(job.to_json()), "format": form, "barrier_topic": barriers}
    declaration = {key: value for key, value in declaration.items() if key not in ("encoding", "tombstones")}
    return JobDefinition.declare(declaration, table_of(job.part_count))


def of_extent(job: JobDefinition, drawn: float) -> JobDefinition:
    """The same job, or one that sends less, by a number from 0 to 1."""
    if drawn < FROM_NOW:
        return replace(in_form(job, "upsert"), from_now=True)
    return replace(job, until_complete=drawn < FROM_NOW + UNTIL_COMPLETE)


def reading_topic(job: JobDefinition) -> JobDefinition:
    """The same job with `read: topic`, whose partitions the service counts."""
    return replace(job, scan=TopicScan(), output_partitions=0)
