"""The tables and plots of `docs/performance.md`, made from the bench's own result files.

    make bench CASE=… ARGS="--repeat 3 --output docs/bench"
    make figures

A table stands between `<!-- bench CASE -->` and `<!-- end -->`. In `<!-- bench CASE PATTERN | PATTERN -->` patterns
choose lines. Goals stand between `<!-- goals -->` and `<!-- end -->`. The text around them is left as it is. Plots go
to `docs/images/bench-CASE.svg`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tests.bench.report.goals import goals_table
from tests.bench.report.line import Summary, cells
from tests.bench.report.plots import draw, draw_cost
from tests.bench.report.results import Result, read_results

PAGE = Path("docs/performance.md")
_TABLE = re.compile(r"(<!-- bench (\w+)(?: ([^\n]+))? -->\n).*?(<!-- end -->)", re.DOTALL)
_GOALS = re.compile(r"(<!-- goals -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = """| | median | compared |
| --- | ---: | --- |
"""


def with_tables(page: str, results: Mapping[str, Result]) -> str:
    """The page with each table as the result of its case says now."""
    page = _GOALS.sub(lambda match: match[1] + goals_table(results) + match[2], page)
    return _TABLE.sub(lambda match: match[1] + table(_lines(results[match[2]], match[3])) + match[4], page)


def _lines(result: Result, patterns: str | None) -> list[Summary]:
    """The lines that fit one of the patterns, which ` | ` separates; all of them without patterns."""
    wanted = (patterns or "*").split(" | ")
    return [line for line in result.lines if any(fnmatchcase(line.what, pattern) for pattern in wanted)]


def table(lines: Sequence[Summary]) -> str:
    """Lines as a table in Markdown."""
    return _HEAD + "".join(f"| {' | '.join(cells(line))} |\n" for line in lines)


def _write() -> None:
    images, results = PAGE.parent / "images", read_results(PAGE.parent / "bench")
    page = with_tables(PAGE.read_text(encoding="utf-8"), results)
    PAGE.write_text(page, encoding="utf-8")
    for case, result in results.items():
        picture = images / f"bench-{case}.svg"
        if picture.name in page:
            draw(result.lines, picture)
    draw_cost({case: result.lines for case, result in results.items()}, images / "bench-cost.svg")


if __name__ == "__main__":
    _write()
