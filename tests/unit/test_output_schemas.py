"""Schemas of outputs at a registry over real HTTP: registered once, refused, waited for without anybody waiting."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from schemas.avro.registered import SchemaIds
from schemas.errors import BackfillError, Code, ConfigError, EnvironmentProblem
from schemas.job import JobDefinition
from schemas.settings.config import check
from schemas.settings.registry import RegistryConfig
from schemas.table import declare
from state.values.plan import JobState
from streaming.core.batch_size import BatchSizer
from streaming.protocol.stream_state import StreamState
from streaming.registry.client import Registry
from streaming.registry.outputs import OutputSchemas, Registering
from tests.kit.registry import FakeRegistry

TABLE = declare({"name": "t", "columns": {"id": "bigint", "amount": "int"}, "primary_key": ["id"]})
AWAY = EnvironmentProblem(Code.REGISTRY_UNREACHABLE, found="nobody")


def job(name: str = "copy", **keys: Any) -> JobDefinition:
    declared = {"name": name, "output": f"{name}.out", "format": "upsert", "encoding": "avro-registry"}
    return JobDefinition.declare(declared | keys, TABLE)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.registry.client._PAUSE_MS", 1)


def schemas(fake: FakeRegistry | None) -> OutputSchemas:
    keys = {} if fake is None else {"url": fake.url}
    return OutputSchemas(RegistryConfig.model_validate(keys), TABLE)


def client(fake: FakeRegistry) -> Registry:
    return Registry(RegistryConfig.model_validate({"url": fake.url}))


def problem(call: Any, *arguments: Any) -> BackfillError:
    with pytest.raises(BackfillError) as caught:
        call(*arguments)
    assert "being registered" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(("form", "value"), [("upsert", "Value"), ("debezium", "Envelope")])
def test_both_schemas_are_registered_under_the_topic_and_have_the_same_ids_again(
    registry: FakeRegistry, form: str, value: str
) -> None:
    ids = schemas(registry).register(job(format=form))
    assert registry.subjects == {"copy.out-key": [ids.key], "copy.out-value": [ids.value]}
    found = [json.loads(registry.schemas[number]["schema"]) for number in (ids.key, ids.value)]
    assert [(each["namespace"], each["name"]) for each in found] == [("copy.out", "Key"), ("copy.out", value)]
    assert schemas(registry).register(job(format=form)) == ids
    assert dict(schemas(registry).subject_states(job(format=form))) == dict.fromkeys(
        registry.subjects, "compatible"
    )
    assert schemas(registry).registered(job(format=form)).format.ids == ids


def test_where_one_half_is_incompatible_the_other_is_not_registered_either(registry: FakeRegistry) -> None:
    registry.register("copy.out-value", "string")
    registry.incompatible.add("copy.out-value")
    error = problem(schemas(registry).register, job())
    assert (type(error), error.code) == (ConfigError, Code.OUTPUT_SCHEMA_INCOMPATIBLE)
    assert error.where == "subject copy.out-value"
    assert "copy.out-key" not in registry.subjects
    assert list(schemas(registry).subject_states(job())) == [
        ("copy.out-key", "new"),
        ("copy.out-value", None),
    ]
    raced = problem(client(registry).register, "copy.out-value", '"long"')
    assert raced.code is Code.OUTPUT_SCHEMA_INCOMPATIBLE


@pytest.mark.parametrize(("status", "code"), [(503, Code.REGISTRY_UNREACHABLE), (403, Code.REGISTRY_REFUSED)])
def test_trouble_while_it_is_written_to_is_reported_as_while_it_is_read(
    registry: FakeRegistry, status: int, code: Code
) -> None:
    registry.status = status
    asking = client(registry)
    for call in (asking.register, asking.is_compatible, asking.id_of):
        assert problem(call, "copy.out-key", '"long"').code is code


@pytest.mark.parametrize("answer", ["[]", "{}", '{"id": -1}', '{"id": 4294967296}', '{"id": "7"}', "<html>"])
def test_an_answer_without_a_usable_id_is_refused(registry: FakeRegistry, answer: str) -> None:
    registry.body = answer.encode()
    assert problem(client(registry).register, "copy.out-key", '"long"').code is Code.REGISTRY_REFUSED


def test_a_job_that_the_registry_does_not_know_can_not_be_read(registry: FakeRegistry) -> None:
    assert problem(schemas(registry).registered, job()).code is Code.JOB_UNKNOWN
    plain = JobDefinition.declare({"name": "copy", "output": "copy.out"}, TABLE)
    known = job().with_ids(SchemaIds(1, 2))
    assert (schemas(None).registered(plain), schemas(None).registered(known)) == (plain, known)


def test_without_a_registry_in_the_configuration_it_is_refused_as_a_job_and_in_the_file() -> None:
    error = problem(schemas(None).register, job())
    assert (error.code, "registry.url" in error.next_step) == (Code.JOB_INVALID, True)
    declared = json.loads(job().to_json())
    config = {"upstream": "up", "state": "s", "table": TABLE.to_dict(), "jobs": [declared]}
    with pytest.raises(ConfigError, match=r"no 'registry\.url', where the schemas of job copy"):
        check(config, path=Path("c.yaml"))
    check({**config, "registry": {"url": "http://127.0.0.1:1"}}, path=Path("c.yaml"))


# What a state and its service make of them -------------------------------------------------------------------


def test_the_ids_are_kept_with_the_job_and_are_no_part_of_its_definition() -> None:
    state = JobState(job().with_ids(SchemaIds(7, 2**32 - 1)), 5, opened=True)
    again = JobState.from_dict(json.loads(json.dumps(state.to_dict())), TABLE)
    assert again == state != JobState(job(), 5, opened=True)
    assert again.definition.format.ids == SchemaIds(7, 2**32 - 1)
    assert again.definition.to_json() == job().to_json()
    assert again.definition.differences(job()) == []
    assert "schema_ids" not in JobState(job(), 5).to_dict()


def test_a_batch_waits_once_for_an_answer_and_then_asks_whether_it_has_come() -> None:
    go_on, asked = threading.Event(), []

    def slow(definition: JobDefinition) -> SchemaIds:
        asked.append(definition.name)
        assert go_on.wait(30)
        return SchemaIds(1, 2)

    registering = Registering(slow, wait_s=0.05)
    for _ in range(3):
        assert problem(registering.ids_of, job()).code is Code.REGISTRY_UNREACHABLE
    assert asked == ["copy"]
    go_on.set()
    [attempt] = registering._attempts.values()
    assert attempt.done.wait(30)
    assert registering.ids_of(job()) == SchemaIds(1, 2)
    assert asked == ["copy"]


def test_a_registry_that_is_away_is_asked_again_after_a_pause_or_for_another_job() -> None:
    asked: list[str] = []
    answers: list[Exception] = [AWAY, AWAY, AWAY, ConfigError(Code.OUTPUT_SCHEMA_INCOMPATIBLE, found="other")]

    def register(definition: JobDefinition) -> SchemaIds:
        asked.append(definition.name)
        raise answers[len(asked) - 1]

    calm = Registering(register, wait_s=30, pause_s=600)
    for _ in range(3):
        assert problem(calm.ids_of, job()) is AWAY
    assert len(asked) == 1
    calm.forget(job())
    assert problem(calm.ids_of, job()) is AWAY
    assert len(asked) == 2
    eager = Registering(register, wait_s=30, pause_s=0)
    assert problem(eager.ids_of, job()) is AWAY
    problem(eager.ids_of, job())  # asks again, and does not wait
    [attempt] = eager._attempts.values()
    assert attempt.done.wait(30)
    assert problem(eager.ids_of, job()).code is Code.OUTPUT_SCHEMA_INCOMPATIBLE
    assert len(asked) == 4


def test_only_a_job_of_the_file_is_delayed_and_its_later_faults_are_reported() -> None:
    state = StreamState(TABLE, [0], BatchSizer(1 << 30), 1, lambda plan, changes: None)
    configured, added = JobState(job(), 5), JobState(job("added"), 5)
    state.configure([configured.definition])
    state.configured, state.jobs = (), (configured, added)
    assert not state.delay(added, AWAY)
    state.refuse(added, AWAY)
    assert [report.refused for report in state.take_refused()] == [AWAY.code]
    assert list(state.jobs) == [configured]
    with pytest.raises(EnvironmentProblem):
        state.refuse(configured, AWAY)
    assert state.delay(configured, AWAY)
    assert list(state.jobs) == []
    assert list(state.configured) == [configured.definition]
    state.refuse(configured, AWAY)
    assert [report.refused for report in state.take_refused()] == [AWAY.code]
