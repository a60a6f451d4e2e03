"""Columns that a table gets at a restart: which may be added, and files, hashes and stores of before and after."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from schemas.errors import Code, StateError
from schemas.job import JobDefinition
from schemas.kinds.table_changes import AddColumn, IgnoreField, WidenColumn
from schemas.records import Op
from schemas.table import TableSchema, declare
from state.columns import BEFORE_HASH, EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.maintenance.compaction import compact_part, parts_of
from state.maintenance.merge import Merge, merge_files
from state.replica import BASE_PATH, LOG_PATH, Replica, write_log_file
from state.storage import Storage
from state.values.bound_table import BoundTable
from state.values.plan import Slice
from state.vnode import row_hashes
from streaming.lane.before.store import LocalStore
from streaming.scan import snapshot
from streaming.scan.snapshot import SnapshotReader
from tests.kit.tables import vnode_of

Columns = Mapping[str, Any]
WAIT = ("noise",)
FIRST: Columns = {"id": "bigint", "note": "string"}
SECOND: Columns = {**FIRST, "c": {"type": "int", "fill": 5}, "d": "string"}


def table(columns: Columns, key: str = "id") -> TableSchema:
    return declare({"name": "t", "columns": columns, "primary_key": [key], "vnode_count": 2})


def version(columns: Columns, ignored: tuple[str, ...] | None = WAIT) -> BoundTable:
    return BoundTable.first(table(columns), ignored)


def refusal(before: BoundTable, columns: Columns) -> str | None:
    try:
        before.declared(table(columns), WAIT, state="s")
    except StateError as error:
        return f"{error.code}: {error.found}"
    return None


# Which may be added --------------------------------------------------------------------------------------------


def test_columns_are_added_behind_the_others_where_new_ones_wait() -> None:
    known = version(FIRST)
    assert refusal(known, SECOND) is None
    assert (
        refusal(known, {**FIRST, "noise": "int"})
        == "COLUMN_WAS_IGNORED: 'noise' of column noise, a field that was ignored"
    )
    renamed = {**FIRST, "c": {"type": "int", "field": ["e", "noise"]}}
    assert str(refusal(known, renamed)).startswith("COLUMN_WAS_IGNORED: 'noise' of column c")
    for columns in (
        {"id": "bigint", "c": "int", "note": "string"},
        {"note": "string", "id": "bigint"},
        {"id": "bigint", "note": "binary", "c": "int"},
        {"id": "bigint", "note": {"type": "string", "fill": "x"}},
    ):
        assert str(refusal(known, columns)).startswith("SCHEMA_CHANGED")


def test_what_the_state_has_beyond_the_file_stays() -> None:
    known = version(FIRST).declared(table(SECOND), WAIT, state="s")
    assert known.widths == (2, 4)
    assert known.declared(table(FIRST), (), state="s") == known
    assert known.declared(table({"id": "bigint"}), (), state="s").table == table(SECOND)
    # A file that goes on from an older one adds behind all that is there.
    third = known.declared(table({**FIRST, "e": "date"}), (), state="s")
    assert third.table.column_names == ("id", "note", "c", "d", "e")
    assert third.widths == (2, 4, 5)
    fewer = {**FIRST, "d": "string"}
    assert known.declared(table(fewer), (), state="s").table == table(SECOND)
    assert str(refusal(known, {**FIRST, "c": "int"})).startswith("SCHEMA_CHANGED"), "its fill is fixed"
    assert BoundTable.from_binding(json.dumps(third.to_dict())) == third


def test_a_table_that_is_being_read_from_its_database_takes_no_column() -> None:
    """The chunks that were read have no values of it, and would take the place of events that have."""
    known = version(FIRST)
    with pytest.raises(StateError) as declared:
        known.declared(table(SECOND), WAIT, state="s", is_read=False)
    with pytest.raises(StateError) as altered:
        known.altered([AddColumn("c", '"int"')], state="s", is_read=False)
    assert {declared.value.code, altered.value.code} == {Code.SCHEMA_CHANGED}
    assert known.declared(table(FIRST), WAIT, state="s", is_read=False) == known
    assert known.altered([IgnoreField("c")], state="s", is_read=False).ignored == {"noise", "c"}


def test_a_column_may_get_further_names() -> None:
    known = version({**FIRST, "c": {"type": "int", "field": "a"}})

    def named(*names: str) -> Columns:
        return {**FIRST, "c": {"type": "int", "field": list(names)}}

    assert [refusal(known, named(*names)) for names in (("b", "a"), ("a", "b"), ("x", "a", "y"))] == [
        None
    ] * 3
    assert str(refusal(known, named("b"))).startswith("SCHEMA_CHANGED")
    assert str(refusal(known, named("noise", "a"))).startswith("COLUMN_WAS_IGNORED")
    text = {**FIRST, "note": {"type": "string", "field": ["text", "note"]}}
    assert refusal(version(FIRST), text) is None
    # A file that is behind takes none away.
    longer = version(text)
    assert longer.declared(table(FIRST), WAIT, state="s").table == table(text)
    assert str(refusal(longer, {**FIRST, "note": {"type": "string", "field": ["x", "note"]}})).startswith(
        "SCHEMA_CHANGED"
    )


def test_a_state_that_ever_ignored_fields_takes_no_column() -> None:
    ignoring = version(FIRST, None)
    assert str(refusal(ignoring, SECOND)).startswith("COLUMN_WAS_IGNORED: 'c' of column c, and records")
    later = ignoring.declared(table(FIRST), WAIT, state="s")
    assert str(refusal(later, SECOND)).startswith("COLUMN_WAS_IGNORED")
    again = version(FIRST).declared(table(FIRST), (), state="s")
    assert str(refusal(again, {**FIRST, "noise": "int"})).startswith("COLUMN_WAS_IGNORED")
    ignored = version(FIRST).declared(table(FIRST), None, state="s")
    assert str(refusal(ignored, SECOND)).startswith("COLUMN_WAS_IGNORED")


def test_a_job_without_columns_keeps_those_that_the_table_had() -> None:
    declared = {"name": "copy", "output": "copy"}
    first, second = (JobDefinition.declare(declared, table(columns)) for columns in (FIRST, SECOND))
    widths = version(FIRST).declared(table(SECOND), WAIT, state="s").widths
    assert first.differences(second, widths) == []
    some = JobDefinition.declare({**declared, "columns": ["id"]}, table(FIRST))
    assert [each.split()[0] for each in some.differences(second, widths)] == ["columns"]
    named = JobDefinition.declare({**declared, "columns": list(SECOND)}, table(SECOND))
    assert [each.split()[0] for each in first.differences(named, widths)] == ["columns"]


# Files of before and after ---------------------------------------------------------------------------------------


def changes(
    of: TableSchema, epoch: int, *rows: tuple[Op, tuple[Any, ...], tuple[Any, ...] | None]
) -> pa.Table:
    found = []
    for number, (op, row, before) in enumerate(rows):
        hashed = None
        if before is not None:
            columns = of.hashed_columns
            values = [
                pa.array([before[of.column_names.index(each.name)]], each.type.arrow) for each in columns
            ]
            [hashed] = row_hashes(values, columns).tolist()
        own = {
            VNODE: vnode_of(of, (row[0],)),
            EPOCH: epoch,
            PARTITION: 0,
            OFFSET: epoch * 100 + number,
            OP: op,
        }
        found.append({**own, BEFORE_HASH: hashed, **dict(zip(of.column_names, row, strict=True))})
    return pa.Table.from_pylist(found, schema=log_schema(of))


def write(replica: Replica, of: TableSchema, epoch: int, *rows: Any) -> None:
    replica.append([write_log_file(replica.storage, changes(of, epoch, *rows), "log")], epoch)


def compact(replica: Replica) -> dict[Code, int]:
    files = replica.files(replica.pin())
    parts = parts_of(replica.storage, replica.table, files)
    results = [compact_part(part) for part in parts]
    added = [file for result in results for file in result.added]
    removed = [file for result in results for file in result.removed]
    replica.commit_compaction(added, removed, replica.log_epoch)
    replica.trim()
    return {code: found.count for result in results for code, found in result.illegal.items()}


def rows_of(replica: Replica) -> dict[int, tuple[Any, ...]]:
    reader = SnapshotReader(replica.storage, replica.table, replica.files(replica.pin()))
    names, found = list(replica.table.column_names), {}
    for vnode in range(2):
        item = Slice(vnode, None, None)
        for rows in reader.read(item, names, reader.overlay(frozenset([vnode]), names)):
            for row in rows.select(names).to_pylist():
                found[row["id"]] = tuple(row.values())
    return found


NARROW: Columns = {"id": "bigint", "n": "int", "price": "decimal(10,2)"}
MOST, CENTS = 2**31 - 1, Decimal("99999999.99")
NOTE = {1: (1, "x", 5, None), 2: (2, None, 5, None)}


@pytest.mark.parametrize("held_bytes", [1 << 40, 0], ids=["held", "located"])
@pytest.mark.parametrize("compacted", [False, True], ids=["log", "base"])
def test_rows_of_former_files_have_the_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_bytes: int, compacted: bool
) -> None:
    monkeypatch.setattr(snapshot, "HELD_BYTES", held_bytes)
    monkeypatch.setattr("state.maintenance.compaction_rows.BYTES_PER_PART", max(held_bytes, 1))
    storage, first, second = Storage(str(tmp_path)), table(FIRST), table(SECOND)
    replica = Replica(storage, first)
    write(
        replica,
        first,
        1,
        (Op.INSERT, (1, "x"), None),
        (Op.INSERT, (2, None), None),
        (Op.INSERT, (3, "y"), None),
    )
    if compacted:
        assert compact(replica) == {}
    write(replica, first, 2, (Op.DELETE, (3, "y"), (3, "y")))
    replica = Replica(storage, second)
    replica.adopt_schema()
    version = replica.log.version
    replica.adopt_schema()
    assert replica.log.version == version
    assert rows_of(replica) == NOTE
    write(
        replica,
        second,
        3,
        (Op.UPDATE, (2, "z", None, "d"), (2, None, 5, None)),
        (Op.INSERT, (4, "", 0, None), None),
    )
    expected = {1: NOTE[1], 2: (2, "z", None, "d"), 4: (4, "", 0, None)}
    assert rows_of(replica) == expected
    assert compact(replica) == {}, "a change of before is compared without the columns that came later"
    assert rows_of(replica) == expected
    for path in (BASE_PATH, LOG_PATH):
        stored = [each.name for each in DeltaTable(f"{tmp_path}/{path}").schema().fields]
        assert stored[-2:] == ["c", "d"]
    known = DeltaTable(f"{tmp_path}/{BASE_PATH}").to_pyarrow_table(columns=["id", "c"])
    assert dict(zip(known["id"].to_pylist(), known["c"].to_pylist(), strict=True))[4] == 0


def test_a_merge_of_files_of_before_and_after_has_the_fill(tmp_path: Path) -> None:
    storage, first, second = Storage(str(tmp_path)), table(FIRST), table(SECOND)
    write(Replica(storage, first), first, 1, (Op.INSERT, (1, "x"), None))
    replica = Replica(storage, second)
    replica.adopt_schema()
    write(replica, second, 2, (Op.INSERT, (2, "y", None, None), None))
    files = replica.log.files((VNODE, EPOCH))
    merged = merge_files(Merge(storage, second, tuple(files)))
    read = storage.read_parquet(LOG_PATH, [merged.into.path], log_schema(second))
    assert dict(zip(read["id"].to_pylist(), read["c"].to_pylist(), strict=True)) == {1: 5, 2: None}
    assert pc.is_valid(read["c"]).to_pylist().count(True) == 1


@pytest.mark.parametrize("held_bytes", [1 << 40, 0], ids=["held", "located"])
@pytest.mark.parametrize("compacted", [False, True], ids=["log", "base"])
@pytest.mark.parametrize("is_merged", [False, True], ids=["", "merged"])
def test_rows_of_narrower_files_have_the_wider_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_bytes: int, compacted: bool, is_merged: bool
) -> None:
    monkeypatch.setattr(snapshot, "HELD_BYTES", held_bytes)
    monkeypatch.setattr("state.maintenance.compaction_rows.BYTES_PER_PART", max(held_bytes, 1))
    storage, first = Storage(str(tmp_path)), table(NARROW)
    replica = Replica(storage, first)
    write(replica, first, 1, (Op.INSERT, (1, MOST, CENTS), None), (Op.INSERT, (2, None, None), None))
    if compacted:
        assert compact(replica) == {}
    write(replica, first, 2, (Op.UPDATE, (1, -MOST - 1, -CENTS), (1, MOST, CENTS)))
    changes = [WidenColumn("n", "bigint"), WidenColumn("price", "decimal(12,4)")]
    second = BoundTable.first(first, ()).altered(changes, state="s", epoch=2).table
    replica = Replica(storage, second)
    replica.adopt_schema()
    assert rows_of(replica) == {1: (1, -MOST - 1, -CENTS), 2: (2, None, None)}
    fine = Decimal("0.0001")
    write(replica, second, 3, (Op.UPDATE, (1, 2**40, fine), (1, -MOST - 1, -CENTS)))
    if is_merged:
        files = replica.log.files((VNODE, EPOCH))
        merged = merge_files(Merge(storage, second, tuple(files)))
        replica.log.commit([merged.into], files, epoch=None, data_change=False)
    assert rows_of(replica) == {1: (1, 2**40, fine), 2: (2, None, None)}
    # Changes up to the switch are not compared with rows of another type; those behind it are.
    write(replica, second, 4, (Op.UPDATE, (2, 1, None), (2, 5, None)))
    assert compact(replica) == {Code.OLD_ROW_MISMATCH: 1}
    assert rows_of(replica) == {1: (1, 2**40, fine), 2: (2, 1, None)}


def test_rows_that_a_lane_kept_are_read_anew_with_other_columns(tmp_path: Path) -> None:
    with closing(LocalStore(tmp_path, table(FIRST))) as store:
        store.clear()
        origin = store._origin  # equal for equal columns alone
    with closing(LocalStore(tmp_path, table(FIRST))) as store:
        assert store._origin == origin
    with closing(LocalStore(tmp_path, table(SECOND))) as store:
        assert store._origin != origin
        assert store.epoch is None
