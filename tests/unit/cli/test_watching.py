"""Jobs as bars: one a job, however often it is shown."""

from __future__ import annotations

import io

from rich.console import Console

from streaming.cli.jobs.watching import Bars, forecasts_after
from streaming.control.state_view import JobView, StateView
from streaming.core.forecast import Extent, RateEstimators
from tests.kit.reports import job


def test_a_job_that_is_named_again_has_one_bar() -> None:
    bars, rates = Bars(Console(file=io.StringIO(), force_terminal=True)), RateEstimators()
    with bars.shown() as progress:
        for read in (10, 20, 30):
            seen = JobView(job("copy"), {}, Extent(read, 40 - read))
            bars.show([seen], forecasts_after(rates, StateView("me", 1, 1, (seen,), 40, None)))
        assert [(task.description, task.completed) for task in progress.tasks] == [("copy", 0.75)]
