"""`doctor` and a start of `run` say the same of each mistake of `mistakes.txt`, in words that fit it."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

from schemas.errors import Code, EnvironmentProblem
from streaming.cli.app import main
from streaming.service import bootstrap as starting
from tests.kit.mistakes import OF_EVENTS, TABLE, Topics, state_of

pytestmark = pytest.mark.kafka


class Mistake(NamedTuple):
    """A row of the table."""

    name: str
    given: str
    keys: str
    code: str
    status: int
    text: str


def table_of(path: Path) -> list[Mistake]:
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if line and line[0] != "#"]
    return [
        Mistake(name, given, keys, code, int(status), text) for name, given, keys, code, status, text in rows
    ]


MISTAKES = table_of(Path(__file__).with_name("mistakes.txt"))


@pytest.fixture(scope="module")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


@pytest.fixture(scope="module")
def busy() -> Iterator[str]:
    """An address at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends a start where its JVM would begin."""

    def start(_: object) -> Any:
        raise EnvironmentProblem(Code.SPARK_FAILED, found="a start that would go on with Java")

    monkeypatch.setattr(starting, "started_jvm", start)


def declared(mistake: Mistake, topics: Topics, topic: str, busy: str) -> dict[str, Any]:
    """The configuration of a row: that of a right one, with the keys that are other."""
    kind = mistake.given.partition(",")[0]
    upstream: dict[str, Any] = {"topic": topic, "format": "upsert"}
    if kind in OF_EVENTS:
        upstream |= {"format": "debezium", "time": "microseconds"}
    config: dict[str, Any] = {
        "kafka": {"bootstrap": topics.bootstrap},
        "upstream": upstream,
        "state": "state",
        "table": {**TABLE, "columns": dict(TABLE["columns"])},  # type: ignore[call-overload]
        "jobs": [{"name": "copy", "output": f"copy-{uuid.uuid4().hex[:8]}"}],
    }
    keys = mistake.keys.replace("{topic}", topic).replace("{tail}", topic.rpartition(".")[2])
    keys = keys.replace("{busy}", busy)
    for further in ("three", "filled", "short"):
        if f"{{{further}}}" in keys:
            keys = keys.replace(f"{{{further}}}", topics.further(further))
    for key in filter(None, keys.split("; ")):
        set_key(config, key)
    return config


def set_key(config: dict[str, Any], text: str) -> None:
    name, _, value = text.partition(":")
    *sections, last = name.lstrip("-").split(".")
    for section in sections:
        config = config.setdefault(section, {})
    if text.startswith("-"):
        del config[last]
    else:
        config[last] = YAML(typ="safe").load(value)


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each.name for each in MISTAKES])
@pytest.mark.usefixtures("without_java")
def test_doctor_and_run_say_the_same(
    mistake: Mistake, topics: Topics, busy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, _, state = mistake.given.partition(", ")
    topic = topics.topic(kind)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(declared(mistake, topics, topic, busy)))
    expected = mistake.text.replace("{topic}", topic)
    with state_of(state, tmp_path, topic, topics.kafka):
        status = main(["doctor", str(path), "--json"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        ended = main(["run", str(path)])
        line = capsys.readouterr().err.splitlines()[-1]
    failed = [each for each in findings if each["verdict"] == "failed"]
    said = [f"{each['found']}; next: {each['next_step']}" for each in failed or findings]
    assert any(expected in each for each in said), said
    if mistake.code == "none":
        assert (status, failed) == (0, [])
        assert (ended, line.split(" ")[0].rstrip(":")) == (7, "SPARK_FAILED"), line
    else:
        assert (failed[0]["code"], status) == (mistake.code, mistake.status), failed
        assert (line.split(" ")[0].rstrip(":"), ended) == (mistake.code, mistake.status), line
        assert expected in line
    assert state or not (tmp_path / "state").exists()


def test_the_table_has_each_key_once() -> None:
    assert len({each.name for each in MISTAKES}) == len(MISTAKES) >= 40
