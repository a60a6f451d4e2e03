"""Commands for rows without identity."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.formats.append import AppendFormat
from schemas.records import Change, Op
from schemas.table import declare
from streaming.cli.app import main
from streaming.cli.topics.consume import PrintedForm, _line
from streaming.cli.topics.target import Target
from streaming.kafka.clients import KafkaSettings
from streaming.reading.topic import Record

TABLE = {"name": "t", "columns": {"id": "int"}}
CONFIG = {
    "kafka": {"bootstrap": "127.0.0.1:1"},
    "state": "s",
    "upstream": {"topic": "up", "format": "append"},
}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["consume", "-c", "c.json", "--fold"], "--fold of rows without identity"),
        (["consume", "-c", "c.json", "--topic", "other"], "format 'change' needs a table with a primary key"),
        (["produce", "-c", "c.json", "--topic", "other"], "format 'change' needs a table with a primary key"),
        (
            ["produce", "-c", "c.json", "--format", "upsert-json"],
            "--format upsert-json for an upstream that is",
        ),
        (["verify", "-c", "c.json", "--output", "x"], "format 'change' needs a table with a primary key"),
    ],
)
def test_what_does_not_go_with_them_is_refused_before_anything_is_asked(
    command: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_text(json.dumps({**CONFIG, "table": TABLE}), encoding="utf-8")
    assert main(command) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "shown"),
    [(None, "[null]"), (b"", '[""]'), (b"a b", '["a b"]'), (b"\xff", '[{"base64": "/w=="}]')],
)
def test_a_key_is_shown_as_it_came(key: bytes | None, shown: str) -> None:
    table = declare(TABLE, has_key=False)
    target = Target(KafkaSettings("unused"), "up", table, table.columns, (), AppendFormat())
    record = Record("up-0@7", 0, 3, (key,), Change(Op.INSERT, None, (5,)))
    assert (
        _line(record, target, table.columns, PrintedForm.TEXT) == f'up-0@7\t3\tINSERT\t{shown}\t{{"id": 5}}'
    )
