"""The tables and plots of the pages on performance, made from the bench's own result files.

    make bench CASE=… ARGS="--repeat 3 --output docs/bench"
    make figures

A table stands between `<!-- bench CASE -->` and `<!-- end -->`, what was reached of what was asked between
`<!-- goals -->` and `<!-- end -->`; what is written around them is left as it is. Plots go to
`docs/images/bench-CASE.svg`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.report.goals import goals_table
from tests.bench.report.line import Summary, cells
from tests.bench.report.plots import draw, draw_cost
from tests.bench.report.results import Result, read_results

PAGES = ("performance.md", "formats-compared.md", "scale.md")
"""In `docs`: one service by itself, what is compared with each other, and what more of something costs."""
_TABLE = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_GOALS = re.compile(r"(<!-- goals -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = """| | median | unit | lowest to highest | compared with | its value | ratio |
| --- | ---: | --- | --- | --- | ---: | ---: |
"""


def with_tables(page: str, results: Mapping[str, Result]) -> str:
    """The page with each table as the result of its case says now."""
    page = _GOALS.sub(lambda match: match[1] + goals_table(results) + match[2], page)
    return _TABLE.sub(lambda match: match[1] + table(results[match[2]].lines) + match[3], page)


def table(lines: Sequence[Summary]) -> str:
    """Lines as a table in Markdown."""
    return _HEAD + "".join(f"| {' | '.join(cells(line))} |\n" for line in lines)


def _write() -> None:
    docs = Path("docs")
    images, results = docs / "images", read_results(docs / "bench")
    for page in map(docs.joinpath, PAGES):
        page.write_text(with_tables(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    for case, result in results.items():
        draw(result.lines, images / f"bench-{case}.svg")
    draw_cost({case: result.lines for case, result in results.items()}, images / "bench-cost.svg")


if __name__ == "__main__":
    _write()
