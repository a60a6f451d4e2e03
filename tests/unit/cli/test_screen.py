"""Output of a running service: a screen of 80 columns for a person, and few lines for programs."""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
import structlog
from rich.console import Console
from structlog import DropEvent
from structlog.testing import capture_logs

from schemas.errors import Code, EnvironmentProblem
from state.initial.start import CopyProgress
from state.values.progress import Completed
from streaming.cli import log_lines
from streaming.cli.jobs.watching import Bars, StateForecasts, watch
from streaming.cli.log_lines import BatchLog, BuildLog
from streaming.cli.screen import ServiceScreen, progress_text, status_line
from streaming.control.state_view import JobView, StateView
from streaming.core.forecast import Extent
from streaming.core.health import HealthCondition
from streaming.observe.models import Status
from streaming.protocol.report import BatchReport
from tests.kit.clock import Clock
from tests.kit.fed_page import FedPage
from tests.kit.reports import TABLE, job, report

WIDTH = 80
MEGABYTE = 1_000_000
MINUTES_A_DAY = 24 * 60


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Shown:
    """A screen that is not drawn by itself, and the lines above it."""

    def __init__(self, clock: Clock) -> None:
        self._out = io.StringIO()
        self.screen = ServiceScreen(Console(file=self._out, width=WIDTH), clock)
        self.event("starting", step="Java")

    def event(self, event: str, level: str = "info", **fields: object) -> None:
        with suppress(DropEvent):
            self.screen.event(None, level, {"event": event, **fields})

    @property
    def lines(self) -> list[str]:
        """Lines since the first step began, which ends the loading of the program."""
        lines = [line.rstrip() for line in self._out.getvalue().splitlines()]
        return lines[1:]

    @property
    def line(self) -> str:
        return self.screen.line().plain


def test_a_start_shows_what_is_waited_for_and_how_long_each_step_took(clock: Clock) -> None:
    shown = Shown(clock)
    clock.now_s = 2.0
    shown.event("starting", step="Spark", beside=True)
    shown.event("starting", step="reading the state")
    clock.now_s = 5.0
    assert shown.line.split(maxsplit=1)[1] == "reading the state, 3 s · Spark comes up, 3 s"
    shown.event("started", step="Spark")
    shown.event("serving", upstream="orders", lanes=2)
    took = [re.sub(r"\s+", " ", line).strip() for line in shown.lines]
    assert took[:3] == ["✓ Java 2.0 s", "✓ Spark 3.0 s", "✓ reading the state 3.0 s"]
    assert took[3].endswith("serving upstream=orders lanes=2")
    assert max(map(len, shown.lines)) <= WIDTH


def test_a_long_step_shows_its_progress_in_the_line_and_prints_nothing(clock: Clock) -> None:
    shown = Shown(clock)
    shown.event("building", records=44_000, of=100_000, records_per_s=2_000, seconds_left=28)
    assert shown.line.strip().endswith("44,000 of 100,000 records, 28 s left")
    assert len(shown.line) < WIDTH
    assert shown.lines == []
    assert progress_text({"event": "copying", "rows": 5, "of": None}) == "copying 5 rows"


def test_an_event_is_wrapped_within_80_columns_with_its_code_and_next_step(clock: Clock) -> None:
    shown = Shown(clock)
    problem = EnvironmentProblem(Code.BROKER_UNREACHABLE, found="no answer " * 20, where="localhost:9092")
    shown.event("condition", "warning", is_now="degraded", code=problem.code, **problem.texts)
    assert max(map(len, shown.lines)) <= WIDTH
    text = " ".join(line.strip() for line in shown.lines)
    assert "condition: degraded BROKER_UNREACHABLE" in text
    assert text.endswith(f"next: {problem.next_step}")


def test_what_the_line_shows_is_not_printed_as_well(clock: Clock) -> None:
    shown = Shown(clock)
    shown.event("batches", changes=7)
    shown.event("mutation", what="paused copy")
    assert [line.split("  ")[1] for line in shown.lines] == ["mutation"]


def line_of(status: Status) -> str:
    return status_line(status, WIDTH).plain


def test_the_line_tells_outputs_how_far_behind_and_what_is_under_way() -> None:
    page = FedPage()
    page.batch()
    line = line_of(page.cache.status())
    assert re.match(r"● serving · \d outputs? · \d+\.\d s behind · ", line), line
    assert len(line) <= WIDTH


