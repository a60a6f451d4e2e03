"""Barriers that are no records of the topic: each ends with the last real record before it, and nothing is lost."""

from __future__ import annotations

import random

from schemas.job import JobDefinition
from tests.kit.tables import churn, items, table
from tests.kit.upstream import Upstream
from tests.simulation.beside import BesideChangelog
from tests.simulation.fault_policies import NoFaults
from tests.simulation.judge import violations
from tests.simulation.world import Setting, World

TABLE = table(vnode_count=4)


def test_barriers_beside_the_data_lose_nothing() -> None:
    upstream = Upstream(TABLE, 3)
    upstream.put_all(items(range(30)))
    upstream.barrier()
    for number in range(12):
        if number % 4:
            churn(upstream, items(range(40), n=number), 15, random.Random(number))
        upstream.barrier()
    declared = {"name": "copy", "output": "copy", "output_partitions": 2}
    job = JobDefinition.declare(declared, TABLE)
    setting = Setting(TABLE, BesideChangelog(upstream), (job,), {"copy": job}, lanes=(2,), compactions=False)
    world = World(setting, NoFaults())
    try:
        world.start()
        world.settle()
        assert not violations(world)
    finally:
        world.scheduler.end()
