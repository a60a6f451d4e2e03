"""What the site needs besides the pages, which are written to be read in the repository as well.

mkdocs calls the functions by their names.
"""

from __future__ import annotations

import re
from typing import Any

from markdown import Extension, Markdown
from markdown.blockparser import BlockParser
from markdown.blockprocessors import build_block_parser

_OUTSIDE = re.compile(r"\[([^]]+)\]\(\.\./([^)#\s]*)(?:#[^)]*)?\)")
_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changes.md"}
INDENT = 2


class _ListsAsOnGitHub(Extension):
    """What belongs to an item of a list is indented by two spaces; Python's Markdown takes four."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (Markdown's name)
        md.tab_length = INDENT
        parser: BlockParser = build_block_parser(md)
        md.parser = parser


def on_config(config: Any) -> None:
    """Set the indent before other extensions add to the parser, which is made anew for it."""
    config.markdown_extensions.insert(0, _ListsAsOnGitHub())


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Files of the repository that are no page are named in place of links to them."""
    return _OUTSIDE.sub(_link, markdown)


def _link(found: re.Match[str]) -> str:
    text, target = found[1], found[2]
    if page := _PAGES.get(target):
        return f"[{text}]({page})"
    return text if target in text else f"{text} (`{target}` in the repository)"
