"""`backfill table` on a state that no service runs on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from schemas.records import Op
from state.columns import EPOCH, OFFSET, OP, PARTITION, VNODE, log_schema
from state.journal import Journal
from state.progress_table import ProgressTable
from state.replica import Replica, write_log_file
from state.storage import Storage
from streaming.cli.app import main
from tests.kit.tables import table, vnode_of

TABLE = table(vnode_count=4)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration, and its state with the row 7 as of barrier 10."""
    storage = Storage(str(tmp_path / "state"))
    Journal(storage, TABLE)
    ProgressTable(storage, TABLE)
    row = {"id": 7, "n": 1, "v": "x", VNODE: vnode_of(TABLE, (7,))}
    row |= {EPOCH: 10, PARTITION: 0, OFFSET: 3, OP: Op.INSERT.value}
    rows = pa.Table.from_pylist([row], schema=log_schema(TABLE))
    Replica(storage, TABLE).append([write_log_file(storage, rows, "log")], 10)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"upstream": "orders", "state": "state", "table": TABLE.to_dict()}))
    return path


def printed(capsys: pytest.CaptureFixture[str], file: Path, *options: str) -> dict[str, Any]:
    assert main(["table", "-c", str(file), "--json", *options]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_the_command_prints_versions_and_sql_and_pins_them(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(capsys, file, "--pin")
    assert found["is_whole"]
    assert (found["barrier"], found["base"], found["log"], found["pinned"]) == (10, 0, 1, [10])
    scope: dict[str, Any] = {}
    exec(found["sql"]["delta-rs"], scope)  # noqa: S102  our own text
    assert pa.table(scope["rows"]).to_pylist() == [{"id": 7, "n": 1, "v": "x"}]
    log = (file.parent / "state" / "replica" / "log").as_uri()
    assert f"delta.`{log}` VERSION AS OF 1" in found["sql"]["spark"]
    assert f"delta_scan('{log}', version => 1)" in found["sql"]["duckdb"]
    assert printed(capsys, file, "--unpin", "10") == {"unpinned": 10}
    assert printed(capsys, file, "--at", "10")["pinned"] == []
    assert main(["table", "-c", str(file)]) == 0
    assert "version 1" in capsys.readouterr().out


def test_a_barrier_that_is_not_kept_is_an_error_of_the_command_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "-c", str(file), "--at", "11"]) == 2
    assert "from 0 to 10" in capsys.readouterr().err
