"""The demo's account of a job's way, from batch reports, and its output where it is no terminal."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping

import pytest
from rich.console import Console

from state.values.progress import Completed, InProgress, Progress
from streaming.demo import console as module
from streaming.demo.console import DemoProgress, StepConsole
from streaming.protocol.report import BatchReport
from tests.kit import reports


def report(
    at_ms: int, *, rows: int = 0, replica: int = 0, progress: Mapping[int, Progress] | None = None
) -> BatchReport:
    """A batch with one barrier that was injected at an instant, of a table of two vnodes."""
    jobs = {} if progress is None else {"copy": progress}
    stored = {0: replica} if replica else {}
    return reports.report((), jobs, at_ms=at_ms, rows={"copy": rows}, stored=stored, vnode_count=2)


def instants(progress: DemoProgress) -> tuple[bool, bool]:
    """Flags: the replica stands; the job is complete."""
    return progress.replica_at is not None, progress.complete_at is not None


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_course_goes_from_the_replica_over_the_snapshot_to_completion() -> None:
    progress = DemoProgress("copy", 2)
    progress.note(report(now_ms()))
    assert instants(progress) == (True, False)
    assert (progress.about_rows, progress.left_s) == (10, None)
    progress.note(report(now_ms(), rows=40, replica=100, progress={0: InProgress((4,), 40)}))
    assert instants(progress) == (True, False)
    assert progress.left_s == pytest.approx(60 / progress.snapshot_rate, rel=0.2)
    progress.note(
        report(now_ms(), rows=59, replica=101, progress={0: Completed((4,), 50), 1: Completed(None, 49)})
    )
    assert instants(progress) == (True, True)
    assert (progress.snapshot_rows, progress.about_rows, progress.left_s) == (99, 99, 0)
    assert progress.barriers == 3


def test_live_changes_are_out_once_a_later_barrier_has_passed() -> None:
    progress, sent_at = DemoProgress("copy", 2), time.time()
    assert not progress.has_passed(sent_at)
    progress.note(report(int(sent_at * 1_000) - 500))
    assert not progress.has_passed(sent_at)
    progress.note(report(int(sent_at * 1_000) + 500))
    assert progress.has_passed(sent_at)


def test_the_lag_is_that_of_the_oldest_barrier_in_the_batch() -> None:
    progress = DemoProgress("copy", 2)
    progress.note(report(now_ms() - 3_000))
    assert progress.lag_s == pytest.approx(3, abs=0.5)


def test_without_a_terminal_a_step_is_one_line_when_it_has_ended() -> None:
    output = io.StringIO()
    with StepConsole(Console(file=output), ["one", "two"]) as console:
        console.begin("one", "beginning", total=10)
        console.update("one", "half of it", completed=5, total=10)
        console.end("one", "10 of 10")
    assert output.getvalue() == "one: 10 of 10 (0.0 s)\n"


def test_without_a_terminal_a_long_step_tells_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PLAIN_EVERY_S", 0.0)
    output = io.StringIO()
    with StepConsole(Console(file=output), ["one"]) as console:
        console.begin("one", "")
        console.update("one", "half of it")
    assert output.getvalue() == "  one: half of it\n"


def test_on_a_terminal_every_step_is_there_from_the_start_and_ticked_at_its_end() -> None:
    output = io.StringIO()
    with StepConsole(Console(file=output, force_terminal=True, width=80), ["one", "two"]) as console:
        console.begin("one", "beginning")
        console.end("one", "ready")
    last = output.getvalue().rpartition("one")
    assert "✓" in last[0].splitlines()[-1]
    assert "ready" in last[2]
    assert "two" in last[2]
