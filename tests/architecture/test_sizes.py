"""Files, functions and rooms stay small enough to be read in one sitting."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES, FUNCTION_LINES, ROOM_FILES = 350, 60, 13
"""A room has a dozen files and its `__init__`."""


def sources(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from (ROOT / room).rglob("*.py")


def test_no_file_is_too_long() -> None:
    lines = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for path in sources("schemas", "state", "streaming", "tests")
    }
    assert {path: count for path, count in lines.items() if count > FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    found = {}
    for path in sources("schemas", "state", "streaming", "tests"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                found[path, node.name] = node.end_lineno - node.lineno + 1
    assert {name: count for name, count in found.items() if count > FUNCTION_LINES} == {}


def test_no_room_is_too_full() -> None:
    files = Counter(
        path.parent.relative_to(ROOT).as_posix() for path in sources("schemas", "state", "streaming")
    )
    assert {room: count for room, count in files.items() if count > ROOM_FILES} == {}
