"""The pictures of `docs/performance.md`, from result files. They need matplotlib, which only developers have.

The same file comes from the same results, byte by byte, so that a picture changes only with its figures.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.report.line import CPU, Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PART_OF_IT = re.compile(r",? (at the end of the )?last \w+$")
"""What a line says of a course that a panel shows as a whole."""
_OF_SIZE = re.compile(r"snapshot of ([\d,]+) rows, exactly once(, of the limit|, first after a start|)")
_SERIES = {"": "backfill", ", first after a start": "backfill, first after a start"}
"""What a line of a size says of the backfill itself."""
_PANEL_INCHES = (9.0, 1.7)
_SIZES_INCHES = (9.0, 4.0)
_BAR_INCHES = 0.45
_MINUTES_AN_HOUR = 60
_THOUSANDS = 1_000
_SHORT_S = 180
"""A course of as long is shown by seconds."""


def draw(lines: Sequence[Summary], file: Path) -> None:
    """The picture of a case, if it has one: rates over sizes, or how values went in the last run."""
    if sizes := _by_size(lines):
        _draw_sizes(sizes, file)
    elif any(line.course for line in lines):
        _draw_courses([line for line in lines if line.course], file)


def draw_cost(results: Mapping[str, Sequence[Summary]], file: Path) -> None:
    """Draw the service's CPU minutes an hour, by case; nothing unless two cases have measured it."""
    used = {
        line.what.rpartition(": ")[0]: line.value * _MINUTES_AN_HOUR
        for lines in results.values()
        for line in lines
        if line.what.endswith(CPU)
    }
    if len(used) <= 1:
        return
    used = dict(sorted(used.items(), key=lambda item: item[1]))
    figure = _figure(_PANEL_INCHES[0], _BAR_INCHES * (len(used) + 2), file)
    panel = figure.subplots()
    bars = panel.barh(list(used), list(used.values()), height=0.6, color="tab:blue")
    panel.bar_label(bars, [f"{minutes:,.0f}" for minutes in used.values()], padding=4, fontsize=8)
    panel.invert_yaxis()
    panel.tick_params(axis="y", labelsize=8)
    panel.set_xlabel("minutes of one core in an hour")
    panel.grid(axis="x", alpha=0.3)
    _save(figure, file)


def _by_size(lines: Sequence[Summary]) -> dict[str, dict[int, float]]:
    """Rates by rows of the table, of the backfill and of what it was compared with; empty without two sizes."""
    rates: dict[str, dict[int, float]] = defaultdict(dict)
    for line in lines:
        if match := _OF_SIZE.fullmatch(line.what):
            rows = int(match[1].replace(",", ""))
            if match[2] in _SERIES:
                rates[_SERIES[match[2]]][rows] = line.value
            if line.compared is not None:
                rates[line.compared_with][rows] = line.compared
    return rates if any(len(of_size) > 1 for of_size in rates.values()) else {}


def _draw_sizes(rates: Mapping[str, Mapping[int, float]], file: Path) -> None:
    """A line for each: rows a second over rows of the table, which are ten times as many at the next mark."""
    figure = _figure(*_SIZES_INCHES, file)
    panel = figure.subplots()
    for name, of_size in rates.items():
        sizes = sorted(of_size)
        own = name in _SERIES.values()
        panel.plot(
            [rows / 1e6 for rows in sizes],
            [of_size[rows] / 1e3 for rows in sizes],
            label=name,
            marker="o",
            linestyle="-" if own else "--",
        )
    panel.set_xscale("log")
    panel.set_xticks(sorted({rows / 1e6 for of_size in rates.values() for rows in of_size}))
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.minorticks_off()
    panel.set_ylim(bottom=0)
    panel.set_xlabel("million rows of the table")
    panel.set_ylabel("thousand rows/s")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
    _save(figure, file)


def _draw_courses(lines: Sequence[Summary], file: Path) -> None:
    """One panel under another, a course each, over the same time."""
    width, height = _PANEL_INCHES
    figure = _figure(width, height * len(lines), file)
    panels = figure.subplots(len(lines), sharex=True, squeeze=False)
    aspects = [_PART_OF_IT.sub("", line.what.rpartition(": ")[2]) for line in lines]
    titles = aspects if len(set(aspects)) == len(lines) else [line.what for line in lines]
    lasts_s = max(at for line in lines for at, _ in line.course)
    unit, seconds = ("seconds", 1) if lasts_s <= _SHORT_S else ("minutes", 60)
    for line, title, (panel,) in zip(lines, titles, panels, strict=True):
        panel.plot([at / seconds for at, _ in line.course], [value for _, value in line.course], linewidth=1)
        panel.set_ylim(bottom=0)
        if max(value for _, value in line.course) >= _THOUSANDS:
            panel.yaxis.set_major_formatter("{x:,.0f}")
        panel.set_title(title, loc="left", fontsize=9)
        panel.set_ylabel(line.unit)
        panel.grid(alpha=0.3)
    panels[-1][0].set_xlabel(unit)
    _save(figure, file)


def _figure(width: float, height: float, file: Path) -> Figure:
    """Empty. Its ids follow from the name of the file, and its words are text."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.hashsalt": file.stem, "svg.fonttype": "none"})
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, metadata={"Date": None})
