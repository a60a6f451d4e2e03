"""A connector that repeats the end of its stream behind every barrier, and every crash of a job of its table.

What a restart knows of the records before it decides whether it takes a repeated one for new: it has to know all of the
last batch, whose records are gone by then (`Instance.lose_what_is_done`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache

from schemas.records import Add, Throttle
from schemas.settings.limits import Limits
from tests.simulation.cases import Case
from tests.simulation.changelog import Changelog
from tests.simulation.connector import ConnectorUpstream, FromConnector
from tests.simulation.crashes import VNODES, left_before_each_step, play_on
from tests.simulation.fault_policies import Order
from tests.simulation.instance import Instance
from tests.simulation.jobs import job_of, table_of
from tests.simulation.state_digest import state_digest
from tests.simulation.world import Durable, Setting

IN_PARTS = Limits(interval_records=3, part_records=1)
"""Under which the intervals before the first job go into the log in parts."""


@cache
def redeliveries(limits: Limits = Limits()) -> Setting:  # noqa: B008 (a value)
    """Two intervals without a job, five with one; each begins with the last events of the one before."""
    table = table_of(VNODES)
    job = job_of("copy", "copy", VNODES, rate_limit=2)
    upstream = ConnectorUpstream(table, 2, random.Random(1))
    for epoch in range(7):
        for number in range(2 if epoch else 0):
            upstream.again(number, 2)
        for key in range(6) if epoch == 0 else (epoch % 3, 3 + epoch % 3):
            upstream.put((key, epoch))
        if epoch % 2:
            upstream.delete(epoch % 3)
        upstream.barrier(Add(job.to_json()) if epoch == 1 else None)
    for last in (Throttle("copy", None), None):
        upstream.barrier(last)
    changelog = Changelog(upstream, upstream_format=FromConnector())
    return Setting(
        table, changelog, (), {"copy": job}, lanes=(2, 1), compactions=True, closing=2, limits=limits
    )


def crashes_of(setting: Setting, order: Order, instance_type: type[Instance] = Instance) -> Iterator[Case]:
    """A crash before each step that leaves something new."""
    left, wrong = left_before_each_step(setting, order, instance_type)
    yield Case("none", lambda: wrong)
    known = set[bytes]()
    for step, durable in enumerate(left):
        if (digest := state_digest(durable)) not in known:
            known.add(digest)
            yield Case(f"crash before step {step}", _after(setting, order, durable, instance_type))


def _after(
    setting: Setting, order: Order, left: Durable, instance_type: type[Instance]
) -> Callable[[], list[str]]:
    return lambda: play_on(setting, order, left, instance_type=instance_type)[1]
