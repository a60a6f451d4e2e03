"""The tables and plots of `docs/performance.md`, made from the bench's own result files.

    backfill bench CASE… --repeat 3 --output docs/bench
    python -m streaming.bench.page

A table stands between `<!-- bench CASE -->` and `<!-- end -->`; what is written around it is left as it is. Plots go to
`docs/images/bench-CASE.svg`: how a value went in the last run, for every line that has a course.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from streaming.bench.line import Summary, cells
from streaming.bench.results import read_results

_TABLE = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = """| | median | unit | lowest to highest | compared with | its value | ratio |
| --- | ---: | --- | --- | --- | ---: | ---: |
"""
_PANEL_INCHES = (9.0, 1.7)


def with_tables(page: str, results: Path) -> str:
    """The page with each table as the result file of its case says now."""
    return _TABLE.sub(lambda match: match[1] + table(read_results(results, match[2])) + match[3], page)


def table(lines: Sequence[Summary]) -> str:
    """Lines as a table in Markdown."""
    return _HEAD + "".join(f"| {' | '.join(cells(line))} |\n" for line in lines)


def draw(lines: Sequence[Summary], file: Path) -> None:
    """One panel under another, a course each, over the same minutes. Needs matplotlib, which only developers have."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    drawn = [line for line in lines if line.course]
    if not drawn:
        return
    # The same file from the same results: no date, and ids that are not random. And its words are text.
    mpl.rcParams.update({"svg.hashsalt": file.stem, "svg.fonttype": "none"})
    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width, height * len(drawn)), layout="constrained")
    panels = figure.subplots(len(drawn), sharex=True, squeeze=False)
    for line, (panel,) in zip(drawn, panels, strict=True):
        panel.plot([at / 60 for at, _ in line.course], [value for _, value in line.course], linewidth=1)
        panel.set_ylim(bottom=0)
        panel.set_title(line.what.partition(": ")[2] or line.what, loc="left", fontsize=9)
        panel.set_ylabel(line.unit)
        panel.grid(alpha=0.3)
    panels[-1][0].set_xlabel("minutes")
    figure.savefig(file, metadata={"Date": None})


def _write() -> None:
    docs = Path("docs")
    page, results = docs / "performance.md", docs / "bench"
    page.write_text(with_tables(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    for file in sorted(results.glob("*.json")):
        draw(read_results(results, file.stem), docs / "images" / f"bench-{file.stem}.svg")


if __name__ == "__main__":
    _write()
