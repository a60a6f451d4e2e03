"""Outputs whose records name registered schemas: the plans have the ids, and a registry may be away."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from schemas.avro.registered import SchemaIds, framed_id
from schemas.errors import Code, EnvironmentProblem
from schemas.job import JobDefinition
from state.journal import PATH as JOURNAL_PATH
from streaming.protocol.batches import Batches
from streaming.protocol.planner import RegistersSchemas
from tests.kit.tables import items, table
from tests.kit.upstream import Upstream
from tests.simulation.changelog import Changelog
from tests.simulation.fault_policies import Straight
from tests.simulation.instance import Instance
from tests.simulation.judge import complaints
from tests.simulation.world import Setting, World

TABLE = table(vnode_count=4)
IDS = SchemaIds(key=7, value=9)


class KnownTo(RegistersSchemas):
    """A registry that is away for so many questions."""

    def __init__(self, away: int) -> None:
        self.away = away

    def ids_of(self, job: JobDefinition) -> SchemaIds:
        if self.away:
            self.away -= 1
            raise EnvironmentProblem(Code.REGISTRY_UNREACHABLE, found="nobody")
        return IDS


class RegisteringBatches(Batches):
    registry: ClassVar[KnownTo]

    def __init__(self, **parts: Any) -> None:
        super().__init__(registers=self.registry, **parts)


class Registering(Instance):
    batches_type = RegisteringBatches


def setting() -> Setting:
    """Two jobs of the file, of which one has schemas."""
    upstream = Upstream(TABLE, 2)
    upstream.put_all(items(range(12)))
    upstream.barrier()
    for number in range(7):
        upstream.put((number, 1, f"v{number}"))
        if number == 4:
            upstream.delete(2)
        upstream.barrier()
    declared = {"output_partitions": 2, "format": "debezium", "encoding": "avro-registry"}
    copy = JobDefinition.declare({"name": "copy", "output": "copy", **declared}, TABLE)
    plain = JobDefinition.declare({"name": "plain", "output": "plain", "output_partitions": 2}, TABLE)
    every = {"copy": copy.with_ids(IDS), "plain": plain}
    return Setting(TABLE, Changelog(upstream), (copy, plain), every, lanes=(2,), compactions=False)


def played(*, away: int) -> World:
    RegisteringBatches.registry = KnownTo(away)
    world = World(setting(), Straight(), instance_type=Registering)
    try:
        world.start()
        world.settle()
        assert not complaints(world)
    finally:
        world.scheduler.end()
    return world


def jobs_of_plans(world: World) -> list[dict[str, Any]]:
    plans = [json.loads(plan) for plan in world.storage.every_row(JOURNAL_PATH, "plan") if plan]
    return [{job["state"]["definition"]["name"]: job["state"] for job in plan["jobs"]} for plan in plans]


def test_a_job_of_the_file_starts_once_the_registry_is_there_and_the_other_one_at_once() -> None:
    world = played(away=3)
    found = jobs_of_plans(world)
    first = {name: next(n for n, jobs in enumerate(found) if name in jobs) for name in ("copy", "plain")}
    assert first["copy"] == first["plain"] + 3
    states = [jobs["copy"] for jobs in found if "copy" in jobs]
    assert all(state["schema_ids"] == [IDS.key, IDS.value] for state in states)
    topics = world.lasting.topics
    data = [entry for place in topics.partitions("copy") for entry in topics.committed(place)]
    assert {framed_id(entry.key or b"") for entry in data} == {IDS.key}
    assert {framed_id(entry.value) for entry in data if entry.value is not None} == {IDS.value}
