"""Columns that records had while they were ignored: `accept_missing` adds them, and earlier records stay unread."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from schemas.errors import BackfillError, Code
from schemas.job import JobDefinition
from schemas.kinds.columns import FormerNames
from schemas.kinds.table_changes import (
    AddColumn,
    RenameField,
    RetireColumn,
    TableChange,
    WidenColumn,
    changes_from_json,
    changes_text,
    in_words,
)
from schemas.records import Alter
from schemas.table import TableSchema, declare
from state.values.bound_table import BoundTable
from streaming.core.jobs import apply_mutation, created

COLUMNS = {"id": "int", "n": "int"}
TABLE = declare({"name": "t", "columns": COLUMNS, "primary_key": ["id"]})
BY_NAME = BoundTable.first(TABLE, ("c", "m"))
ANY = BoundTable.first(TABLE, None)
ADDED = AddColumn("c", '{"type": "int", "fill": 7}', accepts_missing=True)
RENAMED = RenameField("n", "m", accepts_missing=True)
UNREAD = ("\x7fc",)


def names(table: TableSchema) -> list[tuple[str, ...]]:
    return [column.names_in_records for column in table.columns]


@pytest.mark.parametrize("known", [BY_NAME, ANY], ids=["by name", "any"])
@pytest.mark.parametrize("change", [ADDED, RENAMED], ids=["add", "rename"])
def test_what_was_ignored_is_refused_until_missing_values_are_accepted(
    known: BoundTable, change: AddColumn | RenameField
) -> None:
    with pytest.raises(BackfillError) as refused:
        known.altered([replace(change, accepts_missing=False)], state="s", epoch=5)
    assert refused.value.code is Code.COLUMN_WAS_IGNORED
    version = known.altered([change], state="s", epoch=5)
    assert version.altered([change], state="s", epoch=9) == version, "the same request once more"
    for each in (version, BoundTable.from_binding(json.dumps(version.to_dict()))):
        table = each.table
        assert table.unread_until == {5}
        assert table.hashed_after == 5
        assert table.as_read(6) == table
        assert each.declared(TABLE, None, state="s").table.unread_until == {5}, "a file that is behind"


def test_records_up_to_the_change_are_read_by_the_names_of_then() -> None:
    table = ANY.altered([RENAMED, ADDED], state="s", epoch=5).table
    assert names(table) == [("id",), ("m", "n"), ("c",)]
    assert names(table.as_read(5)) == [("id",), ("n",), UNREAD]
    later = BoundTable.first(TABLE, None).altered([ADDED], state="s", epoch=3)
    again = later.altered([RenameField("c", "d", accepts_missing=True)], state="s", epoch=8).table
    assert [names(again.as_read(epoch))[2] for epoch in (3, 4, 8, 9)] == [UNREAD, ("c",), ("c",), ("d", "c")]


def test_a_column_that_no_record_can_have_had_is_complete() -> None:
    version = BoundTable.first(TABLE, ("m",)).altered([ADDED], state="s", epoch=5)
    assert version.table.unread_until == frozenset()
    assert version.table.by_name["c"].announced == {"type": "int", "fill": 7}


def test_barriers_say_that_a_column_is_incomplete() -> None:
    table = BY_NAME.altered([ADDED, RENAMED], state="s", epoch=5).table
    assert table.by_name["c"].announced == {"type": "int", "fill": 7, "incomplete": True}
    assert not table.by_name["n"].is_incomplete, "by another name only"
    job = JobDefinition.declare({"name": "j", "output": "o"}, table)
    assert job.columns_of(table)[2].is_incomplete


@pytest.mark.parametrize(
    "change",
    [WidenColumn("n", "bigint"), RetireColumn("n"), AddColumn("d", '"int"'), RenameField("n", "x")],
    ids=str,
)
def test_the_past_of_a_column_outlives_every_other_change(change: TableChange) -> None:
    first = BoundTable.first(TABLE, ("c", "m"))
    version = first.altered([ADDED, RENAMED, WidenColumn("n", "bigint")], state="s", epoch=5)
    after = version.altered([change], state="s", epoch=9).table
    assert after.by_name["c"].read_as == (FormerNames(5, ()),)
    assert after.by_name["n"].read_as == (FormerNames(5, ("n",)),)
    assert [former.epoch for former in after.by_name["n"].was] == [5]


def test_a_request_says_it_in_json_and_in_words() -> None:
    changes = (ADDED, RENAMED, replace(ADDED, name="d", accepts_missing=False))
    assert changes_from_json(json.loads(changes_text(changes))) == changes
    assert in_words(changes) == "add 'c' (accept missing), rename 'n' to 'm' (accept missing), add 'd'"
    for wrong in (
        {"retire": "c", "accept_missing": True},
        {"widen": {"n": "bigint"}, "accept_missing": True},
        {"add": {"c": "int"}, "accept_missing": 1},
        {"accept_missing": True},
    ):
        with pytest.raises(ValueError, match="a change is one of"):
            changes_from_json([wrong])


def test_a_job_that_reads_the_topic_would_have_what_is_missing() -> None:
    table = declare(
        {"name": "t", "columns": COLUMNS, "primary_key": ["id"], "distribution_key": ["id"], "vnode_count": 2}
    )
    job = JobDefinition.declare({"name": "j", "output": "o", "read": "topic"}, table)
    assert job.scan.reads_upstream
    alter = Alter(changes_text([ADDED]))
    outcome = apply_mutation(alter, 2, (created(job, 1),), lanes=1, start=2, table=table, partitions=None)
    [report] = outcome.reports
    assert report.refused is Code.TABLE_INVALID
    assert "job j would read again from the topic" in report.text
