"""The tables and plots of `docs/performance.md`, made from the bench's own result files.

    backfill bench CASE… --repeat 3 --output docs/bench
    python -m streaming.dev.bench.report.page

A table stands between `<!-- bench CASE -->` and `<!-- end -->`; what is written around it is left as it is. Plots go to
`docs/images/bench-CASE.svg`: how a value went in the last run, for every line that has a course; of cases without any,
the rates or latencies side by side.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.dev.bench.report.line import Summary, cells
from streaming.dev.bench.report.results import read_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TABLE = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = """| | median | unit | lowest to highest | compared with | its value | ratio |
| --- | ---: | --- | --- | --- | ---: | ---: |
"""
_PART_OF_IT = re.compile(r",? (at the end of the )?last \w+$")
"""What a line says of a course that a panel shows as a whole."""
_PANEL_INCHES = (9.0, 1.7)
_BAR_INCHES = 0.45
_SIDE_BY_SIDE = {"snapshot": "rows/s", "live": "ms"}
"""Cases whose lines of a unit are drawn as bars."""


def with_tables(page: str, results: Path) -> str:
    """The page with each table as the result file of its case says now."""
    return _TABLE.sub(lambda match: match[1] + table(read_results(results, match[2])) + match[3], page)


def table(lines: Sequence[Summary]) -> str:
    """Lines as a table in Markdown."""
    return _HEAD + "".join(f"| {' | '.join(cells(line))} |\n" for line in lines)


def draw(case: str, lines: Sequence[Summary], file: Path) -> None:
    """The picture of a case, if it has one. Needs matplotlib, which only developers have."""
    if any(line.course for line in lines):
        _draw_courses(lines, file)
    elif case in _SIDE_BY_SIDE:
        _draw_bars(lines, _SIDE_BY_SIDE[case], file)


def _draw_courses(lines: Sequence[Summary], file: Path) -> None:
    """One panel under another, a course each, over the same minutes."""
    drawn = [line for line in lines if line.course]
    width, height = _PANEL_INCHES
    figure = _figure(width, height * len(drawn), file)
    panels = figure.subplots(len(drawn), sharex=True, squeeze=False)
    for line, (panel,) in zip(drawn, panels, strict=True):
        panel.plot([at / 60 for at, _ in line.course], [value for _, value in line.course], linewidth=1)
        panel.set_ylim(bottom=0)
        panel.set_title(_PART_OF_IT.sub("", line.what.rpartition(": ")[2]), loc="left", fontsize=9)
        panel.set_ylabel(line.unit)
        panel.grid(alpha=0.3)
    panels[-1][0].set_xlabel("minutes")
    _save(figure, file)


def _draw_bars(lines: Sequence[Summary], unit: str, file: Path) -> None:
    """A bar for each line of a unit: the median, a whisker from lowest to highest, a mark at what it stands against."""
    drawn = [line for line in lines if line.unit == unit and not line.compared_with.endswith(" rows")]
    figure = _figure(_PANEL_INCHES[0], _BAR_INCHES * (len(drawn) + 2), file)
    panel = figure.subplots()
    for place, line in enumerate(drawn):
        beyond = [[line.value - min(line.values)], [max(line.values) - line.value]]
        panel.barh(place, line.value, xerr=beyond, height=0.6, color="tab:blue", ecolor="black", capsize=3)
    marks = [(line.compared, place) for place, line in enumerate(drawn) if line.compared is not None]
    values, places = zip(*marks, strict=True)
    against = ", ".join(dict.fromkeys(line.compared_with for line in drawn if line.compared_with))
    panel.scatter(values, places, marker="|", s=400, color="tab:orange", label=against, zorder=3)
    panel.set_yticks(range(len(drawn)), [line.what for line in drawn], fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel(unit)
    panel.locator_params(axis="x", nbins=6)
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.grid(axis="x", alpha=0.3)
    panel.legend(fontsize=8)
    _save(figure, file)


def _figure(width: float, height: float, file: Path) -> Figure:
    """Empty. The same file comes from the same results: its ids are not random. And its words are text."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": file.stem, "svg.fonttype": "none"})
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, metadata={"Date": None})


def _write() -> None:
    docs = Path("docs")
    page, results = docs / "performance.md", docs / "bench"
    page.write_text(with_tables(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    for case in sorted(file.stem for file in results.glob("*.json")):
        draw(case, read_results(results, case), docs / "images" / f"bench-{case}.svg")


if __name__ == "__main__":
    _write()
