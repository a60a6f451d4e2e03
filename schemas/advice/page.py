"""`docs/errors.md`: `python -m schemas.advice.page` writes the next step of each error into it, after its meaning."""

from __future__ import annotations

import re
from pathlib import Path

from schemas.codes import Code
from schemas.error_table import TABLE

_PAGE = Path("docs/errors.md")
_ROW = re.compile(r"^(\| `([A-Z_]+)` \| [^|]+ \|).*$", re.MULTILINE)


def with_table(page: str) -> str:
    """The page with the next step of each row as the table has it; what stands in italics varies."""

    def row(found: re.Match[str]) -> str:
        next_step = re.sub(r"\{(\w+)}", r"*\1*", TABLE[Code(found[2])].next_step)
        return f"{found[1]} {next_step} |"

    return _ROW.sub(row, page)


if __name__ == "__main__":
    _PAGE.write_text(with_table(_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
