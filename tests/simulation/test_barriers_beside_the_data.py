"""Barriers that are no records of the topic: each ends with the last real record before it, and nothing is lost."""

from __future__ import annotations

import random

from schemas.job import JobDefinition
from schemas.json.barriers import decode_beside
from tests.kit.tables import churn, items, table
from tests.kit.upstream import Upstream
from tests.simulation.beside import BesideChangelog, oldest
from tests.simulation.fault_policies import NoFaults
from tests.simulation.histories import PERIOD_SHARE_MS
from tests.simulation.judge import violations
from tests.simulation.storage import Files
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


def test_old_barriers_are_deleted_at_every_chance_and_a_state_made_anew_goes_on_by_what_is_left() -> None:
    upstream = Upstream(TABLE, 3)
    upstream.every_ms = PERIOD_SHARE_MS
    upstream.put_all(items(range(30)))
    upstream.barrier()
    for number in range(12):
        churn(upstream, items(range(40), n=number), 15, random.Random(number))
        upstream.barrier()
    declared = {"name": "copy", "output": "copy", "output_partitions": 2, "format": "upsert", "rate_limit": 5}
    job = JobDefinition.declare(declared, TABLE)
    changelog = BesideChangelog(upstream)
    setting = Setting(
        TABLE, changelog, (job,), {"copy": job}, lanes=(2,), compactions=False, closing=3, deletes=True
    )
    world = World(setting, NoFaults())
    world.durable.arrivals.deletes_upstream = True
    try:
        world.start()
        while world.durable.arrivals.counts[0] < 8 or world.scheduler.turn():
            world.scheduler.turn()
        topics, arrivals = world.durable.topics, world.durable.arrivals
        firsts = [
            decode_beside(entry.barrier, entry.key, entry.value, partition=number).barrier
            for number in range(2)
            for entry in topics.committed(("copy.barriers", number))[:1]
        ]
        assert all(first.full and len(first.progress) == 2 for first in firsts)
        assert all(arrivals.deleted)
        assert oldest(arrivals) == firsts[0].curr == firsts[1].curr
        for instance in world.alive:
            world.scheduler.kill(instance.process)
        world.durable.files.restore(Files())
        world.durable.restored = True
        instance = world.start()
        instance.rebuilds = True
        world.settle()
        found = list(violations(world))
        assert not found
    finally:
        world.scheduler.end()
