"""Answers of `status` and `plan` while the table is copied that a state starts from: they read the state alone."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from schemas.kinds.initial import DeltaStart
from state.initial.copy import TableCopy, copy_part
from state.initial.start import Start
from state.initial.table import SourceTable
from state.journal import Journal
from state.progress_table import ProgressTable
from state.replica import Replica
from state.storage import Storage
from streaming.cli.app import main
from streaming.cli.jobs.status import StatusExit
from tests.kit.tables import table

TABLE = table()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a service that was killed in the copy, with one of two parts done."""
    uri = str(tmp_path / "source")
    schema = pa.schema([(column.name, column.type.arrow) for column in TABLE.columns])
    for first in (0, 100):
        ids = list(range(first, first + 100))
        write_deltalake(uri, pa.table([ids, ids, ["x"] * 100], schema=schema), mode="append")
    declared = {"uri": uri, "version": 1, "offsets": [7]}
    start = Start(DeltaStart.model_validate(declared), (7,), 200)
    storage = Storage(str(tmp_path / "state"))
    storage.prepare()
    Journal(storage, TABLE).take_over("this test", json.dumps({**TABLE.to_dict(), **start.bound()}))
    ProgressTable(storage, TABLE)
    copy = TableCopy(Replica(storage, TABLE), SourceTable(uri, 1), 100)
    copy.commit_copied([copy_part(part) for part in copy.to_copy(1)])
    file = tmp_path / "config.json"
    written = {"upstream": "up", "state": "state", "table": TABLE.to_dict(), "initial": {"delta": declared}}
    file.write_text(json.dumps(written), encoding="utf-8")
    return file


def test_status_says_how_far_the_copy_is(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--config", str(config)]) == StatusExit.NOT_REACHABLE
    assert "100 of 200 rows" in capsys.readouterr().out
    assert main(["status", "--json", "--config", str(config)]) == StatusExit.NOT_REACHABLE
    assert json.loads(capsys.readouterr().out)["copy"] == {"copied": 100, "sorted": 0, "of": 200}


def test_plan_says_what_comes_before_any_job(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--name", "copy", "--output", "copy", "--config", str(config)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "starts with 200 rows in" in shown
    assert "100 are copied, 0 of them sorted" in shown
