"""Settings of histories whose lanes' rows fall behind: for some barriers no job asks for rows before, then one does."""

from __future__ import annotations

import random

from schemas.job import JobDefinition
from schemas.records import Add, Drop, Mutation, Resume, Throttle
from schemas.table import declare
from tests.kit.upstream import Upstream
from tests.simulation.changelog import Changelog
from tests.simulation.fault_policies import Seeded
from tests.simulation.rows import AfterOnly
from tests.simulation.world import Setting

KEYS = 4
TABLE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", "n": "int"},
        "primary_key": ["id"],
        "vnode_count": 2,
    }
)


class Merging(Seeded):
    """Between batches the log is merged, mostly, and never compacted: that would end the rows' being behind."""

    def outcome(self, of: str, harmless: str, *others: str) -> str:
        if of == "maintenance" and not self.healed:
            return self.rng.choice(("nothing", "merge", "merge"))
        return super().outcome(of, harmless, *others)


def draw_setting(rng: random.Random) -> Setting:
    """A job follows the changes and is dropped; intervals of few changes or many go by, and another job is added."""
    upstream = Upstream(TABLE, rng.randint(1, 2))
    jobs = {name: _job(name, rng.choice([None, "n >= 1"])) for name in ("early", "late")}
    few, many = 1, 2 * KEYS
    _interval(upstream, rng, few, Add(jobs["early"].to_json()))
    for changes in (few, many, few)[: rng.randint(2, 3)]:
        _interval(upstream, rng, changes)
    upstream.barrier(Drop("early"))
    for _ in range(rng.randint(2, 3)):
        _interval(upstream, rng, few)
    upstream.barrier(Add(jobs["late"].to_json()))
    _interval(upstream, rng, many)
    closing = (Resume(None), Throttle("late", None), None, None)
    for last in closing:
        upstream.barrier(last)
    return Setting(
        TABLE,
        Changelog(upstream, frozenset(), AfterOnly()),
        (),
        jobs,
        lanes=(rng.choice([1, 2]),),
        compactions=True,
        closing=len(closing),
    )


def _job(name: str, condition: str | None) -> JobDefinition:
    return JobDefinition.declare(
        {"name": name, "output": name, "filter": condition, "output_partitions": 2}, TABLE
    )


def _interval(upstream: Upstream, rng: random.Random, changes: int, last: Mutation | None = None) -> None:
    for _ in range(changes):
        key = rng.randrange(KEYS)
        if (key,) in upstream.rows and rng.random() < 0.2:
            upstream.delete(key)
        else:
            upstream.put((key, rng.randrange(3)))
    upstream.barrier(last)
