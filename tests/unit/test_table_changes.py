"""Changes of a table by a request: which there are, which are refused, and that each may be made twice."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from schemas.errors import BackfillError
from schemas.kinds.columns import new_field_in, new_field_text
from schemas.kinds.table_changes import (
    AddColumn,
    IgnoreField,
    RenameField,
    RetireColumn,
    TableChange,
    WidenColumn,
    altered,
    changes_from_json,
    changes_to_json,
)
from schemas.table import declare
from schemas.types import ColumnType
from state.values.bound_table import BoundTable
from streaming.source.barriers.injecting.control_requests import (
    AlterAndTryAgain,
    MalformedRequestError,
    decode_suspended,
    encode_suspended,
)

COLUMNS: dict[str, Any] = {"id": "bigint", "name": "string", "at": {"type": "date", "field": "on-day"}}
TABLE = declare({"name": "t", "columns": COLUMNS, "primary_key": ["id"]})
KNOWN = BoundTable.first(TABLE, ("noise",))


def add(name: str, declared: object) -> AddColumn:
    return AddColumn(name, json.dumps(declared))


def columns_after(*changes: TableChange) -> dict[str, Any]:
    version = KNOWN.altered(changes, state="s")
    assert version.altered(changes, state="s") == version, "the same request once more"
    assert BoundTable.from_binding(json.dumps(version.to_dict())) == version
    return dict(version.table.to_dict()["columns"])


@pytest.mark.parametrize(
    "declared",
    [
        "int",
        {"type": "int", "fill": 5},
        {"type": "decimal(10,2)", "fill": "1.50"},
        {"type": "binary", "fill": "AP8="},
        {"type": "date", "fill": "2026-01-31"},
        {"type": "timestamp", "fill": "2026-01-31T12:00:00.000001Z"},
        {"type": "string", "field": ["a b", "c"], "fill": ""},
    ],
    ids=str,
)
def test_a_column_is_added_behind_the_others(declared: object) -> None:
    assert columns_after(add("c", declared)) == {**COLUMNS, "c": declared}
    assert list(columns_after(add("c", declared), add("a", "int"))) == [*COLUMNS, "c", "a"]


def test_a_column_is_renamed_in_records_and_keeps_its_own_name() -> None:
    renamed = columns_after(RenameField("name", "title"))
    assert renamed["name"] == {"type": "string", "field": ["title", "name"]}
    # By the name that it has in records, too.
    assert columns_after(RenameField("on-day", "day"))["at"]["field"] == ["day", "on-day"]
    twice = columns_after(RenameField("name", "title"), RenameField("title", "heading"))
    assert twice["name"]["field"] == ["heading", "title", "name"]
    # A record that has another column under the name of between has this one under its first name.
    back = columns_after(RenameField("name", "title"), RenameField("title", "name"))
    assert back["name"]["field"] == ["name", "title"]


@pytest.mark.parametrize(
    ("kind", "wider"),
    [
        ("int", "bigint"),
        ("float", "double"),
        ("decimal(10,2)", "decimal(11,2)"),
        ("decimal(10,2)", "decimal(12,4)"),
        ("decimal(10,0)", "decimal(38,28)"),
    ],
)
def test_a_column_gets_a_wider_type_with_which_older_files_go_on(kind: str, wider: str) -> None:
    narrow = declare({"name": "t", "columns": {"id": "int", "c": kind}, "primary_key": ["id"]})
    first, [change] = BoundTable.first(narrow, ()), [WidenColumn("c", wider)]
    version = first.altered([change], state="s", epoch=7)
    assert version.altered([change], state="s", epoch=9) == version
    assert version.altered([WidenColumn("c", kind)], state="s") == version, "it is wide enough"
    for known in (version, BoundTable.from_binding(json.dumps(version.to_dict()))):
        assert str(known.table.by_name["c"].type) == wider
        assert known.table.hashed_after == 7
        assert str(known.table.by_name["c"].at(7).type) == kind
        assert known.table.by_name["c"].at(8) == known.table.by_name["c"]
        # A file that is behind, and one that is not.
        for table in (narrow, declare(known.table.to_dict())):
            assert (
                known.declared(table, (), state="s")
                .table.by_name["c"]
                .at(7)
                .type.widens_to(known.table.by_name["c"].type)
            )
    with pytest.raises(BackfillError, match="SCHEMA_CHANGED"):
        first.declared(version.table, (), state="s")
    with pytest.raises(BackfillError, match="SCHEMA_CHANGED"):
        first.altered([change], state="s", is_read=False)


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        ("int", "double"),
        ("int", "decimal(20,0)"),
        ("bigint", "int"),
        ("double", "float"),
        ("decimal(10,2)", "decimal(11,4)"),
        ("decimal(10,2)", "decimal(12,1)"),
        ("decimal(10,2)", "bigint"),
        ("date", "timestamp"),
        ("string", "binary"),
    ],
)
def test_no_type_that_lacks_values_is_wider(kind: str, other: str) -> None:
    table = declare({"name": "t", "columns": {"id": "int", "c": kind}, "primary_key": ["id"]})
    is_narrower = ColumnType.parse(other).widens_to(ColumnType.parse(kind))
    if is_narrower:
        assert altered(table, [WidenColumn("c", other)]) == table
        return
    with pytest.raises(BackfillError, match=rf"column c as {re.escape(other)}, which lacks values"):
        altered(table, [WidenColumn("c", other)])


@pytest.mark.parametrize(
    "later",
    [
        [WidenColumn("c", "bigint")],
        [RenameField("c", "d")],
        [RetireColumn("c")],
        [RenameField("c", "d"), RetireColumn("d"), WidenColumn("c", "bigint")],
    ],
    ids=str,
)
def test_changes_of_a_column_may_be_made_again_with_what_has_added_it(later: list[TableChange]) -> None:
    changes = [add("c", {"type": "int", "fill": 5}), *later]
    version = KNOWN.altered(changes, state="s", epoch=3)
    assert version.altered(changes, state="s", epoch=9) == version
    for other in ({"type": "int", "fill": 6}, {"type": "string"}, {"type": "int", "fill": 5, "field": "e"}):
        with pytest.raises(BackfillError, match="column c as"):
            version.altered([add("c", other)], state="s")


@pytest.mark.parametrize(
    ("own", "column", "found"),
    [
        (add("Late", "string"), {"late": "string"}, "differ only in case"),
        (add("c", "int"), {"name": {"type": "string", "field": ["c", "name"]}}, "are read from 'c'"),
        (RenameField("name", "c"), {"late": {"type": "int", "field": "c"}}, "are read from 'c'"),
    ],
)
def test_a_file_behind_its_state_can_not_contradict_it(
    own: TableChange, column: dict[str, Any], found: str
) -> None:
    """It would be written into the state, which no start could read any more."""
    known = KNOWN.altered([own], state="s")
    file = declare({**TABLE.to_dict(), "columns": {**COLUMNS, **column}})
    with pytest.raises(BackfillError, match="SCHEMA_CHANGED") as refused:
        known.declared(file, (), state="s")
    assert found in str(refused.value)


def test_a_retired_column_stays_until_it_is_added_again() -> None:
    retired = KNOWN.altered([RetireColumn("name")], state="s")
    for known in (retired, BoundTable.from_binding(json.dumps(retired.to_dict()))):
        for table in (TABLE, declare(known.table.to_dict())):
            found = known.declared(table, (), state="s").table
            assert [column.name for column in found.columns if column.is_retired] == ["name"]
            assert found == TABLE
    assert retired.altered([RetireColumn("name")], state="s") == retired
    back = retired.altered([add("name", "string")], state="s")
    assert not any(column.is_retired for column in back.table.columns)
    wider = retired.altered([add("c", "int")], state="s")
    assert wider.table.by_name["name"].is_retired


def test_a_field_is_ignored_from_then_on_and_for_good() -> None:
    version = KNOWN.altered([IgnoreField("c")], state="s")
    assert version.ignored == {"noise", "c"}
    assert version.declared(TABLE, (), state="s") == version
    for change in (add("c", "int"), RenameField("name", "c"), add("d", {"type": "int", "field": "noise"})):
        with pytest.raises(BackfillError, match="COLUMN_WAS_IGNORED"):
            version.altered([change], state="s")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ([add("name", "int")], "column name as int, which is there as string"),
        ([add("at", "date")], "column at as date, which is there as"),
        ([add("NAME", "int")], "differ only in case"),
        ([add("c", "number")], "column c"),
        ([add("_bf_c", "int")], "_bf_"),
        ([add("c", {"type": "int", "field": "on-day"})], "two columns are read from 'on-day'"),
        ([add("c", {"type": "int", "fill": "x"})], "fill 'x' is not"),
        ([RenameField("nam", "c")], "a new name of 'nam', no such column (did you mean 'name'?)"),
        ([WidenColumn("id", "bigint")], "column id of the key widened"),
        ([RetireColumn("id")], "column id of the key retired"),
        ([RetireColumn("nam")], "the end of 'nam', no such column (did you mean 'name'?)"),
        ([WidenColumn("nam", "bigint")], "a wider type of 'nam', no such column (did you mean 'name'?)"),
        ([WidenColumn("name", "txt")], "column name: 'txt' is not one of"),
        ([RenameField("name", "on-day")], "two columns are read from 'on-day'"),
        ([RenameField("id", "key")], "primary_key column id has several fields"),
        ([IgnoreField("on-day")], "'on-day' ignored, from which column at is read"),
        ([IgnoreField("c"), add("c", "int")], "'c' ignored, from which column c is read"),
        ([add("c", "int"), IgnoreField("c")], "'c' ignored, from which column c is read"),
    ],
)
def test_what_contradicts_the_table_is_refused(changes: list[TableChange], found: str) -> None:
    with pytest.raises(BackfillError) as refused:
        KNOWN.altered(changes, state="s")
    assert refused.value.code == "TABLE_INVALID"
    assert found in str(refused.value)


def test_what_a_state_once_ignored_takes_no_column_but_further_names_to_ignore() -> None:
    ignoring = BoundTable.first(TABLE, None)
    with pytest.raises(BackfillError, match="COLUMN_WAS_IGNORED"):
        ignoring.altered([add("c", "int")], state="s")
    version = ignoring.altered([IgnoreField("c")], state="s")
    assert version.ignored == {"c"}
    assert version.ignored_all
    assert BoundTable.from_binding(json.dumps(version.to_dict())) == version


def test_changes_leave_a_table_of_partitions_its_vnodes() -> None:
    table = declare(
        {"name": "t", "columns": {"id": "int"}, "primary_key": ["id"], "distribution": "upstream"}
    ).with_partitions(3)
    assert altered(table, [add("c", "int")]).vnode_count == 3
    assert altered(TABLE, [add("c", "int")]).vnode_count == TABLE.vnode_count


def test_a_request_is_read_as_it_was_written() -> None:
    changes = (
        add("c", {"type": "int", "fill": 0}),
        WidenColumn("d", "decimal(20, 4)"),
        RetireColumn("e"),
        RenameField("old", "new"),
        IgnoreField("é"),
    )
    assert changes_from_json(json.loads(json.dumps(changes_to_json(changes)))) == changes
    assert decode_suspended(encode_suspended("1", AlterAndTryAgain(changes))) == AlterAndTryAgain(changes)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        [],
        ["add"],
        [{}],
        [{"add": {}}],
        [{"add": {"a": "int", "b": "int"}}],
        [{"add": {"a": 5}}],
        [{"add": {"a": "int"}, "ignore": "b"}],
        [{"rename": {"a": 5}}],
        [{"rename": "a"}],
        [{"ignore": None}],
        [{"forget": "a"}],
        [{"widen": "a"}],
        [{"widen": {"a": 5}}],
        [{"ignore": "a"}] * 101,
    ],
    ids=lambda raw: json.dumps(raw)[:40],
)
def test_what_is_no_change_is_refused(raw: object) -> None:
    with pytest.raises(ValueError, match="change"):
        changes_from_json(raw)
    with pytest.raises(MalformedRequestError):
        decode_suspended(json.dumps({"id": "1", "suspended": {"alter": raw}}).encode())


@pytest.mark.parametrize("name", ["c", "it's", 'a "b"', "both ' and \"", "tab\t", "é", "a field 'x' that"])
def test_a_new_field_is_found_in_the_text_of_its_error(name: str) -> None:
    assert new_field_in(f"a value by schema 7: {new_field_text(name)}") == name
    assert new_field_in("a field of no kind") is None
