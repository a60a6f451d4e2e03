"""Lines of the bench's table: a value, what it is compared with in the same run, and the spread over several runs."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

Notify = Callable[[str], None]
"""Called with a line on what the bench does now."""
CPU = "CPU of driver, JVM and workers"
"""What a line says of the cores that a service keeps busy."""
Course = tuple[tuple[float, float], ...]
"""How a value went: (seconds since the measuring began, value)."""


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of one run. `ratio` is value / compared, None where nothing is compared."""

    what: str
    value: float
    unit: str
    compared_with: str = ""
    compared: float | None = None
    course: Course = ()

    @property
    def ratio(self) -> float | None:
        """The value / the one that it is compared with."""
        return self.value / self.compared if self.compared else None


@dataclass(frozen=True, slots=True)
class Summary:
    """A line of several runs: each one's value, medians of the rest, and the course of the last run."""

    what: str
    unit: str
    values: tuple[float, ...]
    compared_with: str
    compared: float | None
    ratio: float | None
    course: Course = ()

    @property
    def value(self) -> float:
        """The median."""
        return median(self.values)

    def to_dict(self) -> dict[str, Any]:
        """For the result file."""
        return asdict(self)


def cells(line: Summary) -> list[str]:
    """A line of the table: what, its median with the unit, and what it is compared with; empty where there is none."""
    return [line.what, f"{number(line.value)} {line.unit}".rstrip(), against(line)]


def spread(line: Summary) -> str:
    """The lowest and the highest value; empty for a single run."""
    return f"{number(min(line.values))} to {number(max(line.values))}" if len(line.values) > 1 else ""


def against(line: Summary) -> str:
    """The ratio and what it is to, in one cell; empty where nothing is compared."""
    if line.compared is None or line.ratio is None:
        return ""
    return f"{line.ratio:.2f} of {line.compared_with} {number(line.compared)}"


def number(value: float) -> str:
    """Whole, unless that would hide a difference."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:,.2f}"


def by_size(smallest: Sequence[Line], larger: Sequence[Line], rows: int) -> list[Line]:
    """Lines of a larger table against the same lines of the smallest one, which has `rows` rows.

    The same are those that say the same but for numbers. What the smallest one has no line of is left out.
    """
    values = {_without_numbers(line.what): line.value for line in smallest}
    return [
        replace(
            line,
            what=f"{line.what}, by size",
            compared_with=f"{rows:,} rows",
            compared=values[_without_numbers(line.what)],
            course=(),
        )
        for line in larger
        if line.unit and _without_numbers(line.what) in values
    ]


def _without_numbers(what: str) -> str:
    return re.sub(r"\b\d[\d,]*", "", what)


def summarised(lines: Iterable[Line]) -> list[Summary]:
    """Lines of the same name together, in the order in which names came first."""
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.what, []).append(line)
    return [_summary(same) for same in by_name.values()]


def _summary(lines: list[Line]) -> Summary:
    return Summary(
        lines[0].what,
        lines[0].unit,
        tuple(line.value for line in lines),
        lines[0].compared_with,
        _median(line.compared for line in lines),
        _median(line.ratio for line in lines),
        lines[-1].course,
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def median(values: Iterable[float]) -> float:
    """0 for no values."""
    return _median(values) or 0.0


def course(
    values: Iterable[tuple[float, float]], step_s: float, of: Callable[[Sequence[float]], float] = median
) -> Course:
    """The values of each `step_s` seconds, summarised by `of`. `values` are (Unix seconds, value)."""
    steps: dict[int, list[float]] = {}
    began: float | None = None
    for at, value in values:
        began = at if began is None else began
        steps.setdefault(int((at - began) // step_s), []).append(value)
    return tuple((step * step_s, round(of(of_step), 1)) for step, of_step in sorted(steps.items()))
