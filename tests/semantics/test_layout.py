"""Numbers of vnodes, output partitions, upstream partitions and lanes."""

from __future__ import annotations

import random

import pytest

from schemas.job import JobDefinition
from tests.kit.tables import churn, items, table
from tests.kit.upstream import Upstream
from tests.simulation.without_faults import without_faults


def play(*, vnodes: int, output_partitions: int, partitions: int = 2, lanes: int = 1) -> None:
    schema = table(vnode_count=vnodes)
    upstream = Upstream(schema, partitions)
    upstream.put_all(items(range(100)))
    upstream.barrier()
    for number in range(4):
        churn(upstream, items(range(120), n=number), 40, random.Random(number))
        upstream.barrier()
    declared = {"name": "copy", "output": "copy", "output_partitions": output_partitions, "rate_limit": 20}
    world = without_faults(upstream, JobDefinition.declare(declared, schema), lanes=lanes)
    assert len(world.durable.topics.partitions("copy")) == output_partitions


@pytest.mark.parametrize("output_partitions", [1, 8])
@pytest.mark.parametrize("vnodes", [2, 64, 1024])
def test_any_number_of_vnodes_and_output_partitions(vnodes: int, output_partitions: int) -> None:
    play(vnodes=vnodes, output_partitions=min(output_partitions, vnodes))


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("partitions", [1, 3])
def test_any_number_of_lanes_and_upstream_partitions(lanes: int, partitions: int) -> None:
    play(vnodes=10, output_partitions=4, partitions=partitions, lanes=lanes)
