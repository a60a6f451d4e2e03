"""The pages for newcomers, carried out from nothing: each command does what the page says, and prints what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streaming.broker.embedded import free_port
from tests.kit.pages import Command, Text, Walk, is_as_shown, steps

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
