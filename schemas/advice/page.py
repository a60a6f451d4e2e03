"""`docs/errors.md`: `python -m schemas.advice.page` writes the table of errors into it, behind each meaning."""

from __future__ import annotations

import re
from pathlib import Path

from schemas.codes import Code
from schemas.error_table import TABLE

_PAGE = Path("docs/errors.md")
_ROW = re.compile(r"^(\| `([A-Z_]+)` \| [^|]+ \|).*$", re.MULTILINE)


def with_table(page: str) -> str:
    """The page with expectation and next step of each row as the table has them; what stands in italics varies."""

    def row(found: re.Match[str]) -> str:
        advice = TABLE[Code(found[2])]
        texts = (re.sub(r"\{(\w+)}", r"*\1*", text) for text in (advice.expected, advice.next_step))
        return " ".join((found[1], *(f"{text} |" for text in texts)))

    return _ROW.sub(row, page)


if __name__ == "__main__":
    _PAGE.write_text(with_table(_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
