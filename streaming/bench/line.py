"""Lines of the bench's table: a value, what it is compared with in the same run, and the spread over several runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

Tell = Callable[[str], None]
"""Hears what is going on."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one run gave. `ratio` is value / compared, None where nothing is compared."""

    what: str
    value: float
    unit: str
    compared_with: str = ""
    compared: float | None = None

    @property
    def ratio(self) -> float | None:
        """How the value stands to what it is compared with."""
        return self.value / self.compared if self.compared else None


@dataclass(frozen=True, slots=True)
class Summary:
    """The same line of several runs: medians, and the lowest and highest value."""

    what: str
    unit: str
    runs: int
    value: float
    lowest: float
    highest: float
    compared_with: str
    compared: float | None
    ratio: float | None

    def to_dict(self) -> dict[str, Any]:
        """For the result file."""
        return asdict(self)


def summarised(lines: Iterable[Line]) -> list[Summary]:
    """Lines of the same name together, in the order in which names came first."""
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.what, []).append(line)
    return [_summary(same) for same in by_name.values()]


def _summary(lines: list[Line]) -> Summary:
    values = [line.value for line in lines]
    return Summary(
        lines[0].what,
        lines[0].unit,
        len(lines),
        statistics.median(values),
        min(values),
        max(values),
        lines[0].compared_with,
        _median(line.compared for line in lines),
        _median(line.ratio for line in lines),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def median(values: Iterable[float]) -> float:
    """0 for no values."""
    return _median(values) or 0.0
