"""Changes that barriers of one plan ask for: report, jobs and the state's table agree, before and after a crash."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import Code, ConfigError
from schemas.job import JobDefinition
from schemas.kinds.table_changes import (
    AddColumn,
    IgnoreField,
    RenameField,
    RetireColumn,
    TableChange,
    WidenColumn,
    changes_text,
)
from schemas.records import Add, Alter, Barrier, BarrierKind, Drop, Mutation
from schemas.settings.config import check
from schemas.settings.registry import RegistryConfig
from schemas.table import TableSchema, declare
from state.journal import Entry, Journal
from state.storage import Storage
from state.values.aligned import AlignedBarrier, ReplicaVersion
from state.values.bound_table import BoundTable
from state.values.job_state import JobState
from state.values.plan import BatchPlan, JobPlan
from streaming.control.known_table import may_alter, version_in, version_of
from streaming.core.jobs import JobsOutcome, jobs_after
from streaming.registry.outputs import OutputSchemas
from tests.kit.registry import FakeRegistry

TABLE = declare({"name": "t", "columns": {"id": "bigint", "n": "int"}, "primary_key": ["id"]})
CONFIG = check(
    {
        "upstream": {"topic": "up", "format": "upsert", "on_new_column": "wait"},
        "state": "s",
        "table": TABLE.to_dict(),
    },
    path=Path("config.yaml"),
)
FIRST = BoundTable.first(TABLE, ("noise",))
C, LONG = AddColumn("c", '{"type": "int", "fill": 5}'), WidenColumn("n", "bigint")
NOISE = AddColumn("noise", '"int"')


BARRIER = AlignedBarrier(Barrier(1 << 16, 0, BarrierKind.CHECKPOINT, 1, 0), (1,), in_data=False)


def job(name: str, table: TableSchema = TABLE, **declared: Any) -> JobDefinition:
    return JobDefinition.declare({"name": name, "output": name, "output_partitions": 4, **declared}, table)


def alter(*changes: TableChange) -> Alter:
    return Alter(changes_text(changes))


def after(*mutations: Mutation, jobs: tuple[JobDefinition, ...] = ()) -> tuple[JobsOutcome, TableSchema]:
    """The outcome of a plan with these mutations, and the state's table: the same however often it is looked at."""
    barriers = (
        Barrier(number << 16, 0, BarrierKind.CHECKPOINT, 1, 0, mutation)
        for number, mutation in enumerate(mutations, 1)
    )
    aligned = tuple(AlignedBarrier(barrier, (1,), in_data=False) for barrier in barriers)
    plans = tuple(JobPlan(JobState(each, 0, opened=True)) for each in jobs)
    plan = BatchPlan(None, aligned, (0,), ReplicaVersion(0, 0, 0), 1, plans)

    def found(known: BoundTable) -> tuple[BoundTable, JobsOutcome]:
        entry = Entry("me", 1, json.dumps(known.to_dict()), plan)
        version = version_of(CONFIG, entry, state="s")
        outcome = jobs_after(plan, known.table, may_alter(CONFIG, known))
        # The end of a run asks for the outcome's changes once more.
        assert version_of(CONFIG, entry, outcome.changes, state="s") == version
        return version, outcome

    version, outcome = found(FIRST)
    again, recovered = found(version)
    assert again == version
    assert recovered == outcome
    return outcome, version.table


def refusals(outcome: JobsOutcome) -> list[Code | None]:
    return [report.refused for report in outcome.reports]


@pytest.mark.parametrize(
    "changes",
    [
        [C, WidenColumn("c", "bigint")],
        [C, RenameField("c", "d")],
        [C, RenameField("c", "d"), RenameField("d", "e"), RetireColumn("c")],
        [RenameField("n", "m"), RenameField("m", "n")],
        [RetireColumn("n"), AddColumn("n", '"int"')],
        [C, IgnoreField("x"), LONG],
    ],
    ids=str,
)
def test_changes_of_one_batch_are_made_one_after_another(changes: list[TableChange]) -> None:
    outcome, table = after(*map(alter, changes))
    assert refusals(outcome) == [None] * len(changes)
    assert table.columns == FIRST.altered(changes, state="s").table.columns
    assert after(alter(*changes))[1].columns == table.columns, "in one request"


def test_what_only_the_state_forbids_is_refused_with_its_code() -> None:
    wide = replace(TABLE, columns=(*TABLE.columns, replace(TABLE.by_name["n"], name="noise")))
    outcome, table = after(alter(NOISE), alter(C), Add(job("j", wide).to_json()))
    assert refusals(outcome) == [Code.COLUMN_WAS_IGNORED, None, Code.JOB_INVALID]
    assert table.column_names == ("id", "n", "c")
    assert outcome.changes == (C,)
    assert outcome.jobs == ()


def test_changes_are_judged_by_the_jobs_at_their_barrier() -> None:
    change = job("change")
    dropped, table = after(Drop("change"), alter(LONG), jobs=(change,))
    assert refusals(dropped) == [None, None]
    assert str(table.by_name["n"].type) == "bigint"
    added, table = after(Add(change.to_json()), alter(LONG))
    assert refusals(added) == [None, Code.TABLE_INVALID]
    assert str(table.by_name["n"].type) == "int"


def test_a_command_s_changes_are_judged_by_the_registry_of_outputs(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    """The service would leave the table as it was, behind a barrier that says that it was altered."""
    config = CONFIG.model_copy(update={"registry": RegistryConfig.model_validate({"url": registry.url})})
    framed = job("framed", format="upsert", encoding="avro-registry")
    framed = framed.with_ids(OutputSchemas(config.registry, TABLE).register(framed))
    plan = BatchPlan(None, (BARRIER,), (0,), ReplicaVersion(0, 0, 0), 1, (JobPlan(JobState(framed, 0)),))
    journal = Journal(storage := Storage(str(tmp_path)), TABLE)
    journal.take_over("me", json.dumps(FIRST.to_dict()))
    journal.write_plan(plan)
    assert str(version_in(config, storage, [LONG]).table.by_name["n"].type) == "bigint"
    registry.incompatible.add("framed-value")
    with pytest.raises(ConfigError, match="OUTPUT_SCHEMA_INCOMPATIBLE at subject framed-value"):
        version_in(config, storage, [LONG])
    assert version_in(config, storage, [C]).table.column_names == ("id", "n", "c")