def test_a_job_under_way_is_shown_as_far_as_there_is_room() -> None:
    page = FedPage()
    page.batch()
    status = page.cache.status()
    (going,) = [job for job in status.jobs if job.name == "copy"]
    lines = []
    for name in ("copy", "a-job-with-a-name-that-is-long", "copy-of-the-orders"):
        job = going.model_copy(update={"name": name, "rows_per_s": 12_345.0, "seconds_left": 393.0})
        lines.append(line_of(status.model_copy(update={"jobs": [job], "barrier_age_s": 1.9})))
    assert max(map(len, lines)) <= WIDTH
    assert [line.split(" · ")[3].partition("%")[2] for line in lines] == [
        ", 12,345 rows/s, 6 min 33 s left",
        ", 6 min 33 s left",
        ", 6 min 33 s left",
    ]


def test_trouble_takes_the_place_of_figures_that_are_not_known() -> None:
    page = FedPage()
    page.batch()
    status = page.cache.status().model_copy(
        update={"condition": HealthCondition.DEGRADED, "ready": False, "batch_age_s": 18.0}
    )
    assert line_of(status) == "● degraded · no batch for 18 s"


def batches(changes: list[int], clock: Clock, *, debug: bool = False) -> list[dict[str, object]]:
    """The lines of one batch a second with so many changes."""
    with capture_logs() as lines:
        log = BatchLog(clock)
        for count in changes:
            clock.now_s += 1.0
            log.note(_report(count))
        log.close()
    return [dict(line) for line in lines if debug or line["log_level"] != "debug"]


def _report(changes: int) -> BatchReport:
    return replace(report(), changes=changes)


def test_batches_without_records_have_no_line_but_at_debug(clock: Clock) -> None:
    assert batches([0] * 600, clock) == []
    assert [line["event"] for line in batches([0] * 3, clock, debug=True)] == ["batch"] * 3


def test_batches_of_a_minute_are_one_line_that_sums_them_up(clock: Clock) -> None:
    lines = batches([5] * 181, clock)
    assert [line["changes"] for line in lines] == [5, 300, 300, 300]
    assert [line["batches"] for line in lines] == [1, 60, 60, 60]


def test_a_day_with_a_record_in_each_batch_is_less_than_a_megabyte_of_json(clock: Clock) -> None:
    lines = batches([1] * 600, clock)
    render = structlog.processors.JSONRenderer()
    stamp = {"timestamp": "2026-11-29T17:20:42.123456Z"}
    longest = max(len(str(render(None, "info", {**line, **stamp}))) + 1 for line in lines)
    assert json.loads(str(render(None, "info", dict(lines[0]))))["event"] == "batches"
    assert len(lines) <= 600 / 60 + 1
    assert longest * MINUTES_A_DAY <= MEGABYTE


@pytest.fixture
def copying(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> BuildLog:
    """The log of a replica that comes into being, by the clock in place of the module `time`."""
    clock.now_s = 100.0
    in_ns = SimpleNamespace(monotonic=clock, monotonic_ns=lambda: round(clock() * 1e9))
    monkeypatch.setattr(log_lines, "time", in_ns)
    return BuildLog()


def test_a_copy_tells_its_rows_and_the_time_left(clock: Clock, copying: BuildLog) -> None:
    with capture_logs() as lines:
        for progress in (CopyProgress(100, 0, 400), CopyProgress(300, 0, 400), CopyProgress(400, 100, 400)):
            copying.copied(progress)
            clock.now_s += 5
        copying.copied(None)
    shown = [(line["event"], line["rows"], line["of"]) for line in lines]
    assert shown == [("copying", 100, 400), ("copying", 300, 400), ("sorting", 100, 400)]
    assert [line.get("seconds_left") for line in lines] == [None, round(100 / 40), None]


def test_a_table_that_does_not_say_its_rows_has_no_time_left(clock: Clock, copying: BuildLog) -> None:
    with capture_logs() as lines:
        copying.copied(CopyProgress(100, 0, None))
        clock.now_s += 5
        copying.copied(CopyProgress(200, 0, None))
    assert [(line["rows"], line["of"]) for line in lines] == [(100, None), (200, None)]
    assert lines[1]["rows_per_s"] == 20
    assert "seconds_left" not in lines[1]


def test_parts_between_two_events_have_none(clock: Clock, copying: BuildLog) -> None:
    with capture_logs() as lines:
        for rows in range(100):
            copying.copied(CopyProgress(rows, 0, 400))
            clock.now_s += 0.5
    assert [line["rows"] for line in lines] == list(range(0, 100, 10))


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
