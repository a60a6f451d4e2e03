"""A job whose topic can't be made: it is refused, and the service goes on, whatever the journal said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import Code, EnvironmentProblem, TopicError
from schemas.records import Add
from state.journal import PATH as JOURNAL_PATH
from streaming.protocol.report import BatchReport
from tests.kit.avro_codec import KeyCodec
from tests.kit.upstream import Upstream
from tests.simulation.broker import Broker
from tests.simulation.changelog import Changelog
from tests.simulation.crashes import job_of_epochs
from tests.simulation.fault_policies import NoFaults
from tests.simulation.instance import Instance
from tests.simulation.jobs import job_of, table_of
from tests.simulation.scheduler import Strand
from tests.simulation.world import Setting, World


class MakesNoTopic(Broker):
    def create_topic(self, topic: str, partitions: int) -> None:
        self.scheduler.step(f"create {topic}")
        raise TopicError(Code.TOPIC_NOT_CREATED, where=topic, found="too many copies")


class AllowsNoTopic(Broker):
    def create_topic(self, topic: str, partitions: int) -> None:
        self.scheduler.step(f"create {topic}")
        raise EnvironmentProblem(Code.AUTH_FAILED, where=topic, found="no right to make it")


class AllowsNoLook(Broker):
    def refuse_used(self, topic: str) -> None:
        self.scheduler.step(f"create {topic}")
        raise EnvironmentProblem(Code.AUTH_FAILED, where=topic, found="no right to see it")


class MakesNoDeadLetters(Broker):
    def create_topic(self, topic: str, partitions: int) -> None:
        if topic.endswith("dead-letters"):
            raise TopicError(Code.TOPIC_NOT_CREATED, where=topic, found="too many copies")
        super().create_topic(topic, partitions)


class Without(Instance):
    broker_type: type[Broker] = MakesNoTopic

    def __init__(self, name: str, **parts: Any) -> None:
        super().__init__(name, **parts)
        self.reports: list[BatchReport] = []

    def batch_done(self, report: BatchReport) -> None:
        super().batch_done(report)
        self.reports.append(report)


class NotAllowed(Without):
    broker_type = AllowsNoTopic


class NotShown(Without):
    broker_type = AllowsNoLook


class Dying(NoFaults):
    """So many times, before a topic is made."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    def interruption(self, strand: Strand) -> str:
        if self.left and strand.at.startswith("create "):
            self.left -= 1
            return "death"
        return "nothing"


def jobs_of_plans(world: World) -> list[int]:
    plans = [json.loads(plan) for plan in world.storage.every_row(JOURNAL_PATH, "plan") if plan]
    return [len(plan["jobs"]) for plan in plans]


@pytest.mark.parametrize("deaths", [0, 1, 2])
@pytest.mark.parametrize("instance_type", [Without, NotAllowed, NotShown])
def test_a_job_that_was_added_is_refused_and_batches_go_on(deaths: int, instance_type: type[Without]) -> None:
    world = World(job_of_epochs(6), Dying(deaths), instance_type=instance_type)
    world.start()
    world.settle()
    assert world.durable.starts == 1 + deaths
    last = world.instances[-1]
    assert isinstance(last, Without)
    assert last.process.alive
    refused = [each.refused for report in last.reports for each in report.outcome.reports if each.refused]
    code = Code.TOPIC_NOT_CREATED if instance_type is Without else Code.AUTH_FAILED
    assert code in refused or deaths, "a recovered batch has no listener"
    counts = jobs_of_plans(world)
    assert (1 in counts) == (instance_type is not NotShown), "the journal had the plan before any was made"
    assert counts[-1] == 0
    assert not world.durable.topics.partitions("copy")


def test_a_job_of_the_configuration_ends_the_service_and_has_left_the_journal() -> None:
    setting = job_of_epochs(6)
    setting = replace(setting, jobs=tuple(setting.every_job.values()))
    world = World(setting, Dying(1), instance_type=Without)
    for _ in range(3):
        instance = world.start()
        while world.scheduler.turn():
            pass
        assert not instance.process.alive or instance.process.ended_by is not None
    ends = [instance.process.ended_by for instance in world.instances]
    assert ends[0] is None, "it was killed"
    assert [getattr(end, "code", None) for end in ends[1:]] == [Code.TOPIC_NOT_CREATED] * 2
    assert jobs_of_plans(world)[-1] == 0


class WithoutDeadLetters(Instance):
    broker_type = MakesNoDeadLetters


def with_a_bad_record() -> Setting:
    """A job, and behind it a record whose value is no change."""
    table, copy = table_of(2), job_of("copy", "copy", 2, rate_limit=None)
    upstream = Upstream(table, partitions=1)
    upstream.put((1, 0))
    upstream.barrier(Add(copy.to_json()))
    upstream.topic.append(0, KeyCodec(table.key_columns).encode((2,)), b"?")
    faulty = frozenset({(0, upstream.topic.partitions[0][-1].offset)})
    upstream.barrier()
    return Setting(table, Changelog(upstream, faulty), (), {"copy": copy}, lanes=(1,), compactions=False)


def test_without_a_topic_for_dead_letters_the_service_ends_and_the_journal_parks_nothing() -> None:
    world = World(with_a_bad_record(), NoFaults(), instance_type=WithoutDeadLetters)
    for _ in range(2):
        world.start()
        while world.scheduler.turn():
            pass
    assert [getattr(each.process.ended_by, "code", None) for each in world.instances] == [
        Code.TOPIC_NOT_CREATED
    ] * 2
    plans = [json.loads(plan) for plan in world.storage.every_row(JOURNAL_PATH, "plan") if plan]
    assert any(plan["parked"] for plan in plans), "the journal had it before the topic was asked for"
    assert not plans[-1]["parked"]
    assert not world.durable.topics.partitions("copy.dead-letters")
