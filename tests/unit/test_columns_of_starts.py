"""Columns that come to a table whose state starts from another one: what that has of them, and when they may come."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from schemas.errors import ConfigError, StateError
from schemas.kinds.initial import DeltaStart
from schemas.kinds.table_changes import AddColumn, WidenColumn
from schemas.settings.config import check
from state.initial.start import Start
from state.initial.table import checked_table
from state.journal import Entry
from state.values.bound_table import BoundTable
from streaming.cli.topics.target import initial_table
from streaming.control.known_table import version_of
from tests.unit.test_added_columns import CENTS, FIRST, MOST, NARROW, SECOND, refusal, table, version


def test_the_table_that_a_state_starts_from_has_the_fill_of_later_columns(tmp_path: Path) -> None:
    uri = str(tmp_path / "initial")
    write_deltalake(uri, pa.table({"note": ["x", None], "id": pa.array([1, 2], pa.int64())}))
    start = Start(DeltaStart.model_validate({"uri": uri, "version": 0, "offsets": [5]}), (5,), 2)
    wide = table(SECOND)
    assert set(initial_table(start, wide).decoded(wide)) == {(1, "x", 5, None), (2, None, 5, None)}
    with pytest.raises(ConfigError, match="INITIAL_TABLE_MISFIT"):
        initial_table(start, table({"key": "bigint", **FIRST}, key="key"))


def test_the_table_that_a_state_starts_from_is_read_in_the_types_of_then(tmp_path: Path) -> None:
    uri = str(tmp_path / "initial")
    types = {column.name: column.type.arrow for column in table(NARROW).columns}
    rows = {"id": [1, 2], "n": [MOST, None], "price": [CENTS, None]}
    write_deltalake(uri, pa.table({name: pa.array(rows[name], kind) for name, kind in types.items()}))
    start = Start(DeltaStart.model_validate({"uri": uri, "version": 0, "offsets": [5]}), (5,), 2)
    changes = [WidenColumn("n", "bigint"), WidenColumn("price", "decimal(12,4)")]
    wide = BoundTable.first(table(NARROW), ()).altered(changes, state="s", epoch=7).table
    assert set(initial_table(start, wide).decoded(wide)) == {(1, MOST, CENTS), (2, None, None)}


def test_a_column_of_that_table_which_was_not_read_is_not_known_later(tmp_path: Path) -> None:
    uri = str(tmp_path / "initial")
    first = {"id": pa.array([1], pa.int64()), "note": ["x"], "c": pa.array([8], pa.int32())}
    write_deltalake(uri, pa.table(first))
    declared = DeltaStart.model_validate({"uri": uri, "version": 0, "offsets": [5]})
    unread = checked_table(declared, table(FIRST)).further(table(FIRST))
    assert unread == ("c",)
    known = replace(version(FIRST), unread=frozenset(unread))
    assert BoundTable.from_binding(json.dumps(known.to_dict())) == known
    added = AddColumn("c", '{"type": "int", "fill": 5}')
    assert str(refusal(known, SECOND)).startswith("COLUMN_WAS_IGNORED: 'c' of column c")
    with pytest.raises(StateError, match="COLUMN_WAS_IGNORED"):
        known.altered([added], state="s")
    missing = known.altered([replace(added, accepts_missing=True)], state="s", epoch=7).table
    assert missing.incomplete == ("c",)
    assert list(initial_table(Start(declared, (5,), 1), missing).decoded(missing)) == [(1, "x", 5)]


@pytest.mark.parametrize("section", [None, "delta", "postgres"])
def test_a_state_whose_start_is_under_way_takes_no_column(tmp_path: Path, section: str | None) -> None:
    (dsn := tmp_path / "dsn").write_text("host=localhost")
    dsn.chmod(0o600)
    starts = {
        "delta": {"uri": "/t", "version": 0, "offsets": [0]},
        "postgres": {"dsn_file": str(dsn), "table": "public.t", "slot": "s"},
    }
    declared: dict[str, Any] = {
        "upstream": {"topic": "up", "format": "debezium", "on_new_column": "wait"},
        "state": "s",
        "table": table(FIRST).to_dict(),
    }
    if section is not None:
        declared["initial"] = {section: starts[section]}
    entry = Entry("me", 1, json.dumps(version(FIRST).to_dict()), None)
    config = check(declared, path=tmp_path / "config.yaml")
    if section is None:
        assert version_of(config, entry, [AddColumn("c", '"int"')], state="s").widths == (2, 3)
        return
    with pytest.raises(StateError, match="SCHEMA_CHANGED at s: found further columns, names or types"):
        version_of(config, entry, [AddColumn("c", '"int"')], state="s")
