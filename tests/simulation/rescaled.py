"""A job whose lanes change at nearly every barrier while it reads, up and down."""

from __future__ import annotations

from functools import cache

from schemas.job import JobDefinition
from schemas.records import Add, Lanes, Mutation, Throttle
from tests.kit.upstream import Upstream
from tests.simulation.changelog import Changelog
from tests.simulation.jobs import table_of
from tests.simulation.world import Setting

VNODES = 4
RISING_AND_FALLING = (4, 1, 2, 4, 2, 3, 1, 4)
"""Three lanes are refused: they don't divide the output's four partitions."""


@cache
def rescaled(changes: tuple[int, ...] = RISING_AND_FALLING) -> Setting:
    """The file says two lanes. A row is read a batch, so a change of lanes meets vnodes in every state."""
    table = table_of(VNODES)
    declared = {"name": "copy", "output": "copy", "output_partitions": VNODES, "rate_limit": 1}
    job = JobDefinition.declare(declared, table)
    upstream = Upstream(table, partitions=2)
    riding: list[Mutation | None] = [Add(job.to_json()), *map(Lanes, changes), None]
    for epoch, mutation in enumerate(riding):
        for key in range(8) if epoch == 0 else (epoch % 4, 4 + epoch % 3, 10 + epoch):
            upstream.put((key, epoch))
        if epoch % 3 == 2:
            upstream.delete(epoch % 4)
        upstream.barrier(mutation)
    for last in (Throttle("copy", None), None):
        upstream.barrier(last)
    return Setting(table, Changelog(upstream), (), {"copy": job}, lanes=(2,), compactions=True, closing=2)
