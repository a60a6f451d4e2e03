"""What a log says while a replica comes into being, where no terminal shows a bar."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from state.initial.copy_progress import CopyProgress
from streaming.cli import building
from streaming.cli.building import BuildBar


@pytest.fixture
def bar(monkeypatch: pytest.MonkeyPatch) -> BuildBar:
    monkeypatch.setattr(building, "_LINE_EVERY_S", -1.0)
    return BuildBar()


def test_a_copy_tells_its_rows_and_the_time_left(bar: BuildBar) -> None:
    with capture_logs() as lines:
        for progress in (CopyProgress(100, 0, 400), CopyProgress(300, 0, 400), CopyProgress(400, 100, 400)):
            bar.copied(progress)
        bar.copied(None)
    shown = [(line["event"], line["rows"], line["of"]) for line in lines]
    assert shown == [("copying", 100, 400), ("copying", 300, 400), ("sorting", 100, 400)]
    assert ["seconds_left" in line for line in lines] == [False, True, False]
    assert 0 <= lines[1]["seconds_left"] <= 1


def test_a_table_that_does_not_say_its_rows_has_no_time_left(bar: BuildBar) -> None:
    with capture_logs() as lines:
        bar.copied(CopyProgress(100, 0, None))
        bar.copied(CopyProgress(200, 0, None))
    assert [(line["rows"], line["of"]) for line in lines] == [(100, None), (200, None)]
    assert "rows_per_s" in lines[1]
    assert "seconds_left" not in lines[1]
