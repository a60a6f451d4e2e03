"""An output as the upstream of a second service."""

from __future__ import annotations

import random
from typing import Any

import pytest

from schemas.job import JobDefinition
from tests.kit.tables import churn, table
from tests.kit.upstream import MemoryTopic, Upstream
from tests.simulation.without_faults import without_faults


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"columns": ["v", {"number": "id"}]},
    ],
    ids=["as it is", "under another name"],
)
def test_an_output_whose_columns_hold_the_key_is_an_upstream(keys: dict[str, Any]) -> None:
    schema = table(vnode_count=4)
    first = Upstream(schema)
    for number in range(10):
        changed = [(id_, number % 4, None if id_ % 5 else "x") for id_ in range(60)]
        churn(first, changed, 25, random.Random(number))
        first.barrier()
    declared = {"output_partitions": 2, "rate_limit": 8, "columns": ["v", "id"], "filter": "n < 3", **keys}
    job = JobDefinition.declare({"name": "copy", "output": "copy", **declared}, schema)
    topics = without_faults(first, job).durable.topics

    columns = {column.name: str(column.type) for column in job.columns_of(schema)}
    key = [column.name for column in job.key_columns_of(schema)]
    narrow = table(columns, key=key, vnode_count=6, distribution_key=key[:1])
    second = Upstream(narrow)
    second.topic = MemoryTopic([topics.committed(place) for place in topics.partitions("copy")])
    second.barriers = [barrier for barrier in first.barriers if barrier.curr >= _begin(second.topic)]
    again = {"name": "next", "output": "last", "rate_limit": 5, "filter": "v IS NOT NULL"}
    without_faults(second, JobDefinition.declare(again, narrow))


def _begin(topic: MemoryTopic) -> int:
    return min(int(entry.barrier) for entries in topic.partitions for entry in entries if entry.barrier)
