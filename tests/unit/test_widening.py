"""Wider types: those that outputs can't have, with the job and the reason; and the command for a value without room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.avro.registered import SchemaIds, WriterSchema
from schemas.errors import Code
from schemas.formats.upsert import UpsertFormat
from schemas.job import JobDefinition
from schemas.kinds.table_changes import WidenColumn, altered, changes_text, widening_refusal
from schemas.records import Alter, Barrier, BarrierKind
from schemas.settings.config import check
from schemas.table import declare
from state.journal import Entry
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.bound_table import BoundTable
from state.values.job_state import JobState
from state.values.last_end import FaultReport
from state.values.plan import BatchPlan, JobPlan
from streaming.control.known_table import version_of
from streaming.control.suspended import ways_on
from streaming.core.jobs import jobs_after
from streaming.lane.faults import find_faults
from tests.kit.decoding import changes_of

TABLE = declare(
    {
        "name": "t",
        "columns": {"id": "bigint", "n": "int", "d": "decimal(10,2)", "f": "float", "x": "string"},
        "primary_key": ["id"],
    }
)
AVRO = {"format": "upsert", "encoding": "avro-registry"}
TEXT = {"format": "upsert"}
HASHED = {**TEXT, "hash_key_file": "/key"}
MORE, FINER = WidenColumn("d", "decimal(12,2)"), WidenColumn("d", "decimal(12,4)")
LONG, DOUBLE = WidenColumn("n", "bigint"), WidenColumn("f", "double")


def refusal(change: WidenColumn, declared: dict[str, Any]) -> str | None:
    job = JobDefinition.declare({"name": "j", "output": "o", "output_partitions": 4, **declared}, TABLE)
    if job.format.framed:
        job = job.with_ids(SchemaIds(1, 2))
    return widening_refusal(TABLE, altered(TABLE, [change]), [job])


@pytest.mark.parametrize(
    ("change", "declared", "reason"),
    [
        (LONG, {}, "n widened, which job j writes in format change, whose schema is for good"),
        (LONG, {**TEXT, "key": ["id", "n"]}, "n widened, which job j has in the keys of its output"),
        (DOUBLE, TEXT, "f widened, which job j has sent: as a double, the text of a float is another number"),
        (DOUBLE, AVRO, "f widened, which job j has sent"),
        (FINER, AVRO, "d widened, which job j writes in Avro, where it keeps its scale"),
        (FINER, {**HASHED, "columns": ["id", {"y": "hash(d)"}]}, "d widened, which job j writes as a hash"),
    ],
)
def test_an_output_that_would_have_other_values_refuses_a_wider_type(
    change: WidenColumn, declared: dict[str, Any], reason: str
) -> None:
    assert str(refusal(change, declared)).startswith(reason)


@pytest.mark.parametrize(
    ("change", "declared"),
    [
        (LONG, TEXT),
        (LONG, AVRO),
        (LONG, {"format": "debezium", "encoding": "json-schema"}),
        (LONG, {"columns": ["id", "x"]}),
        (LONG, {"columns": ["id"], "filter": "n > 5"}),
        (MORE, AVRO),
        (MORE, {**HASHED, "columns": ["id", {"y": "hash(d)"}]}),
        (FINER, TEXT),
        (FINER, {**AVRO, "columns": ["id", "n"]}),
        (DOUBLE, {**TEXT, "columns": ["id", "n"]}),
    ],
)
def test_all_others_go_on_with_it(change: WidenColumn, declared: dict[str, Any]) -> None:
    assert refusal(change, declared) is None


@pytest.mark.parametrize(
    ("row", "command"),
    [
        ({"n": 2**31}, "backfill alter --widen 'n: bigint'"),
        ({"n": -(2**31) - 1}, "backfill alter --widen 'n: bigint'"),
        ({"d": "123456789.00"}, "backfill alter --widen 'd: TYPE'"),
        ({"d": "0.001"}, "backfill alter --widen 'd: TYPE'"),
        ({"f": 1e39}, None),
        ({"n": "x"}, None),
    ],
)
def test_a_value_without_room_has_the_command_that_makes_room(
    row: dict[str, Any], command: str | None
) -> None:
    value, form = json.dumps({"id": 1, **row}).encode(), UpsertFormat()
    [fault] = find_faults(changes_of(form, TABLE, [(b'{"id":1}', value)]), TABLE, format_=form)
    ways = ways_on(FaultReport(fault.code, "up-0@0", fault.found, fault.expected, "--skip-record 0@0"), "t")
    assert [way for way in ways if "alter" in way] == ([] if command is None else [command])
    assert ways[-2:] == ("backfill resume --table t --skip-record 0@0", "backfill resume --table t")


def test_so_has_a_schema_with_a_wider_type() -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "n", "type": ["null", "long"]}]
    schema = WriterSchema(1, json.dumps({"type": "record", "name": "Row", "fields": fields}))
    found = UpsertFormat(encoding="avro-registry", key="json").incompatibility_of_schema(
        "value", schema, TABLE
    )
    ways = ways_on(FaultReport(Code.SCHEMA_INCOMPATIBLE, "up-0@0", f"a schema: {found}", "", ""), "t")
    assert ways == ("backfill alter --widen 'n: bigint'", "backfill resume --table t")


@pytest.mark.parametrize("declared", [TEXT, {}], ids=["upsert", "change"])
def test_a_barrier_s_change_that_was_refused_is_refused_at_a_restart_as_well(
    declared: dict[str, Any],
) -> None:
    config = check(
        {
            "upstream": {"topic": "up", "format": "upsert", "on_new_column": "wait"},
            "state": "s",
            "table": TABLE.to_dict(),
        },
        path=Path("config.yaml"),
    )
    barrier = Barrier(1 << 16, 0, BarrierKind.CHECKPOINT, 1, 0, Alter(changes_text([LONG])))
    job = JobDefinition.declare({"name": "j", "output": "o", "output_partitions": 4, **declared}, TABLE)
    aligned = AlignedBarrier(barrier, (1,), in_data=False)
    plan = BatchPlan(None, (aligned,), (0,), ReplicaVersion(0, 0, 0), 1, (JobPlan(JobState(job, 0)),))
    first = BoundTable.first(TABLE, ())
    version = version_of(config, Entry("me", 1, json.dumps(first.to_dict()), plan), state="s")
    assert str(version.table.by_name["n"].type) == ("bigint" if declared else "int")
    [report] = jobs_after(plan, TABLE).reports
    assert report.refused is (None if declared else Code.TABLE_INVALID)
    assert version.table.hashed_after == (1 << 16 if declared else 0)
