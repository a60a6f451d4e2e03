"""What the site needs besides the pages, which are written to be read in the repository as well.

mkdocs calls the functions by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown import Extension, Markdown
from markdown.blockparser import BlockParser
from markdown.blockprocessors import build_block_parser
from mkdocs.structure.files import File

_ROOT = Path(__file__).parents[2]
_OUTSIDE = re.compile(r"\[([^]]+)\]\(\.\./([^)#\s]*)(?:#[^)]*)?\)")
_FROM_ROOT = re.compile(r"\]\((?!https?:|#)([^)]+)\)")
_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changes.md"}
INDENT = 2


class _ListsAsOnGitHub(Extension):
    """What belongs to an item of a list is indented by two spaces; Python's Markdown takes four."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Markdown's name)
        md.tab_length = INDENT
        parser: BlockParser = build_block_parser(md)
        md.parser = parser


def on_config(config: Any) -> None:
    """Set the indent before other extensions add to the parser, which is made anew for it; place new pages."""
    config.markdown_extensions.insert(0, _ListsAsOnGitHub())
    placed = {page for section in config.nav for page in _pages(section)}
    if new := sorted({page.name for page in Path(config.docs_dir).glob("*.md")} - placed):
        config.nav.append({"Further": new})


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand outside of `docs`: the README, which is the home, and the changelog."""
    for source, page in _PAGES.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        content = _FROM_ROOT.sub(_from_docs, text)
        files.append(File.generated(config, page, content=content))
    return files


def _from_docs(found: re.Match[str]) -> str:
    """A link of a file in the root as a page of `docs` has it."""
    target = found[1]
    return f"]({target.removeprefix('docs/')})" if target.startswith("docs/") else f"](../{target})"


def _pages(section: Any) -> Iterator[str]:
    """Of a part of the navigation: a page, or a title with a page or with parts."""
    if isinstance(section, str):
        yield section
    for parts in section.values() if isinstance(section, dict) else ():
        for part in parts if isinstance(parts, list) else [parts]:
            yield from _pages(part)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Files of the repository that are no page are named in place of links to them."""
    return _OUTSIDE.sub(_link, markdown)


def _link(found: re.Match[str]) -> str:
    text, target = found[1], found[2]
    if page := _PAGES.get(target):
        return f"[{text}]({page})"
    return text if target in text else f"{text} (`{target}` in the repository)"
