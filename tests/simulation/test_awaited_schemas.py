"""Records whose schemas nobody knows yet: one lane waits for that of a value, every lane for that of a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from schemas.avro.projection import Project
from schemas.avro.registered import KnownSchemas, WriterSchema
from schemas.formats.change import ChangeFormat
from schemas.formats.protocol import Framed, Half
from schemas.formats.with_registry import RegistryFormat
from schemas.records import Add
from state.columns import OFFSET, OP, PARTITION
from streaming.lane.task import Awaits, LaneOutcome, LaneResult, LaneTask, Undone
from streaming.protocol.batches import Batches
from streaming.protocol.lanes.runner import Way
from streaming.protocol.setup import BatchSetup
from streaming.registry.client import SchemaBook
from streaming.source.decoded import AFTER, AWAITED, AWAITS, BEFORE
from tests.kit.upstream import Upstream
from tests.simulation.changelog import Changelog
from tests.simulation.crashes import ORDERS, left_before_each_step, play_on
from tests.simulation.instance import Instance
from tests.simulation.jobs import job_of, table_of
from tests.simulation.lanes import Lanes
from tests.simulation.state_digest import state_digest
from tests.simulation.world import Durable, Setting

VNODES = 4
OF_KEY, OF_VALUE = 7, 9
Place = tuple[int, int]


class Registered(RegistryFormat, ChangeFormat):
    """Changes whose keys and values name schemas."""

    @property
    def framed(self) -> Framed:
        return Framed(key=True, value=True)

    def projects(self, *_: object) -> Mapping[Half, Project]:
        return {}

    def incompatibility_of_schema(self, *_: object) -> None:
        return None


class AwaitingChangelog(Changelog):
    """Some records name these schemas, `OF_KEY` in their keys, all others known ones."""

    def __init__(self, upstream: Upstream, ids: Mapping[Place, int]) -> None:
        super().__init__(upstream, upstream_format=Registered())
        self._ids = ids

    def lane_rows(self, task: LaneTask, lane: int) -> pa.RecordBatch:
        own = super().lane_rows(task, lane)
        open_ids = {
            place: id_ for place, id_ in self._ids.items() if task.upstream_format.known.unanswered([id_])
        }
        lanes = [super(AwaitingChangelog, self).lane_rows(task, each) for each in range(task.plan.lanes)]
        of_keys = {place for place, id_ in open_ids.items() if id_ == OF_KEY}
        rows = [row for row in own.to_pylist() if _place(row) not in of_keys]
        rows += [row for each in lanes for row in each.to_pylist() if _place(row) in of_keys]
        return pa.RecordBatch.from_pylist([_waiting(row, open_ids) for row in rows], schema=own.schema)


def _place(row: Mapping[str, Any]) -> Place:
    return row[PARTITION], row[OFFSET]


def _waiting(row: dict[str, Any], ids: Mapping[Place, int]) -> dict[str, Any]:
    if _place(row) not in ids:
        return row
    return {**row, OP: AWAITS, AWAITED: [ids[_place(row)]], BEFORE: None, AFTER: None}


class EveryId(SchemaBook):
    """A registry that knows all ids; a new process has to ask again."""

    def __init__(self) -> None:
        self.every = set[int]()

    def learn(self, ids: Iterable[int]) -> KnownSchemas:
        self.every |= set(ids)
        return KnownSchemas(tuple(WriterSchema(each, '"long"') for each in sorted(self.every)))


class LearningBatches(Batches):
    def __init__(self, setup: BatchSetup) -> None:
        super().__init__(replace(setup, schemas=EveryId()))


class Noting(Lanes):
    """Notes what lanes do while one of them waits."""

    waits: set[tuple[type, ...]] = set()  # noqa: RUF012 (of all instances)

    def run(self, task: LaneTask, way: Way) -> list[LaneOutcome]:
        outcomes = super().run(task, way)
        kinds = tuple(type(each.why) if isinstance(each, Undone) else type(each) for each in outcomes)
        if Awaits in kinds:
            self.waits.add(kinds)
        return outcomes


class Learning(Instance):
    batches_type = LearningBatches

    def lanes(self) -> Lanes:
        return Noting(self)


@cache
def setting(id_: int) -> Setting:
    """A job of two lanes; in each of two intervals there is one record that names an unknown schema."""
    table = table_of(VNODES)
    job = job_of("copy", "copy", VNODES, rate_limit=2)
    upstream, ids = Upstream(table, partitions=2), dict[Place, int]()
    for epoch in range(6):
        for key in range(6):
            upstream.put((key, epoch))
        if epoch in (2, 4):
            ids |= {_last_place(upstream): id_ + epoch // 4 * 100 if id_ == OF_VALUE else id_}
        upstream.barrier(Add(job.to_json()) if epoch == 0 else None)
    upstream.barrier()
    return Setting(
        table, AwaitingChangelog(upstream, ids), (), {"copy": job}, lanes=(2,), compactions=False, closing=2
    )


def _last_place(upstream: Upstream) -> Place:
    number = max(range(2), key=lambda each: len(upstream.topic.partitions[each]))
    return number, upstream.topic.partitions[number][-1].offset


@pytest.mark.slow
@pytest.mark.parametrize(
    ("id_", "together"),
    [
        pytest.param(OF_VALUE, {Awaits, LaneResult}, id="of a value"),
        pytest.param(OF_KEY, {Awaits}, id="of a key"),
    ],
)
def test_the_law_holds_after_a_crash_before_any_step_while_a_lane_waits_for_a_schema(
    id_: int, together: set[type]
) -> None:
    Noting.waits.clear()
    left, wrong = left_before_each_step(setting(id_), ORDERS[0], Learning)
    assert not wrong
    assert {kind for kinds in Noting.waits for kind in kinds} == together
    distinct: dict[bytes, Durable] = {}
    for each in left:
        distinct.setdefault(state_digest(each), each)
    assert len(distinct) > 40
    for each in distinct.values():
        _, wrong = play_on(setting(id_), ORDERS[0], each, instance_type=Learning)
        assert not wrong
