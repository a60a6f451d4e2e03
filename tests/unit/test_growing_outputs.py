"""Jobs that get the columns of their table: declarations, states, barriers, and schemas at a registry."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from schemas.avro.codec import barrier_header
from schemas.errors import Code, ConfigError
from schemas.job import JobDefinition
from schemas.json.barriers import decode_beside, encode_beside
from schemas.kinds.table_changes import AddColumn, altered
from schemas.records import Barrier, BarrierKind
from schemas.settings.registry import RegistryConfig
from schemas.table import TableSchema, declare
from state.values.plan import JobState
from streaming.reading.barriers import read_separate_barrier
from streaming.registry.outputs import OutputSchemas
from tests.kit.registry import FakeRegistry

TABLE = declare({"name": "t", "columns": {"id": "bigint", "n": "int"}, "primary_key": ["id"]})
WIDER = altered(TABLE, [AddColumn("c", '{"type": "decimal(4,1)", "fill": "2.5", "field": "c-d"}')])
WIDEST = altered(WIDER, [AddColumn("d", '"string"')])
C, D = ("c", '{"type": "decimal(4,1)", "fill": "2.5"}'), ("d", '{"type": "string", "fill": null}')


def declared(table: TableSchema = TABLE, **keys: Any) -> JobDefinition:
    given = {"name": "j", "output": "out", "format": "upsert", "new_columns": "send", **keys}
    return JobDefinition.declare({key: value for key, value in given.items() if value is not None}, table)


def created(table: TableSchema = TABLE, **keys: Any) -> JobState:
    return JobState(declared(table, **keys), 1, opened=True)


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"new_columns": True}, "new_columns True is not ignore or send"),
        ({"format": None}, "with format change"),
        ({"format": "change", "barrier_topic": "b"}, "with format change"),
        ({"columns": ["id"]}, "send with columns"),
        ({"columns": ["id", "n"]}, "send with columns"),
        ({"format": "append", "read": "topic", "barrier_topic": "out"}, "barriers in the data"),
    ],
    ids=str,
)
def test_what_can_not_get_columns_is_refused(keys: dict[str, Any], found: str) -> None:
    table = declare({"name": "t", "columns": {"id": "bigint"}}, has_key=False) if "read" in keys else TABLE
    with pytest.raises(ConfigError, match=found) as caught:
        declared(table, **keys)
    assert caught.value.code is Code.JOB_INVALID


def test_by_default_a_job_keeps_its_columns_and_is_written_as_before() -> None:
    job, ignoring = declared(new_columns=None), declared(new_columns="ignore")
    assert job == ignoring
    assert "new_columns" not in job.to_json()
    assert JobState(job, 1).grown(WIDER).definition == job


def test_a_definition_without_columns_has_all_of_the_table_that_reads_it() -> None:
    job = declared()
    assert json.loads(job.to_json())["columns"] is None
    later = JobDefinition.from_json(job.to_json(), WIDER)
    assert [column.name for column in later.columns] == ["id", "n", "c"]
    assert not job.differences(later)
    assert declared(new_columns=None).differences(job) == [
        'columns was ["id", "n"], is null',
        'new_columns was null, is "send"',
    ]


def test_columns_come_one_after_another_and_are_announced_for_two_batches() -> None:
    one = created()
    assert one.grown(TABLE) is one
    two = one.grown(WIDER)
    assert two.definition.new_columns_of(WIDER) == (C,)
    assert [each.tells for each in (two, two.behind_batch(), two.behind_batch().behind_batch())] == [2, 1, 0]
    three = two.behind_batch().grown(WIDEST)
    assert three.definition.new_columns_of(WIDEST) == (C, D)
    assert (three.tells, three.definition.first_width) == (2, 2)
    for state, table in ((one, TABLE), (two, WIDER), (three, WIDEST)):
        raw = json.loads(json.dumps(state.to_dict()))
        assert JobState.from_dict(raw, table) == state
        assert JobState.from_dict(raw, WIDEST) == state
    for table in (WIDER, altered(TABLE, [AddColumn("e", '"int"'), AddColumn("d", '"string"')])):
        with pytest.raises(ConfigError, match="a table without"):
            JobState.from_dict(three.to_dict(), table)


def test_a_state_that_is_made_anew_takes_from_the_output_what_it_has_got() -> None:
    assert created(WIDEST).having_got({"d", "c", "e"}).definition.first_width == 2
    assert created(WIDEST).having_got({"d"}).definition.first_width == 3
    grown = created().grown(WIDER)
    assert grown.having_got(set()) == grown
    assert created(WIDEST).having_got(set()).definition.first_width == 0


def test_one_that_has_ended_or_was_refused_gets_none() -> None:
    for left in (
        replace(created(), ended=True),
        replace(created(), columns_refused=Code.OUTPUT_SCHEMA_REFUSED),
    ):
        assert left.grown(WIDER) is left
        assert JobState.from_dict(json.loads(json.dumps(left.to_dict())), WIDER) == left


def test_a_barrier_tells_columns_to_readers_and_others_may_mean_something_else() -> None:
    announced = created().grown(WIDEST).definition.new_columns_of(WIDEST)
    barrier = Barrier(9, 3, BarrierKind.CHECKPOINT, 1, 5, full=True, columns=announced)
    value = encode_beside(barrier, 7)
    assert json.loads(value)["columns"] == {name: json.loads(text) for name, text in announced}
    read = read_separate_barrier(barrier_header(barrier), b"0", value, partition=0).barrier
    assert [(name, json.loads(text)) for name, text in read.columns] == [
        (name, json.loads(text)) for name, text in announced
    ]
    assert decode_beside(barrier_header(barrier), b"0", value, partition=0).barrier == barrier
    other = value.replace(b'"columns":{', b'"columns":[{').replace(b"}}}", b"}}]}")
    assert decode_beside(barrier_header(barrier), b"0", other, partition=0).barrier == replace(
        barrier, columns=()
    )


@pytest.mark.parametrize("form", ["upsert", "debezium"])
def test_in_connects_frame_the_field_is_optional_and_keys_stay(form: str) -> None:
    job = created(format=form, encoding="json-schema")
    first, later = job.definition.schemas(TABLE), job.grown(WIDER).definition.schemas(WIDER)
    assert later["key"] == first["key"]
    row = later["value"]["fields"] if form == "upsert" else later["value"]["fields"][1]["fields"]
    assert [each["field"] for each in row] == ["id", "n", "c"]
    assert row[-1]["optional"]
    assert "default" not in row[-1]  # a sink would put it in the place of a null


def schemas(fake: FakeRegistry, table: TableSchema) -> OutputSchemas:
    return OutputSchemas(RegistryConfig.model_validate({"url": fake.url}), table)


@pytest.mark.parametrize("form", ["upsert", "debezium"])
def test_a_further_schema_is_registered_and_that_of_keys_stays(registry: FakeRegistry, form: str) -> None:
    keys: dict[str, Any] = {"format": form, "encoding": "avro-registry"}
    first = schemas(registry, TABLE).register(declared(**keys))
    one = JobState(declared(**keys).with_ids(first), 1)
    two = schemas(registry, WIDER).grown(one)
    ids = two.definition.format.ids
    assert ids is not None
    assert (ids.key, ids.earlier) == (first.key, ((2, first.value),))
    assert ids.value == registry.subjects["out-value"][-1] != first.value
    fields = json.loads(registry.schemas[ids.value]["schema"])["fields"]
    row = fields if form == "upsert" else fields[0]["type"][1]["fields"]
    assert [each["name"] for each in row] == ["id", "n", "c"]
    assert (row[-1]["type"][0], row[-1]["default"]) == ("null", None)
    three = schemas(registry, WIDEST).grown(two)
    assert JobState.from_dict(json.loads(json.dumps(three.to_dict())), WIDEST) == three
    known = three.definition.format.ids
    assert known is not None
    assert known.earlier == ((2, first.value), (3, ids.value))
    # Readers that have no state find the same.
    wide = declared(WIDEST, **keys)
    assert schemas(registry, WIDEST).registered(wide).format.ids == known
    assert schemas(registry, WIDEST).register(wide) == known  # of a state that is made anew


def test_a_registry_that_refuses_leaves_the_job_with_its_columns_for_good(registry: FakeRegistry) -> None:
    keys: dict[str, Any] = {"encoding": "avro-registry"}
    one = JobState(declared(**keys).with_ids(schemas(registry, TABLE).register(declared(**keys))), 1)
    registry.incompatible.add("out-value")
    two = schemas(registry, WIDER).grown(one)
    assert two == replace(one, columns_refused=Code.OUTPUT_SCHEMA_REFUSED)
    registry.incompatible.clear()
    assert schemas(registry, WIDEST).grown(two) is two


def test_a_job_whose_first_schemas_are_not_registered_yet_asks_for_none(registry: FakeRegistry) -> None:
    one = created(encoding="avro-registry")
    assert schemas(registry, WIDER).grown(one) == one.grown(WIDER)
    assert not registry.subjects
