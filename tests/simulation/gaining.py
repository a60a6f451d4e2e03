"""A topic that gains partitions while a job reads its table: keys go on in other partitions from then on.

A partition is added between two barriers, so that records of a key come from two in one interval; the next barrier
tells of it. Until then the service knows of no further partition, as one that began before it was added.
"""

from __future__ import annotations

from functools import cache

from schemas.records import Add, Throttle
from schemas.settings.limits import Limits
from tests.kit.upstream import Upstream
from tests.simulation.beside import BesideChangelog
from tests.simulation.changelog import Changelog
from tests.simulation.crashes import VNODES
from tests.simulation.jobs import job_of, reading_topic, table_of
from tests.simulation.world import Setting

BARRIERS, LATE = 8, 3_000
IN_PARTS = Limits(interval_records=3, part_records=2)


@cache
def gaining(
    *at: int,
    beside: bool = False,
    limits: Limits = Limits(),  # noqa: B008 (a value)
    reads_topic: bool = True,
) -> Setting:
    """A job of the table, and one of its topic, which read a row a batch; a partition is added in intervals `at`."""
    table = table_of(VNODES)
    job = job_of("copy", "copy", VNODES, rate_limit=1)
    log = reading_topic(job_of("log", "log", VNODES, rate_limit=1))
    upstream = Upstream(table, partitions=2)
    late = 1
    for epoch in range(BARRIERS):
        upstream.put((LATE, 10 * epoch), partition=late)
        if epoch - 1 in at:  # a producer that learns of it one interval later
            late = 1 - late
            upstream.put((LATE, 10 * epoch + 1), partition=late)
        keys = range(8) if epoch == 0 else (epoch % 4, 4 + epoch % 3, 10 + epoch)
        for number in range(3 if epoch in at else 1):
            for key in keys:
                upstream.put((key, 10 * epoch + number))
            if number == 0 and epoch in at:
                upstream.gain()
        if epoch % 3 == 2:
            upstream.delete(epoch % 4)
        adds = {0: Add(job.to_json()), **({1: Add(log.to_json())} if reads_topic else {})}
        upstream.barrier(adds.get(epoch))
    for last in (Throttle("copy", None), Throttle("log", None), None, None):
        upstream.barrier(last)
    changelog = (BesideChangelog if beside else Changelog)(upstream)
    return Setting(
        table,
        changelog,
        (),
        {"copy": job, "log": log},
        lanes=(2,),
        compactions=True,
        closing=4,
        limits=limits,
    )
