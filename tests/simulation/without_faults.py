"""Histories in which nothing goes wrong, for tests of what depends on the table and its jobs."""

from __future__ import annotations

from schemas.job import JobDefinition
from schemas.records import Throttle
from tests.kit.upstream import Upstream
from tests.simulation.changelog import Changelog
from tests.simulation.crashes import ORDERS, WithObserver
from tests.simulation.fault_policies import NoFaults
from tests.simulation.judge import violations
from tests.simulation.world import Setting, World


def without_faults(upstream: Upstream, *jobs: JobDefinition, lanes: int = 1) -> World:
    """The world at the end, with the replica compacted on the way; the judge found nothing wrong.

    Barriers that end the limits of the jobs are written behind what the upstream holds.
    """
    closing = [*(Throttle(job.name, None) for job in jobs), None, None]
    for last in closing:
        upstream.barrier(last)
    setting = Setting(
        upstream.table,
        Changelog(upstream),
        jobs,
        {job.output: job for job in jobs},
        lanes=(lanes,),
        compactions=True,
        closing=len(closing),
    )
    world = World(setting, NoFaults())
    world.scheduler.policy = WithObserver(ORDERS[1], world)
    try:
        world.start()
        world.settle()
        wrong = violations(world)
        assert not wrong, wrong[:3]
    finally:
        world.scheduler.end()
    return world
