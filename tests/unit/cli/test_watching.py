"""Jobs as bars: one a job, however often it is shown."""

from __future__ import annotations

import io

from rich.console import Console

from state.values.progress import Completed
from streaming.cli.jobs.watching import Bars, StateForecasts, watch
from streaming.control.state_view import JobView, StateView
from streaming.core.forecast import Extent
from tests.kit.reports import TABLE, job


def test_a_job_that_is_named_again_has_one_bar() -> None:
    bars, known = Bars(Console(file=io.StringIO(), force_terminal=True)), StateForecasts()
    with bars.shown() as progress:
        for read in (10, 20, 30):
            seen = JobView(job("copy"), {}, Extent(read, 40 - read))
            bars.show([seen], known.after(StateView("me", 1, 1, (seen,), 40, None)))
        assert [(task.description, task.completed) for task in progress.tasks] == [("copy", 0.75)]


class Complete:
    """The state of a service whose only job is complete."""

    def look(self) -> StateView:
        seen = JobView(
            job("copy"), dict.fromkeys(range(TABLE.vnode_count), Completed((9,), 5)), Extent(40, 0)
        )
        return StateView("me", 1, 1, (seen,), 40, None)


def test_without_a_terminal_a_line_is_not_repeated_at_the_end() -> None:
    out = io.StringIO()
    watch(Console(file=out, width=80), Complete().look, lambda view: view.jobs)
    assert out.getvalue() == "copy: 100.0%, 40 rows, live\n"
