"""Events of a replica that comes into being."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from state.initial.start import CopyProgress
from streaming.cli import log_lines
from streaming.cli.log_lines import BuildLog


class Clock:
    """A clock that is set by hand, in place of the module `time`."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return round(self.now_s * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(log_lines, "time", clock)
    return clock


def test_a_copy_tells_its_rows_and_the_time_left(clock: Clock) -> None:
    log = BuildLog()
    with capture_logs() as lines:
        for progress in (CopyProgress(100, 0, 400), CopyProgress(300, 0, 400), CopyProgress(400, 100, 400)):
            log.copied(progress)
            clock.now_s += 5
        log.copied(None)
    shown = [(line["event"], line["rows"], line["of"]) for line in lines]
    assert shown == [("copying", 100, 400), ("copying", 300, 400), ("sorting", 100, 400)]
    assert [line.get("seconds_left") for line in lines] == [None, round(100 / 40), None]


def test_a_table_that_does_not_say_its_rows_has_no_time_left(clock: Clock) -> None:
    log = BuildLog()
    with capture_logs() as lines:
        log.copied(CopyProgress(100, 0, None))
        clock.now_s += 5
        log.copied(CopyProgress(200, 0, None))
    assert [(line["rows"], line["of"]) for line in lines] == [(100, None), (200, None)]
    assert lines[1]["rows_per_s"] == 20
    assert "seconds_left" not in lines[1]


def test_parts_between_two_events_have_none(clock: Clock) -> None:
    log = BuildLog()
    with capture_logs() as lines:
        for rows in range(100):
            log.copied(CopyProgress(rows, 0, 400))
            clock.now_s += 0.5
    assert [line["rows"] for line in lines] == list(range(0, 100, 10))
