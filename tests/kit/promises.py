"""The sentences of the contract, each bound to a test of it in `tests/promises/contract.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "docs" / "contract.md"
PROMISES = ROOT / "tests" / "promises"
TEST = r"([\w/]+\.py)::(test_\w+)"
"""The file of a test below `tests`, and its name."""

_BLOCK = re.compile(r"^```.*?^```\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=\.) +(?=[A-Z`*\d])")
_TITLE = re.compile(r"\*\*([\w ]+)\.\*\* ")
"""Of a paragraph, in bold."""
_NAME = re.sub(r"[()]", "", TEST)
_ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)


def sentences(page: str) -> Iterator[str]:
    """Statements of a page, in its order: sentences of paragraphs and of items, and rows of tables, without links.

    Blocks of code, headings, heads of tables, and texts before the first section are none.
    """
    for part in re.split(r"\n{2,}", _BLOCK.sub("\n", page[page.index("\n## ") :])):
        lines = [line for line in part.splitlines() if not re.match(r"#|\| ---", line)]
        if lines and lines[0].startswith("| "):
            yield from (_plain(line) for line in lines[1:])
            continue
        text = _TITLE.sub(r"\1: ", "\n".join(line for line in lines if line))
        for item in re.split(r"^ *- ", text, flags=re.MULTILINE):
            yield from (each for each in _END.split(_plain(item)) if re.search(r"\w", each))


def promises(page: str) -> list[tuple[str, list[str]]]:
    """The rows of `tests/promises/contract.md`: the beginning of a sentence, and its tests."""
    rows = [row.rpartition(" | ") for row in _ROW.findall(page)]
    return [(begin, tests) for begin, _, cell in rows if (tests := re.findall(rf"`({_NAME})`", cell))]


def _plain(text: str) -> str:
    """One line, without links, emphasis and the bars of a table."""
    text = _LINK.sub(r"\1", " ".join(text.split())).replace("**", "")
    return re.sub(r" *\| *", " ", text).strip()
