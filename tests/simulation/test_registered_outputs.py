"""Outputs whose records name registered schemas: the plans have the ids, and a registry may be away."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from schemas.avro.registered import SchemaIds, framed_id
from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem
from schemas.job import JobDefinition
from schemas.records import Add
from state.journal import PATH as JOURNAL_PATH
from streaming.protocol.batches import Batches
from streaming.protocol.report import BatchReport
from streaming.protocol.setup import BatchSetup
from tests.kit.no_registry import NoRegistry
from tests.kit.tables import items, table
from tests.kit.upstream import Upstream
from tests.simulation.changelog import Changelog
from tests.simulation.fault_policies import NoFaults
from tests.simulation.instance import Instance
from tests.simulation.judge import violations
from tests.simulation.world import Setting, World

TABLE = table(vnode_count=4)
IDS = SchemaIds(key=7, value=9)


AWAY = EnvironmentProblem(Code.REGISTRY_UNREACHABLE, found="no answer")
INCOMPATIBLE = ConfigError(Code.OUTPUT_SCHEMA_INCOMPATIBLE, found="another one")


class KnownTo(NoRegistry):
    """A registry that has these problems, one a question, and then none."""

    def __init__(self, *problems: BackfillError) -> None:
        self.problems = list(problems)

    def ids_of(self, job: JobDefinition) -> SchemaIds:
        if self.problems:
            raise self.problems.pop(0)
        return IDS


class RegisteringBatches(Batches):
    registry: ClassVar[KnownTo]

    def __init__(self, setup: BatchSetup) -> None:
        super().__init__(replace(setup, registers=self.registry))


class Registering(Instance):
    batches_type = RegisteringBatches
    refused: ClassVar[list[Code]] = []

    def batch_done(self, report: BatchReport) -> None:
        super().batch_done(report)
        self.refused.extend(each.refused for each in report.outcome.reports if each.refused)


def setting(*, asked_for: bool) -> Setting:
    """Two jobs, of which one has schemas: in the file both, or this one only asked for."""
    declared = {"output_partitions": 2, "format": "debezium", "encoding": "avro-registry"}
    copy = JobDefinition.declare({"name": "copy", "output": "copy", **declared}, TABLE)
    plain = JobDefinition.declare({"name": "plain", "output": "plain", "output_partitions": 2}, TABLE)
    upstream = Upstream(TABLE, 2)
    upstream.put_all(items(range(12)))
    upstream.barrier(Add(copy.to_json()) if asked_for else None)
    for number in range(7):
        upstream.put((number, 1, f"v{number}"))
        if number == 4:
            upstream.delete(2)
        upstream.barrier()
    jobs = (plain,) if asked_for else (copy, plain)
    every = {"copy": copy.with_ids(IDS), "plain": plain}
    return Setting(TABLE, Changelog(upstream), jobs, every, lanes=(2,), compactions=False)


def played(*problems: BackfillError, asked_for: bool = False) -> World:
    """To its end, in which nothing is wrong."""
    RegisteringBatches.registry = KnownTo(*problems)
    Registering.refused.clear()
    world = World(setting(asked_for=asked_for), NoFaults(), instance_type=Registering)
    try:
        world.start()
        world.settle()
        assert not violations(world)
    finally:
        world.scheduler.end()
    return world


def jobs_of_plans(world: World) -> list[dict[str, Any]]:
    plans = [json.loads(plan) for plan in world.storage.every_row(JOURNAL_PATH, "plan") if plan]
    return [{job["state"]["definition"]["name"]: job["state"] for job in plan["jobs"]} for plan in plans]


def test_a_job_of_the_file_starts_once_the_registry_is_there_and_the_other_one_at_once() -> None:
    world = played(AWAY, AWAY, AWAY)
    found = jobs_of_plans(world)
    first = {name: next(n for n, jobs in enumerate(found) if name in jobs) for name in ("copy", "plain")}
    assert first["copy"] == first["plain"] + 3
    states = [jobs["copy"] for jobs in found if "copy" in jobs]
    assert all(state["schema_ids"] == [IDS.key, IDS.value] for state in states)
    topics = world.durable.topics
    data = [entry for place in topics.partitions("copy") for entry in topics.committed(place)]
    assert {framed_id(entry.key or b"") for entry in data} == {IDS.key}
    assert {framed_id(entry.value) for entry in data if entry.value is not None} == {IDS.value}
    assert not Registering.refused


@pytest.mark.parametrize("problem", [AWAY, INCOMPATIBLE], ids=lambda problem: problem.code)
def test_a_job_that_is_asked_for_is_refused_and_the_other_one_goes_on(problem: BackfillError) -> None:
    world = played(problem, asked_for=True)
    assert Registering.refused == [problem.code]
    plans = jobs_of_plans(world)
    assert not any("copy" in jobs for jobs in plans)
    assert "plain" in plans[-1]
    assert not world.durable.topics.partitions("copy")


@pytest.mark.parametrize("before", [(), (AWAY,)], ids=["at once", "after a delay"])
def test_a_job_of_the_file_that_is_refused_ends_the_start_and_later_only_itself(
    before: tuple[BackfillError, ...],
) -> None:
    RegisteringBatches.registry = KnownTo(*before, INCOMPATIBLE)
    Registering.refused.clear()
    world = World(setting(asked_for=False), NoFaults(), instance_type=Registering)
    instance = world.start()
    while world.scheduler.turn() or (world.alive and not world.durable.arrivals.is_over):
        world.durable.arrivals.most += not world.durable.arrivals.is_over
    assert (instance.process.ended_by is INCOMPATIBLE) == (not before)
    assert Registering.refused == ([INCOMPATIBLE.code] if before else [])
    assert not any("copy" in jobs for jobs in jobs_of_plans(world))
    world.scheduler.end()
