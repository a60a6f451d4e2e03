"""Every fault's result goes into one table, printed at the end: what, when, how long until it worked again."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

RECOVERIES_S = "recoveries_s"
"""The property of a test that has them, whatever process it ran in."""


class FaultResults:
    """A plugin of pytest."""

    def __init__(self) -> None:
        self._outcomes: dict[str, str] = {}
        self._recoveries_s: dict[str, list[float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == RECOVERIES_S:
                assert isinstance(value, list)
                self._recoveries_s[report.nodeid] = value
        if report.failed:
            self._outcomes[report.nodeid] = "failed" if report.when == "call" else "error"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._recoveries_s:
            return
        table = Table("fault", "outcome", "starts that recovered", "until a new barrier, s")
        for name, recoveries_s in self._recoveries_s.items():
            shown = ", ".join(f"{time:.1f}" for time in recoveries_s)
            outcome = self._outcomes.get(name, "passed")
            table.add_row(escape(name.split("::")[-1]), outcome, str(len(recoveries_s)), shown)
        console = Console(file=terminalreporter._tw._file, width=140)
        console.print(table)
        every = [time for recoveries_s in self._recoveries_s.values() for time in recoveries_s]
        if every:
            console.print(
                f"{len(every)} recoveries, from the start of the process to the first new barrier: "
                f"median {statistics.median(every):.1f} s, maximum {max(every):.1f} s"
            )
