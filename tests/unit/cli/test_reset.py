"""A state's folders and topics are all listed, and nothing is deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streaming.cli.app import main

CONFIG = """
kafka:
  bootstrap: "localhost:9092"
upstream:
  topic: orders
  format: debezium
  encoding: json
registry:
  url: "http://127.0.0.1:1"
barrier_topic: orders.own-barriers
control_topic: orders.own-control
state: state
table:
  name: orders
  columns:
    id: bigint
  primary_key: [id]
jobs:
  - name: plain
    output: plain
  - name: framed
    output: framed
    format: upsert
    encoding: avro-registry
    barrier_topic: framed.barriers
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    return file


def test_topics_groups_and_subjects_are_listed_each_with_its_command(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reset", "--print", "--json", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["topics"]) == {
        "orders.dead-letters",
        "orders.own-control",
        "orders.own-barriers",
        "plain",
        "plain.dead-letters",
        "framed",
        "framed.barriers",
        "framed.dead-letters",
    }
    assert found["groups"] == ["backfill-orders.own-control", "orders.own-barriers.injector"]
    assert set(found["subjects"]) == {"framed-key", "framed-value"}
    assert found["folders"] == []  # no service has run
    named = " ".join(found["commands"]).split()
    for name in (*found["topics"], *found["groups"]):
        assert name in named
    for subject in found["subjects"]:
        assert f"http://127.0.0.1:1/subjects/{subject}" in named
    assert not any(each.endswith("--topic orders") for each in found["commands"])


def test_it_deletes_nothing_by_itself(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reset", str(file)]) == 2
    assert "--print" in capsys.readouterr().err
