"""Pages that are carried out: tutorials, and the producers of formats.md with what `consume` prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streaming.broker.embedded import free_port
from streaming.cli.app import load as load_command
from tests.conftest import TopicFactory
from tests.kit.pages import Command, Text, Walk, is_as_shown, steps
from tests.kit.registry import FakeRegistry

DOCS = Path(__file__).parents[2] / "docs"
NOT_HERE = re.compile(r"make |export PATH=")
"""What installs the command, which tests have."""


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    address = f"127.0.0.1:{free_port()}"
    port = address.rpartition(":")[2]
    folder = tmp_path / "walk"
    folder.mkdir()
    return Walk(
        folder, {"127.0.0.1:9092": address, "backfill kafka": f"backfill kafka --heap 256m --port {port}"}
    )


def read(walk: Walk, page: str) -> None:
    with walk:
        for step in steps((DOCS / page).read_text(encoding="utf-8")):
            if not (isinstance(step, Command) and NOT_HERE.match(step.line)):
                walk.take(step)


@pytest.mark.faults  # services from nothing, one of them killed: minutes
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("page", ["tutorial-debezium.md", "tutorial-events.md"], ids=["debezium", "events"])
def test_a_newcomer_sees_what_the_page_shows(walk: Walk, page: str) -> None:
    read(walk, page)


def test_a_page_is_files_and_commands_with_what_they_print() -> None:
    page = "In `a.yaml`:\n\n```yaml\nx: 1\n```\n\n```console\n$ one\n$ two\n2 rows\n```\n\n```\nrecord\n```\n"
    assert list(steps(page)) == [Text("a.yaml", "x: 1\n"), Command("one", ""), Command("two", "2 rows\n")]


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("took 7.25 s\nend x\n", True),
        ("took 12 s\nany\nthing\nend x\n", True),
        ("took long\nend x\n", False),
        ("took 3 s\nend y\n", False),
        ("before\ntook 3 s\nend x\n", False),
        ("took 3 s\nend x\nmore\n", False),
    ],
)
def test_numbers_may_differ_and_words_may_not(printed: str, same: bool) -> None:
    assert is_as_shown("took 3 s\n…\nend x\n", printed) is same


PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
PRODUCE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
COLUMNS = {"id": "bigint", "region": "string", "amount": "decimal(18,2)"}


def is_as_printed(number: int, bootstrap: str, name: str, folder: Path, **config: Any) -> bool:
    """True if `consume` prints for the example of this number what the page says."""
    code = PRODUCE[number].replace("127.0.0.1:9092", bootstrap).replace('"orders"', repr(name))
    code = code.replace("http://127.0.0.1:8081", config.get("registry", {}).get("url", ""))
    assert bootstrap in code
    assert name in code
    exec(code, {})  # noqa: S102 (the page's own)
    file = folder / "config.json"
    file.write_text(json.dumps({"kafka": {"bootstrap": bootstrap}, "state": str(folder / "state"), **config}))
    result = CliRunner().invoke(load_command("consume"), ["-c", str(file)])
    return bool(result.stdout.replace(name, "orders") == PRINTED[number])


def test_consume_reads_what_the_page_produces(bootstrap: str, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic(1, name="orders")
    table = {"name": "orders", "columns": {**COLUMNS, "placed": "timestamp"}, "primary_key": ["id"]}
    upstream = {"topic": name, "format": "upsert"}
    assert is_as_printed(0, bootstrap, name, tmp_path, upstream=upstream, table=table)


def registered(topic: str, registry: str) -> dict[str, Any]:
    """The configuration of rows in Avro by a registry."""
    return {
        "upstream": {"topic": topic, "format": "upsert", "encoding": "avro-registry"},
        "table": {"name": "orders", "columns": COLUMNS, "primary_key": ["id"]},
        "registry": {"url": registry},
    }


def test_consume_reads_what_the_page_produces_with_a_registry(
    bootstrap: str, topic: TopicFactory, tmp_path: Path, registry: FakeRegistry
) -> None:
    name = topic(1, name="orders")
    assert is_as_printed(1, bootstrap, name, tmp_path, **registered(name, registry.url))


def test_consume_reads_rows_without_identity_as_the_page_says(
    bootstrap: str, topic: TopicFactory, tmp_path: Path
) -> None:
    name, columns = topic(1, name="orders"), {"region": "string", "amount": "decimal(18,2)"}
    upstream, table = {"topic": name, "format": "append"}, {"name": "orders", "columns": columns}
    assert is_as_printed(2, bootstrap, name, tmp_path, upstream=upstream, table=table)
    assert len(PRODUCE) == len(PRINTED) == 3
