"""Citations in code, tests and documents exist: files, and the headings that anchors name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_TEXTS = (".py", ".md", ".toml", ".yaml", ".yml", ".lark", "Makefile")
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_CITED = re.compile(r"(?<![\w./-])((?:[\w-]+/)*[\w-]+\.md)\b((?:(?:, )?#[a-z0-9_-]+)*)")
_MADE = {"index.md", "changes.md"}
"""Pages of the site that are made of the README and of the changelog."""
_BY_NUMBER = re.compile(r"\b[A-Z]{5,} \d+\.\d+\b")
"""A document in capitals and its section, by number: nothing here is cited so."""


def test_every_document_that_is_cited_is_there_and_has_the_section() -> None:
    cited = [
        (path, document, anchor)
        for path in texts()
        if path != Path(__file__)
        for document, anchor in citations(path.read_text(encoding="utf-8"))
    ]
    assert sum(document == "docs/contract.md" for _, document, _ in cited) > 8
    missing = [
        (path, document, anchor)
        for path, document, anchor in cited
        if not any(is_there(folder / document, anchor) for folder in (_ROOT, _ROOT / "docs", path.parent))
        and not (path.parent.name == "site" and document in _MADE)
    ]
    assert missing == []


def test_no_document_is_cited_by_a_number() -> None:
    found = [(path.name, _BY_NUMBER.findall(path.read_text(encoding="utf-8"))) for path in texts()]
    assert [each for each in found if each[1]] == []


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    documents = [path for path in texts() if path.suffix == ".md"]
    assert len(documents) > 10
    broken = [
        (document.name, target, anchor)
        for document in documents
        for target, anchor in _LINK.findall(document.read_text(encoding="utf-8"))
        if not is_there(document.parent / target if target else document, anchor)
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("The law", "the-law"),
        ("What is promised, and what is not", "what-is-promised-and-what-is-not"),
        ("Page, API and metrics", "page-api-and-metrics"),
        ("`backfill run`: a service", "backfill-run-a-service"),
    ],
)
def test_anchors_are_those_of_github(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor


def test_a_citation_may_name_several_sections() -> None:
    text = "see docs/contract.md#the-law, #barriers and (README.md), not https://example.org/docs/other.md#x."
    expected = [("docs/contract.md", "the-law"), ("docs/contract.md", "barriers"), ("README.md", "")]
    assert list(citations(text)) == expected
    assert not is_there(_ROOT / "docs" / "contract.md", "no-such-section")
    assert not is_there(_ROOT / "docs" / "nowhere.md", "")


def texts() -> list[Path]:
    """The repository's own files of text, those included that are not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [_ROOT / name for name in names if name.endswith(_TEXTS) and (_ROOT / name).is_file()]


def citations(text: str) -> list[tuple[str, str]]:
    """The documents that a text names by their path from the root, each with its anchors (empty for none)."""
    return [
        (document, anchor)
        for document, anchors in _CITED.findall(text)
        for anchor in re.findall(r"#([a-z0-9_-]+)", anchors) or [""]
    ]


def is_there(path: Path, anchor: str) -> bool:
    """True if the file exists and, if an anchor is given, has a heading of that name."""
    return path.exists() and (not anchor or anchor in anchors_of(path.read_text(encoding="utf-8")))


def anchors_of(document: str) -> set[str]:
    """The anchors of a Markdown document's headings; lines in blocks of code are none."""
    prose = re.sub(r"^```.*?^```$", "", document, flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)}


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
