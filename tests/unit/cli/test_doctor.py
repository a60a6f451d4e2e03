"""`backfill doctor` without a broker: what a configuration needs, and what the machine has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schemas.settings.config import ServiceConfig, check
from streaming.cli.app import main
from streaming.runtime.java.jars import java
from streaming.service.checks.broker import TopicNeed, other_needs, upstream_needs
from streaming.service.checks.surroundings import Finding, Grade, worst
from tests.kit.tables import table

SECURITY = (Path(__file__).parents[3] / "docs" / "security.md").read_text()


def declared(**more: Any) -> dict[str, Any]:
    job = {"name": "copy", "output": "copy"}
    return {"upstream": "orders", "state": "state", "table": table().to_dict(), "jobs": [job], **more}


def rows(part: str) -> dict[str, set[str]]:
    """Operations by topic of a table of the documents, but Create, which a topic that is there does not need."""
    found: dict[str, set[str]] = {}
    for name, operations in re.findall(r"^\| Topic \| `([^`]+)` \| ([^|]+) \|", part, re.MULTILINE):
        names = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", each).upper() for each in operations.strip().split(", ")}
        found.setdefault(name, set()).update(names - {"CREATE"})
    return found


def topic_needs(config: ServiceConfig) -> tuple[TopicNeed, ...]:
    return *upstream_needs(config), *other_needs(config)


def test_what_is_asked_for_is_what_the_documents_say_to_grant() -> None:
    inline, beside = re.split(
        r"^With \[barriers", SECURITY.split("## Rights to grant")[1], flags=re.MULTILINE
    )[:2]
    first = rows(inline)
    needs = topic_needs(check(declared(on_bad_record="park"), path=Path("config.yaml")))
    assert {need.topic: need.operations for need in needs} == {
        "orders": first["<upstream>"],
        # To write there is only for those who use the page's token.
        "orders.control": first["<upstream>.control"] - {"WRITE"},
        "copy": first["<output>"],
        "copy.dead-letters": first["<output>.dead-letters"],
    }
    second = rows(beside.split("To the user of")[0])
    needs = topic_needs(check(declared(barrier_topic="b", control_topic="c"), path=Path("config.yaml")))
    operations = {need.topic: need.operations for need in needs}
    assert operations["orders"] == second["<upstream>"]
    assert operations["b"] == second["<barrier topic>"]
    assert operations["c"] == second["<control topic>"]


def test_barriers_of_others_have_to_be_there_and_are_only_read() -> None:
    config = check(declared(barrier_topic="b", barriers="embedded"), path=Path("config.yaml"))
    needs = {need.topic: need for need in topic_needs(config)}
    assert needs["b"] == TopicNeed("b", frozenset({"READ", "DESCRIBE"}), must_exist=True)
    assert "orders.control" not in needs


def test_the_worst_finding_decides() -> None:
    found = [Finding("a", verdict, "") for verdict in (Grade.OK, Grade.WARNING)]
    assert worst(found) is Grade.WARNING
    assert worst([*found, Finding("b", Grade.FAILED, "")]) is Grade.FAILED
    assert worst([]) is Grade.OK


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(declared()))
    return path


def asked(config: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, str]]]:
    status = main(["doctor", str(config), "--json"])
    said = json.loads(capsys.readouterr().out)
    return status, {each["subject"]: each for each in said["findings"]}


def test_a_machine_that_is_in_order(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = asked(config, capsys)
    assert status == 0
    assert list(found) == ["configuration", "java", "jars", "disk", "state", "broker"]
    assert not (config.parent / "state").exists()


def test_what_is_wrong_with_the_machine_has_a_way_out(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("BACKFILL_JARS", str(tmp_path / "nothing"))
    java.cache_clear()
    (tmp_path / "state").write_text("a file where the folder should be")
    try:
        status, found = asked(config, capsys)
    finally:
        java.cache_clear()
    assert status == 7
    assert found["java"]["found"].startswith("JAVA_MISSING at JAVA_HOME")
    assert found["jars"]["verdict"] == "warning"
    assert found["state"]["verdict"] == "failed"
    assert all(found[name]["next_step"] for name in ("java", "jars", "state"))


def test_a_disk_that_is_full_is_seen(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The figure of the file system is the one thing here that can't be had for real."""
    usage = type("Usage", (), {"free": 1024**3})()
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    status, found = asked(config, capsys)
    assert (status, found["disk"]["verdict"]) == (0, "warning")
    usage.free = 1024**2
    assert asked(config, capsys)[0] == 0  # a start does not ask for it either


def test_a_configuration_that_is_wrong_is_the_first_line(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("nosuch: key\n")
    assert main(["doctor", str(config)]) == 2
    said = capsys.readouterr().out
    assert said.startswith("failed  configuration: CONFIG_INVALID at ")
    assert "\n        next: " in said
    assert "java" not in said


@pytest.mark.slow
def test_a_broker_that_is_away_ends_what_needs_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(declared(kafka={"bootstrap": "127.0.0.1:1"})))
    status, found = asked(path, capsys)
    assert status == 7
    assert found["broker"]["found"].startswith("BROKER_UNREACHABLE at ")
    assert not any(name.startswith("topic") for name in found)


def test_it_needs_no_spark(config: Path) -> None:
    program = (
        "import sys; from streaming.cli.app import main; sys.argv = ['backfill', 'doctor', sys.argv[1]];"
        "main(); print(*{name.partition('.')[0] for name in sys.modules})"
    )
    command = [sys.executable, "-c", program, str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"pyspark", "pandas", "fastapi"} & set(done.stdout.splitlines()[-1].split())
