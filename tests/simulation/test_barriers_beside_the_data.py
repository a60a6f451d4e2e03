"""Barriers that are no records of the topic: each ends with the last real record before it, and nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from schemas.job import JobDefinition
from state.columns import OP
from state.journal import Journal
from state.values.plan import AlignedBarrier
from streaming.source.decoded import MARKED
from tests.kit.tables import churn, items, table
from tests.kit.upstream import Upstream
from tests.simulation.changelog import Changelog
from tests.simulation.fault_policies import Straight
from tests.simulation.instance import Instance
from tests.simulation.judge import complaints
from tests.simulation.world import Setting, World

TABLE = table(vnode_count=4)


class DataAlone(Changelog):
    """Lanes get no records of barriers. The judge goes by them."""

    def lane_rows(self, first: Sequence[int], end: Sequence[int], vnodes: range) -> pa.RecordBatch:
        rows = super().lane_rows(first, end, vnodes)
        return rows.filter(pc.not_equal(pc.fill_null(rows[OP], -1), MARKED))

    def aligned(self) -> list[AlignedBarrier]:
        """Every barrier, with its ends among the data."""
        ends = [list(self._ends(number)) for number in range(self.count)]
        barriers = [found.barrier for found in self.barriers[0] if found.barrier is not None]
        beside_it = zip(barriers, zip(*ends, strict=True), strict=True)
        return [AlignedBarrier(barrier, each, in_data=False) for barrier, each in beside_it]

    def _ends(self, number: int) -> list[int]:
        ends, end = [], 0
        for entry in self.entries[number]:
            if entry.barrier is None:
                end = entry.offset + 1
            else:
                ends.append(end)
        return ends


class Beside(Instance):
    """Takes so many barriers at once."""

    at_once = 1

    def run(self, journal: Journal) -> None:
        batches, changelog = self.take_over(journal), self.arrivals.changelog
        batches.recover()
        assert isinstance(changelog, DataAlone)
        left = changelog.aligned()
        while left:
            report = batches.run(tuple(left[: self.at_once]), lambda end: ())
            assert report is not None
            left = left[len(report.plan.barriers) :]
        self.scheduler.step("rest", lambda: False)


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_barriers_beside_the_data_lose_nothing(at_once: int) -> None:
    upstream = Upstream(TABLE, 3)
    upstream.put_all(items(range(30)))
    upstream.barrier()
    for number in range(12):
        if number % 4:
            churn(upstream, items(range(40), n=number), 15, random.Random(number))
        upstream.barrier()
    declared = {"name": "copy", "output": "copy", "output_partitions": 2}
    job = JobDefinition.declare(declared, TABLE)
    setting = Setting(TABLE, DataAlone(upstream), (job,), {"copy": job}, lanes=(2,), compactions=False)
    beside = type("BesideAtOnce", (Beside,), {"at_once": at_once})
    world = World(setting, Straight(), instance_type=beside)
    try:
        world.start()
        world.settle()
        assert not complaints(world)
    finally:
        world.scheduler.end()
